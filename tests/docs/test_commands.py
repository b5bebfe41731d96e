"""Every `muster` line of the README, the docs and the help is run, in order, where its words lead.

In `make test` runs are cut to two rounds and comparisons to one seed; `make test-slow` runs them
whole. The lines of docs/federate.md need servers around them: tests/flower/local/test_loopback.py
runs that page. Tutorials are walked in their order by test_walks.py.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

import muster.cli.options as options
from blank_figures import leave_out_figures
from helpers import cut_short
from muster.cli.main import EXAMPLES, main
from muster.data.sources.catalogue import CATALOGUE
from muster.data.sources.dataset import locate
from muster.papers.reproduce import run_panels as experiments
from muster.papers.reproduce.paper_experiment import list_experiments
from muster.study.sweep import plan_sweep

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
         if page.name != "federate.md" and not page.name.startswith("tutorial-")]  # fmt: skip
BLOCKS = [
    block
    for page in PAGES
    for kind, block in re.findall(
        r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE
    )
    if kind in ("", "sh")
]
LINES = [
    line.strip()
    for text in (EXAMPLES, *BLOCKS)
    for line in re.findall(r"^ *muster [^\n]*", text, re.MULTILINE)
]
# In the help, what a command does stands behind it, two spaces off.
LINES = [*dict.fromkeys(re.split(r"\s{2,}|\s#", line)[0] for line in LINES)]

PATIENTS = """\
age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal
58,1,4,,240,0,2,120,1,2.1,2,,7
41,0,2,130,204,0,2,172,0,1.4,1,0,3
"""
EXPERIMENTS = list_experiments()
REAL = "federate --local"  # a superlink and nodes of its own: a minute by itself


def lacking(line):
    """Why a line cannot be run on this machine."""
    if "data get" in line:
        return "it fetches over the network: run it by hand"
    if "--on dask" in line:
        return "it needs a cluster: tests/cli/test_executors.py has one"
    if "--pages" in line:
        return "it writes into the checkout: tests/reproduce/test_pages.py repeats it"
    words = re.findall(r"\w+", line)
    if (
        "reproduce" in words
    ):  # a panel without its data is left out; with none there is nothing to run
        panels = [p for id in words if id in EXPERIMENTS for p in EXPERIMENTS[id].panels("quick")]
        missing = [experiments.missing_command(panel) for panel in panels]
        if missing and all(missing):
            return f"run `{missing[0]}`"
    for name, entry in CATALOGUE.items():
        if name in words and entry.layouts and locate(entry) is None:
            return f"run `{entry.command}`"
    return None


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder as the reader of these lines has it: the examples, files of their own, and results
    under the names that are written."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "my.toml").write_text('data = "digits"\n[method]\nname = "fedalign"\n')
    page = (ROOT / "docs" / "own-data.md").read_text()
    python = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        leave_out_figures(patch)
        for makes in ("hospitals", "runs/visits", "runs/photos"):  # as the page says
            code = next(code for code in python if re.search(rf'"{makes}"\)', code))
            exec(code, {"__name__": "example"})
        shutil.copy("hospitals/north.csv", "new.csv")
        patients = "".join(f"{i % 7},{i % 3 % 2},{i % 5 / 2},{'ab'[i % 2]}\n" for i in range(40))
        (folder / "trial.csv").write_text(f"days,died,stage,client\n{patients}")
        Path("patients.csv").write_text(PATIENTS)
        few = ["--rounds", "2", "--checkpoint_every", "1"]
        for name in ("NAME", "hospitals", "federate"):
            assert main(["run", "--data", "hospitals", *few, "--name", name]) == 0
        demo = ["--data", "digits", "--method", "fedalign", "--method", "fedavg", "--seeds", "2"]
        assert main(["compare", *demo, *few, "--name", "demo"]) == 0
    return folder


def run_line(line, capsys):
    words = shlex.split(line)[1:]
    if "--help" in words:
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0
        return
    code = main(words)
    said = capsys.readouterr()
    assert code == 0, said.err + said.out
    assert said.out, "it says something"


LONG = re.compile("reproduce fig[12]")  # ten seconds and more however they are cut


@pytest.mark.parametrize(
    "line", [line for line in LINES if REAL not in line and not LONG.search(line)]
)
def test_it_runs(line, desk, monkeypatch, capsys):
    if why := lacking(line):
        pytest.skip(why)

    def cut(table, over, trusted):
        return plan_sweep({**table, "rounds": 2, "seeds": 1}, over, trusted=trusted)

    monkeypatch.chdir(desk)
    if not re.search("figure|panels", line):
        leave_out_figures(monkeypatch)
    monkeypatch.setattr(experiments, "plan_sweep", cut)
    for step in (*makers(line), line):
        with monkeypatch.context() as patch:
            if "--resume" not in step:
                patch.setattr(options, "load", cut_short)
            run_line(shorter(step), capsys)


def makers(line):
    """The lines that make the results a line reads, where another process ran them."""
    return [
        other
        for name in re.findall(r"runs/(\w+)", line)
        if not Path("runs", name).exists()
        for other in LINES
        if other.endswith(f"--name {name}") and not lacking(other)
    ]


def shorter(line):
    """A line with flags for what cannot be cut from outside: cells are read in other processes."""
    command = line.split()[1]
    if command not in ("sweep", "tune", "advise") or "--resume" in line or "runs/" in line:
        return line
    few = {"--rounds": "2", "--seeds": "3" if command == "advise" else "1", "--jobs": "1"}
    return line + "".join(f" {k} {v}" for k, v in few.items() if k not in line)


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_it_runs_whole(line, desk, monkeypatch, capsys):
    if why := lacking(line):
        pytest.skip(why)
    monkeypatch.chdir(desk)
    run_line(line, capsys)


def test_there_are_lines_of_every_kind():
    commands = {line.split()[1] for line in LINES}
    kinds = {"run", "compare", "show", "federate", "data", "methods", "sweep", "tune"}
    assert kinds <= commands
    assert len(LINES) >= 18
