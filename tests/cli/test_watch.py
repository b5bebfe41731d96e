"""`muster watch`: what stopped, and what is under way."""

from __future__ import annotations

import json
import os

import pytest

import muster
import muster.cli.watch as command
from muster.cli.main import main
from muster.results.run import Interrupted
from muster.study.compare import ComparisonInterrupted


def test_a_stopped_run_is_shown_with_the_command_that_resumes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "BETWEEN", 0.05)

    def stop(row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    place = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        muster.simulate(
            muster.data.digits(clients=4), muster.methods.fedavg(), muster.models.Softmax(), 5,
            checkpoint=place / "checkpoints", on_round=stop,
        )  # fmt: skip
    for how in (["--every", "0.02"], ["--once"]):
        assert main(["watch", str(place), *how]) == 0
        out = capsys.readouterr().out
        assert "it stopped after round 2 of fedavg, seed 0" in out
        assert f"muster run --resume {place}" in out.replace("\n", "")
    assert main(["show", str(place)]) == 2
    assert f"continue with: muster run --resume {place}" in capsys.readouterr().err


def test_what_another_machine_shares_is_under_way_while_it_renews_its_ticket(
    tmp_path, monkeypatch, capsys
):
    def stop(row):
        raise KeyboardInterrupt

    cell = tmp_path / "shared"
    with pytest.raises(ComparisonInterrupted):
        muster.compare(
            muster.data.digits(clients=4), [muster.methods.fedavg()], muster.models.Softmax(), 5,
            seeds=1, folder=cell, on_round=stop,
        )  # fmt: skip
    ticket = cell / ".ticket-0.0"
    ticket.write_text(json.dumps({"host": "node7", "machine": "node7 x", "pid": 1}))
    assert main(["watch", str(cell), "--once"]) == 0
    assert "stopped" not in capsys.readouterr().out
    os.utime(ticket, (0, 0))
    assert main(["watch", str(cell), "--once"]) == 0
    assert "it stopped after round 1 of fedavg, seed 0" in capsys.readouterr().out
    assert [path.name for path in cell.glob(".ticket*")] == [ticket.name], "nothing is written"


def test_a_run_that_is_being_saved_did_not_stop(tmp_path, monkeypatch, capsys):
    """It is saved while the command waits."""
    place = tmp_path / "full"
    run = muster.simulate(
        muster.data.digits(clients=4), muster.methods.fedavg(), muster.models.Softmax(), 2,
        checkpoint=place / "checkpoints",
    )  # fmt: skip
    monkeypatch.setattr(command.time, "sleep", lambda _: muster.save(run, place))
    assert main(["watch", str(place), "--once"]) == 0
    out = capsys.readouterr().out
    assert "done: " in out
    assert "stopped" not in out


def test_a_run_under_way_is_followed_to_its_end(tmp_path, capsys):
    """The run is watched from inside, a look a round: no second process is needed."""
    place = tmp_path / "live"

    def look(row):
        assert main(["watch", str(place), "--once", "--page"]) == 0
        out = capsys.readouterr().out
        assert f"{row['round']}/3" in out
        assert "left" in out
        page = (place / "live.html").read_text()
        assert '<meta http-equiv="refresh" content="2">' in page
        assert "It is not finished" in page

    run = muster.simulate(
        muster.data.digits(clients=4), muster.methods.fedavg(), muster.models.Softmax(), 3,
        checkpoint=place / "checkpoints", checkpoint_every=1, on_round=look,
    )  # fmt: skip
    muster.save(run, place)
    assert main(["watch", str(place)]) == 0
    assert "done" in capsys.readouterr().out
