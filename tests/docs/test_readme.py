"""Every Python example in the README and docs runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    (page.name, i, code)
    for page in PAGES
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize(("page", "i", "code"), BLOCKS, ids=[f"{p}-{i}" for p, i, _ in BLOCKS])
def test_example_runs(page, i, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, f"{page}[{i}]", "exec"), {"__name__": "example"})


def test_there_are_examples():
    assert len(BLOCKS) >= 3


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_commands_in_the_readme_exist():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE):
        assert f"\n{target}:" in makefile
    from muster.cli.main import reader

    for name in re.findall(r"^muster ([\w-]+)", text, re.MULTILINE):
        assert name in reader().commands


def test_the_table_of_methods_is_current():
    from muster.cli.methods import markdown

    text = (ROOT / "docs" / "methods.md").read_text()
    table = text.split("<!-- methods -->\n")[1].split("<!-- end methods -->")[0]
    assert table.strip() == markdown(), "run: muster methods --markdown, and paste"
