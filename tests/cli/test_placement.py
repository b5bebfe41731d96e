"""`--jobs`, `--on` and `--share`: seeds of a comparison side by side, and what is refused."""

from __future__ import annotations

import pytest
from rich.console import Console

import muster
from fragile import write_experiment
from helpers import same_bits
from muster.cli.compare import WORTH, place_seeds
from muster.cli.main import main
from muster.cli.progress_bar import Progress
from muster.config import load
from muster.papers.reproduce import panel_results
from muster.study.experiment_runs import compare_experiment
from muster.study.units import Placement


def test_seeds_side_by_side_have_the_bits_of_one_process(here, capsys):
    assert main(["compare", "small.toml", "--name", "one"]) == 0
    assert main(["compare", "small.toml", "--name", "two", "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    for name in ("one", "two"):
        assert f"report:  runs/{name}/report.html" in said
    one, two = (muster.load(f"runs/{name}") for name in ("one", "two"))
    assert one.seeds == two.seeds
    assert all(same_bits(a, b) for k in one for a, b in zip(one[k], two[k], strict=True))
    assert {**one["fedavg"][0].config, "name": "two"} == two["fedavg"][0].config


def test_a_share_of_a_comparison_finds_its_folder_and_goes_on(here, capsys):
    line = ["compare", "small.toml", "--share", "1/2", "--jobs", "1"]
    assert main(line) == 0
    assert "results: runs/small" in capsys.readouterr().out
    assert main([*line, "--rounds", "4"]) == 2
    assert "its runs were made with rounds = 2, this has 4" in capsys.readouterr().err
    assert main(line) == 0, "finished: shown again"
    assert [p.name for p in (here / "runs").iterdir()] == ["small"]


def test_a_comparison_in_this_process_holds_its_folder(here, capsys, monkeypatch):
    """A share that joins is refused before it runs anything."""
    codes = []

    def compare(chosen, folder, *others, **more):
        codes.append(main(["compare", "small.toml", "--share", "2/2", "--jobs", "1"]))
        return compare_experiment(chosen, folder, *others, **more)

    monkeypatch.setattr("muster.cli.compare.compare_experiment", compare)
    assert main(["compare", "small.toml"]) == 0
    assert codes == [2]
    assert "in use by a run without --share; wait for it to end" in capsys.readouterr().err


def test_a_share_that_finds_no_more_leaves_the_rest_to_the_others(here, capsys):
    muster.sweep("small.toml", {"local.lr": [0.1]}, "runs/small", jobs=1)
    line = ["sweep", "small.toml", "--sweep.local.lr", "0.1", "--seeds", "3", "--jobs", "1"]
    (here / "runs/small/local.lr=0.1/.ticket-2.0").write_text("{}")  # just begun, elsewhere
    assert main([*line, "--share", "2/2"]) == 0
    assert (
        "share 2/2: 2 of 3 runs finished, 1 elsewhere; once all have ended: muster sweep --resume "
        "runs/small" in " ".join(capsys.readouterr().out.split())
    )
    assert main(["tune", "small.toml", "--tune.local.lr", "0.1,0.2", "--share", "3/2"]) == 2
    assert "--share: '3/2'; give i/n" in capsys.readouterr().err


@pytest.mark.slow  # a comparison's seeds, above, and test_executors.py are placed in the same way
def test_reproduce_in_processes_and_as_a_share(here, capsys, monkeypatch):
    experiment = write_experiment(here)
    monkeypatch.setattr("muster.cli.reproduce.find_experiment", lambda id: experiment)
    line = ["reproduce", "small", "--quick"]
    assert main([*line, "--on", "processes", "--jobs", "2", "--out", "two"]) == 0
    (here / "one/quick/small/one/runs/rounds=1").mkdir(parents=True)
    ticket = here / "one/quick/small/one/runs/rounds=1/.ticket-1.0"
    ticket.write_text("{}")  # just begun, elsewhere
    capsys.readouterr()
    line += ["--out", "one", "--jobs", "1"]
    assert main([*line, "--share", "1/2"]) == 0
    assert (
        "share 1/2: 1 of 2 runs finished, 1 elsewhere; once all have ended: the same command "
        "without --share" in " ".join(capsys.readouterr().out.split())
    )
    assert not (here / "one/quick/small.parquet").exists()
    ticket.unlink()
    assert main([*line, "--share", "2/2"]) == 0, "the last one finishes it"
    one, two = (panel_results.load(here / name / "quick", "small") for name in ("one", "two"))
    assert one.frame.equals(two.frame)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare small.toml --on nosuch", "--on: 'nosuch'; allowed: processes, dask://HOST:PORT"),
        (
            "sweep small.toml --sweep.local.lr 0.1 --on dask://x:1 --jobs 2",
            "--jobs: given",
        ),
        ("tune small.toml --tune.local.lr 0.1,1 --on ray --share 1/2", "--share: given together"),
        (
            "compare small.toml --track tensorboard --jobs 2",
            "--track: follows runs of this",
        ),
        ("compare small.toml --share 1/2 --track mlflow", "--track: follows runs of this"),
        ("reproduce fig7 --quick --on here", "--on: 'here'; allowed"),
        ("compare small.toml --jobs 0", "--jobs: 0; allowed"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(here, capsys, line, said):
    assert main(line.split()) == 2
    found = capsys.readouterr()
    assert said in found.err
    assert found.err.count("\n") == 1
    assert not (here / "runs").exists()


def test_few_rounds_and_tracked_ones_run_in_this_process():
    small = {"data": "digits", "methods": ["fedavg", "fedalign"], "processes": 4, "seeds": 5}
    for rounds, jobs in ((WORTH // 20, 1), (WORTH // 5, 2), (WORTH, 4)):
        found = place_seeds(load({**small, "rounds": rounds}), Placement(), False)
        assert found.jobs == jobs
    many = load({**small, "rounds": WORTH})
    assert place_seeds(many, Placement(), True).jobs == 1
    assert place_seeds(many, Placement(3), False).jobs == 3
    assert place_seeds(load({**small, "rounds": WORTH, "seeds": 2}), Placement(), False).jobs == 2


def test_rounds_of_other_processes_are_counted_by_what_they_write(here):
    muster.compare(
        muster.data.digits(clients=4, priority=2), {"a": muster.methods.fedavg()},
        muster.models.Softmax(), 3, seeds=1, folder=here / "c",
    )  # fmt: skip
    bar = Progress(9, Console())
    look = bar.follow(here / "c", ["a"], [0, 1, 2], 3)
    log = here / "c" / "a-seed1" / "checkpoints" / "progress.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text('{"about": 1}\n{"round": 1}\n{"round": 2}\n{"rou')
    bar.began -= 3600  # of starting
    look()
    assert (bar.done, bar.resumed) == (3 + 2, 3)
    assert bar.left() == "about 0 s left"
