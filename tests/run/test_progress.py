"""What a run under way shows to whoever looks on."""

from __future__ import annotations

import json

import pytest

import muster
from muster.base import durable
from muster.results import store
from muster.results.run import Interrupted
from muster.run import progress


@pytest.fixture(scope="module")
def fed():
    return muster.data.digits(clients=6, priority=2)


def run(fed, folder, rounds=6, **how):
    return muster.simulate(
        fed, muster.methods.fedalign(), muster.models.Softmax(), rounds,
        checkpoint=folder / "checkpoints", checkpoint_every=2, resume=True, **how,
    )  # fmt: skip


def test_every_round_is_there_as_soon_as_it_is_done(fed, tmp_path):
    seen = []

    def look(row):
        sight = progress.read_progress(tmp_path)
        seen.append((row["round"], len(sight.rows), sight.state, sight.rounds))
        assert sight.rows[-1]["loss"] == row["loss"]
        assert sight.rows[-1]["admitted"] == row["admitted"]

    run(fed, tmp_path, on_round=look)
    assert seen == [(t, t, "under way", 6) for t in range(1, 7)]
    assert not durable.in_use(tmp_path / "checkpoints")


def test_one_that_goes_on_begins_with_what_was_done(fed, tmp_path):
    def stop(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run(fed, tmp_path, on_round=stop)
    sight = progress.read_progress(tmp_path)
    assert (sight.state, len(sight.rows)) == ("stopped", 3)
    whole = run(fed, tmp_path)
    rows = progress.read_progress(tmp_path).rows
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["loss"] for row in rows] == whole.rounds["loss"].to_list()


def test_a_line_that_is_not_whole_is_left_for_the_next_look(fed, tmp_path):
    run(fed, tmp_path, 2)
    file = tmp_path / "checkpoints" / progress.FILE
    whole = file.read_text()
    file.write_text(whole + '{"round": 3, "lo')
    assert len(progress.read_progress(tmp_path).rows) == 2
    assert all(json.loads(line) for line in whole.splitlines())


def test_what_is_damaged_is_one_line(fed, tmp_path):
    run(fed, tmp_path, 2)
    file = tmp_path / "checkpoints" / progress.FILE
    file.write_text("nonsense\n")
    with pytest.raises(muster.MusterError, match="cannot be read"):
        progress.read_progress(tmp_path)


def test_nothing_is_written_without_a_folder(fed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), 1)
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_none_are_no_json_of_their_own():
    assert progress.as_line({"a": float("nan"), "b": True}) == '{"a": null, "b": true}\n'


def test_the_run_so_far_can_be_shown(fed, tmp_path):
    run(fed, tmp_path, 5)
    sight = progress.read_progress(tmp_path)
    so_far = sight.run()
    assert len(so_far.rounds) == 5
    assert so_far.clients["round"].max() == 4, "who took part is known up to the last checkpoint"
    text = so_far.report(tmp_path / "live.html").read_text()
    assert "It is not finished" in text
    muster.save(muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), 1), tmp_path)
    assert store.is_run(tmp_path)
    assert progress.read_progress(tmp_path).state == "done"
