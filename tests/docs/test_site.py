"""The docs as a site: everything public is in the reference, and links lead to pages."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import muster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_public_is_in_the_reference(site):
    text = site.reference()
    for name in muster.__all__:
        thing = getattr(muster, name)
        if callable(thing):
            assert f"### `{name}`" in text, name
    for method in ("fedalign", "maxfl", "fedavg"):
        assert f"### `{method}`" in text
    assert "#### `Run.report(path, title='')`" in text
    assert " at 0x" not in text
    assert str(ROOT) not in text


def test_keys_become_a_list_and_examples_code(site):
    made = site.described(
        "What.\n\nkey    what it is,\n       and more\nb, c   two\n\n>>> 1\n1\n\n    x = 1"
    )
    assert made == (
        "What.\n\n- `key`: what it is, and more\n- `b, c`: two\n\n"
        "```python\n>>> 1\n1\n```\n\n```\nx = 1\n```"
    )


def test_links_lead_to_pages_or_are_text(site):
    text = "[a](docs/report.md#x) ![b](docs/report.png) [c](examples/demo.toml) [d](https://x.org)"
    assert site.relinked(text, ROOT / "README.md") == (
        "[a](report.md#x) ![b](report.png) c (`examples/demo.toml`) [d](https://x.org)"
    )
    assert site.relinked("[r](../README.md)", ROOT / "docs" / "x.md") == "[r](index.md)"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="run `pip install 'muster-fl[docs]'`")
    words = ["mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path / "site")]
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {page.name for page in (tmp_path / "site").glob("*.html")}
    assert {"index.html", "api.html", "report.html", "tutorial-comparison.html"} <= pages
    text = (tmp_path / "site" / "index.html").read_text()
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', text)
    assert loaded
    assert [where for where in loaded if "//" in where] == [], "nothing comes from elsewhere"
