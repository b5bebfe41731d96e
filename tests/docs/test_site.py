"""The docs as a site: everything public is in the reference, and links lead to pages."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import browser
import muster

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "api.md").read_text()


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_public_is_in_the_reference():
    listed = set(re.findall(r"^::: muster\.(\w+)$", REFERENCE, re.MULTILINE))
    assert listed == {*muster.__all__, "protocol"} - {"attacks"}  # those are parts


def test_every_page_is_in_the_navigation(hooks):
    written = {page.name for page in (ROOT / "docs").glob("*.md")} | set(hooks.PAGES)
    listed = re.findall(r"([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(written)


def test_links_lead_to_pages_or_are_text(hooks):
    text = "[a](docs/report.md#x) ![b](docs/report.png) [c](examples/demo.toml) [d](https://x.org)"
    assert hooks.rewrite_links(text, ROOT / "README.md") == (
        "[a](report.md#x) ![b](report.png) c (`examples/demo.toml`) [d](https://x.org)"
    )
    assert hooks.rewrite_links("[r](../README.md)", ROOT / "docs" / "x.md") == "[r](index.md)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocstrings", reason="run `pip install 'muster-fl[docs]'`")
    folder = tmp_path_factory.mktemp("docs") / "site"
    words = ["mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(site):
    pages = {page.name for page in site.glob("*.html")}
    assert {"index.html", "api.html", "report.html", "tutorial-comparison.html"} <= pages
    reference = (site / "api.html").read_text()
    for name in muster.__all__:
        assert name == "attacks" or f'id="muster.{name}"' in reference, name
    for name in ("methods.fedalign", "Run.report", "protocol.Replies", "parts.Weigh"):
        assert re.search(rf'id="muster\.[\w.]*{re.escape(name)}"', reference), name
    for page in site.glob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', page.read_text())
        assert loaded
        assert [where for where in loaded if "//" in where] == [], "nothing comes from elsewhere"


def test_search_needs_no_server_and_no_network():
    """The plugin has a script for pages opened from the disk, which ours stands in for."""
    settings = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"^  - offline\b", settings, re.MULTILINE)
    (script,) = re.findall(r"^    - (\S*iframe-worker\S*)", settings, re.MULTILINE)
    assert (ROOT / "docs" / script).exists()


@pytest.mark.slow
def test_search_works_from_the_disk(site):
    if shutil.which("chromium") is None:
        pytest.skip("run `apt-get install chromium`")
    with browser.Browser() as running:
        page = running.open(site / "report.html")
        page.until("document.readyState === 'complete'")
        page.run(
            "(s => { s.checked = true; s.dispatchEvent(new Event('change')) })"
            "(document.querySelector('#__search'))"
        )
        page.run(
            "(i => { i.focus(); i.value = 'requirement';"
            "i.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));"
            "i.dispatchEvent(new Event('input', {bubbles: true})) })"
            "(document.querySelector('input[data-md-component=search-query]'))"
        )
        page.until("document.querySelectorAll('.md-search-result__item').length > 0")
        assert page.errors == []
