"""Units of a folder that several processes share: each is run once, whoever dies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w

import muster
from fragile import BASE, configure
from muster.base.errors import MusterError
from muster.cli.main import main
from muster.study import tickets, workers
from muster.study.tickets import Share, TicketName, Tickets, hold, take_units

ROOT = Path(__file__).parents[2]


def age(path, seconds):
    """Make a ticket look as if it was renewed that long ago."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def elsewhere(path):
    """Make a ticket that of another machine."""
    path.write_text(json.dumps({"host": "node7", "machine": "node7 x", "pid": 1}))


def test_a_unit_is_taken_once_until_its_process_is_dead(tmp_path):
    name = TicketName(tmp_path, "3")
    mine, theirs = Tickets(), Tickets()
    assert mine.take(name)
    assert not theirs.take(name)
    elsewhere(name.path(0))
    age(name.path(0), tickets.DEAD - 5)
    assert not theirs.take(name)
    age(name.path(0), 10)
    assert theirs.take(name)
    assert not mine.take(name), "the last ticket counts"
    mine.give_back([name])
    assert name.count() == 2, "taken over: not mine to give back"
    theirs.give_back([name])
    assert name.count() == 1


def test_a_ticket_of_the_future_is_dead_when_nobody_renewed_it_while_another_waited(tmp_path):
    name, now = TicketName(tmp_path, "3"), [0.0]
    waiting = Tickets(clock=lambda: now[0])
    assert Tickets().take(name)
    elsewhere(name.path(0))
    age(name.path(0), -1e6)
    assert not waiting.take(name)
    now[0] += tickets.DEAD - 1
    assert not waiting.take(name)
    age(name.path(0), -20)  # renewed, by the same clock
    now[0] += 2
    assert not waiting.take(name)
    now[0] += tickets.DEAD
    assert not Tickets(clock=lambda: now[0]).take(name), "it has not waited"
    assert not waiting.take(name), "not longer than that"
    now[0] += 1
    assert waiting.take(name)
    assert name.count() == 2


def test_a_process_of_this_machine_that_ended_is_dead_at_once(tmp_path):
    name = TicketName(tmp_path, "0")
    code = (
        "import sys; from pathlib import Path; from muster.study.tickets import *\n"
        "assert Tickets().take(TicketName(Path(sys.argv[1]), '0'))"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert name.count() == 1
    assert Tickets().take(name)


def test_after_three_deaths_nobody_takes_a_unit(tmp_path):
    name = TicketName(tmp_path / "cell", "5")
    name.folder.mkdir()
    for number in range(tickets.TRIES):
        assert Tickets().take(name)
        elsewhere(name.path(number))
        age(name.path(number), tickets.DEAD + 5)
    last = Tickets()
    assert not last.take(name)
    with pytest.raises(MusterError) as stop:
        last.check_lost()
    assert "cell, seed 5: given up, as 3 processes ended" in str(stop.value)
    assert "the last on node7 (process 1)" in str(stop.value)
    assert f"delete {name.folder}/.ticket-5.*" in str(stop.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pid": "x"}', '{"pid": -1}', "\x00" * 5000])
def test_a_ticket_that_says_nothing_lives_by_its_time(tmp_path, text):
    name = TicketName(tmp_path, "0")
    name.path(0).write_text(text)
    assert not Tickets().take(name)
    age(name.path(0), tickets.DEAD + 5)
    assert Tickets().take(name)


def test_a_ticket_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "theirs").write_text("theirs")
    TicketName(tmp_path, "0").path(0).symlink_to("theirs")
    with pytest.raises(MusterError, match="a link"):
        Tickets().take(TicketName(tmp_path, "0"))


def test_tickets_are_renewed_and_given_back_after_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(tickets, "BEAT", 0.01)
    mine, name = Tickets(), TicketName(tmp_path, "0")

    def run():
        with mine.renew():
            assert mine.take(name)
            age(name.path(0), 1000)
            before = name.path(0).stat().st_mtime
            while name.path(0).stat().st_mtime == before:
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert name.count() == 0


def test_every_share_begins_with_its_own_and_goes_on_with_the_others(tmp_path):
    def name(unit):
        return TicketName(tmp_path, str(unit))

    done = {4}
    first = take_units(range(6), Share(1, 2), Tickets(), name, done.__contains__)
    second = take_units(range(6), Share(2, 2), Tickets(), name, done.__contains__)
    assert [next(first), next(second), next(first), next(first)] == [0, 1, 2, 3]
    assert list(second) == [5]
    assert list(first) == []
    patient = take_units(range(6), Share(1, 1), Tickets(), name, done.__contains__, patient=True)
    assert next(patient) is None, "others are at work"
    done |= set(range(6))
    assert list(patient) == []


def test_a_ticket_is_a_lock_for_a_moment(tmp_path):
    name = TicketName(tmp_path, "marker")
    with hold(name):
        assert not Tickets().take(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["3", "0/4", "5/4", "a/b", "1/", "-1/2", "1/99999999999"])
def test_shares_that_are_none(text):
    with pytest.raises(MusterError, match="give i/n with i from 1 to n"):
        Share.parse(text)


def begin(folder, number, config="my.toml"):
    """Start a task of the Slurm array in examples/, without Slurm."""
    env = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": "2",
           "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
           "PYTHONPATH": str(ROOT / "tests" / "support")}  # fmt: skip
    script = ["bash", ROOT / "examples" / "array.sbatch", config, "runs", "mine", "--jobs", "1"]
    return subprocess.Popen(script, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "1: CONFIG is missing; usage: sbatch examples/array.sbatch CONFIG OUT NAME"),
        (["my.toml", "runs"], "3: NAME is missing; usage: sbatch"),
        (["my.toml", "", "mine"], "2: OUT is missing; usage: sbatch"),
        (["my.toml", "runs", "mine"], "SLURM_ARRAY_TASK_ID: not set: start this with sbatch"),
    ],
)
def test_the_script_says_what_it_lacks(tmp_path, words, said):
    env = {"PATH": os.environ["PATH"]}
    script = ["bash", ROOT / "examples" / "array.sbatch", *words]
    done = subprocess.run(script, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert said in done.stderr


def owners(folder):
    """The processes of each unit, by the tickets that they leave."""
    found = {}
    for path in sorted(folder.glob("*/.ticket-*")):
        unit = (path.parent.name, path.suffixes[0] if len(path.suffixes) > 1 else path.stem)
        found.setdefault(unit, []).append(json.loads(path.read_text())["pid"])
    return found


def test_two_shares_run_every_unit_once_and_all_of_them(tmp_path):
    (tmp_path / "here").mkdir()
    join = {"kind": "fragile:Gathering", "record": str(tmp_path / "here")}
    method = {"name": "fedavg", "join": join}
    config = {**BASE, "methods": [method], "seeds": 3, "sweep": {"local.lr": [0.1, 0.2]}}
    (tmp_path / "my.toml").write_text(tomli_w.dumps(config))
    both = [begin(tmp_path, number) for number in (1, 2)]
    said = [process.communicate(timeout=240)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert any("results: runs/mine" in text for text in said), said
    units = owners(tmp_path / "runs" / "mine")
    assert len(units) == 6
    assert all(len(pids) == 1 for pids in units.values())
    assert len({pid for pids in units.values() for pid in pids}) == 2, "both took part"
    there = muster.load(tmp_path / "runs" / "mine")
    assert there.complete
    here = muster.sweep(config, jobs=1)
    assert here.frame.drop("seconds").equals(there.frame.drop("seconds"))
    made = [tomllib.loads(p.read_text())["made"] for p in tmp_path.rglob("comparison.toml")]
    assert [set(one["data"]) for one in made] == [{"0", "1", "2"}] * 2, "no seed's mark is lost"


def test_what_a_killed_share_was_running_is_run_by_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = {**configure(tmp_path / "killed"), "sweep": {"local.lr": [0.1]}}
    Path("my.toml").write_text(tomli_w.dumps(config))
    process = begin(tmp_path, 1)
    process.communicate(timeout=240)
    assert process.returncode != 0
    (dead,) = map(int, Path("killed").read_text().split())
    line = ["sweep", "my.toml", "--out", "runs", "--name", "mine", "--share", "2/2"]
    assert main([*line, "--jobs", "1"]) == 0
    assert sorted(map(len, owners(tmp_path / "runs" / "mine").values())) == [1, 2]
    there = muster.load("runs/mine")
    assert there.complete
    here = muster.sweep(configure(tmp_path / "killed", 0), {"local.lr": [0.1]}, jobs=1)
    assert here.frame.drop("seconds").equals(there.frame.drop("seconds"))
    assert dead in [pid for pids in owners(tmp_path / "runs" / "mine").values() for pid in pids]


def test_a_small_comparison_leaves_a_seed_to_the_process_that_has_its_ticket(tmp_path, monkeypatch):
    """Few rounds run in one process, which looks at tickets too."""
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text(tomli_w.dumps({**BASE, "method": "fedavg", "seeds": 2}))
    assert main(["compare", "my.toml", "--name", "mine"]) == 0
    (place,) = Path("runs/mine").glob("*-seed1")
    shutil.rmtree(place)
    name = TicketName(Path("runs/mine"), "1")
    elsewhere(Tickets().take(name) and name.path(0))

    def die(_):
        assert not place.exists(), "the other process has it"
        age(name.path(0), tickets.DEAD + 5)

    monkeypatch.setattr(workers.time, "sleep", die)
    assert main(["compare", "--resume", "runs/mine"]) == 0
    assert place.exists()
    assert name.count() == 2


def test_a_folder_of_other_results_is_not_shared(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = {**BASE, "method": "fedavg", "seeds": 2}
    Path("my.toml").write_text(tomli_w.dumps(small))
    Path("grid.toml").write_text(tomli_w.dumps({**small, "sweep": {"local.lr": [0.1]}}))
    share = ["--name", "mine", "--share", "1/2", "--jobs", "1"]
    assert main(["compare", "my.toml", *share]) == 0
    before = sorted(Path("runs").rglob("*"))
    assert main(["sweep", "grid.toml", *share]) == 2
    assert f"{Path('runs/mine')} holds a comparison; give another" in capsys.readouterr().err
    assert sorted(Path("runs").rglob("*")) == before
    assert main(["compare", "my.toml", *share]) == 0
    assert main(["sweep", "grid.toml", "--name", "grid", *share[2:]]) == 0
    assert main(["compare", "my.toml", "--name", "grid", *share[2:]]) == 2
    assert f"{Path('runs/grid')} holds a sweep" in capsys.readouterr().err
