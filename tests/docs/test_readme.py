"""Every Python example in the README and docs runs as it stands.

Those of the tutorials that test_walks.py walks run there, each after the lines before it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from muster.cli.main import build_parser, main
from muster.cli.options import read_configuration
from muster.config.experiment import load
from muster.report.advice_content import format_way
from muster.study.advice_store import load_advice
from small_data import SHARED

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WALKED = ("tutorial-own-files.md", "tutorial-comparison.md")
BLOCKS = [
    (page.name, i, code)
    for page in PAGES
    if page.name not in WALKED
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize(("page", "i", "code"), BLOCKS, ids=[f"{p}-{i}" for p, i, _ in BLOCKS])
def test_example_runs(page, i, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for call, table in (("data.exam(", "real/exam.csv"),):
        if call in code:
            if not (SHARED / table).is_file():
                pytest.skip(f"run `MUSTER_TEST_DATA=FOLDER make test`, with {table} in FOLDER")
            monkeypatch.setenv("MUSTER_DATA", str(tmp_path))
            (tmp_path / Path(table).name).symlink_to(SHARED / table)
    exec(compile(code, f"{page}[{i}]", "exec"), {"__name__": "example"})
    if page == "README.md":  # the block after it is its output
        after = (ROOT / page).read_text().split(code)[1]
        assert capsys.readouterr().out == after.split("```")[2].lstrip("\n")


def test_there_are_examples():
    assert len(BLOCKS) >= 3


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.slow
def test_the_demo_says_what_the_readme_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shown = (ROOT / "README.md").read_text().split("## Twelve lines")[0]
    _, verdicts, compared = re.findall(r"^```\n(.*?)^```", shown, re.DOTALL | re.MULTILINE)
    for block, line in ((verdicts, "advise heart"), (compared, "compare examples/demo.toml")):
        assert main(line.split()) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert " ".join(block.split()) in said
    assert Path("runs/demo/report.html").is_file()
    for client in load_advice(Path("runs/advise-heart")).clients.values():
        ways = [format_way(client.ways[way]).strip() for way in ("with everyone", "by assist")]
        rows, loss = client.rows + client.test_rows, f"{client.alone.loss:.3f}"
        cells = [client.name, str(rows), loss, *ways, client.headline()]
        assert f"| {' | '.join(cells)} |" in shown


def test_the_example_of_the_readme_has_twelve_lines():
    (code,) = [code for page, _, code in BLOCKS if page == "README.md"]
    assert len(code.splitlines()) <= 12


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_targets_in_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert f"\n{target}:" in makefile


SERVED = re.findall(
    r"^muster [^\n]*", (ROOT / "docs" / "federate.md").read_text().split("## ", 1)[1], re.MULTILINE
)


@pytest.mark.parametrize("line", dict.fromkeys(SERVED))
def test_command_lines_that_need_servers_are_understood(line):
    """Read, and not run: tests/flower/local/test_loopback.py runs the page, test_commands.py all
    other lines."""
    assert build_parser().parse(shlex.split(line, comments=True)[1:]).execute is not None


def test_the_table_of_methods_is_current():
    from muster.cli.methods import format_markdown

    text = (ROOT / "docs" / "methods.md").read_text()
    table = text.split("<!-- methods -->\n")[1].split("<!-- end methods -->")[0]
    assert table.strip() == format_markdown(), "run: muster methods --markdown, and paste"


def test_the_appeal_example_is_alive(tmp_path, monkeypatch):
    """Clients leave and return, and in the end the model appeals to nearly all of them."""
    (code,) = [code for page, _, code in BLOCKS if page == "guide.md" and "maxfl" in code]
    monkeypatch.chdir(tmp_path)
    space: dict = {"__name__": "example"}
    exec(compile(code, "guide", "exec"), space)
    run = space["run"]
    assert run.rounds["pool"].min() <= 12
    assert run.rounds["pool"][-1] >= 18
    assert run.rounds["gm_appeal"][-1] > 0.9
    assert set(run.moves["move"]) == {"left", "returned"}
    assert run.warnings == []


def test_the_command_under_when_it_helps_is_of_few_rows():
    (line,) = re.findall(r"`(muster compare[^`]*)`", (ROOT / "README.md").read_text())
    table = read_configuration(build_parser().parse(shlex.split(line)[1:]))
    chosen = load(table)
    assert chosen.data["partition"] == {"kind": "few", "of": "dirichlet"}
    assert list(chosen.methods) == ["fedavg_priority", "assist"]
