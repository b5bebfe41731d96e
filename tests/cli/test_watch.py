"""`muster watch`: what stopped, and what is under way."""

from __future__ import annotations

import pytest

import muster
import muster.cli.watch as command
from muster.cli.main import main
from muster.results.run import Interrupted


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
