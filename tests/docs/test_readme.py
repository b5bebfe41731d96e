"""Every Python example in the README and docs runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from muster.cli.main import reader
from muster.cli.runs import configured
from muster.config.experiments import experiment

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


def test_targets_in_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert f"\n{target}:" in makefile


LINES = [
    line
    for page in PAGES
    for kind, block in re.findall(
        r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE
    )
    if kind in ("", "sh")
    for line in re.findall(r"^muster [^\n]*", block, re.MULTILINE)
]


@pytest.mark.parametrize("line", dict.fromkeys(LINES))
def test_every_command_line_is_understood(line, monkeypatch):
    """Read, and checked as a configuration where it is one; nothing is run."""
    monkeypatch.chdir(ROOT)
    command = shlex.split(line, comments=True)[1:]
    if "--help" in command:
        with pytest.raises(SystemExit):
            reader().read(command)
        return
    words = reader().read(command)
    own = hasattr(words, "config") and words.resume is None
    if own and (words.config is None or words.config.startswith("examples/")):
        table = configured(words)
        if command[0] == "run":
            table.pop("report_at", None)
        experiment(table)


def test_there_are_command_lines():
    assert len(LINES) >= 15


def test_the_table_of_methods_is_current():
    from muster.cli.methods import markdown

    text = (ROOT / "docs" / "methods.md").read_text()
    table = text.split("<!-- methods -->\n")[1].split("<!-- end methods -->")[0]
    assert table.strip() == markdown(), "run: muster methods --markdown, and paste"


def test_the_appeal_example_is_alive(tmp_path, monkeypatch):
    """Clients leave and return, and in the end the model appeals to nearly all of them."""
    (code,) = [code for page, _, code in BLOCKS if page == "README.md" and "maxfl" in code]
    monkeypatch.chdir(tmp_path)
    space: dict = {"__name__": "example"}
    exec(compile(code, "README", "exec"), space)
    run = space["run"]
    assert run.rounds["pool"].min() <= 12
    assert run.rounds["pool"][-1] >= 18
    assert run.rounds["gm_appeal"][-1] > 0.9
    assert set(run.moves["move"]) == {"left", "returned"}
    assert run.concerns == []
