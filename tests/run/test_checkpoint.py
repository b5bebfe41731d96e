"""Checkpoints: no flipped bit is computed with, and the one before the last is there."""

from __future__ import annotations

import errno

import pytest
import torch

import muster
from helpers import nine_clients, same_bits
from muster.base import durable
from muster.results import ledger as ledgers
from muster.run import training_loop
from muster.run.audit import TRUST, build_trust_state

M = muster.methods


def args(method=None, **more):
    return {
        "method": method or M.scaffold(m=4),
        "model": muster.models.MLP((4,)),
        "rounds": 9,
        "local": muster.Local(steps=2, batch_size=4, lr=0.1),
        "checkpoint_every": 2,
        **more,
    }


class Stop(Exception):
    """Stands for a crash."""


def stopped(fed, folder, at=7, **more):
    """A run that crashed in its seventh round, with checkpoints of rounds 4 and 6."""

    def on_round(row):
        if row["round"] == at:
            raise Stop

    with pytest.raises(Stop):
        muster.simulate(fed, **args(**more), checkpoint=folder, on_round=on_round)


def flip(file, at):
    """Flip one bit of a file."""
    raw = bytearray(file.read_bytes())
    raw[at % len(raw)] ^= 1 << (at % 8)
    file.write_bytes(raw)


def test_the_last_two_checkpoints_are_kept(tmp_path):
    stopped(nine_clients(), tmp_path)
    assert sorted(p.name for p in tmp_path.glob("round-*")) == ["round-00000004", "round-00000006"]


@pytest.mark.parametrize("at", [0, 8, 100, 501, 1003, 2222, -3])
@pytest.mark.parametrize(
    "name", ["s.safetensors", "rounds.parquet", "clients-000000.parquet", "identity.json"]
)
def test_a_flipped_bit_is_noticed_and_the_one_before_is_used(tmp_path, name, at):
    fed = nine_clients()
    whole = muster.simulate(fed, **args())
    stopped(fed, tmp_path)
    flip(tmp_path / "round-00000006" / name, at)
    with pytest.warns(muster.MusterWarning, match=f"{name} is not .*resuming from round-00000004"):
        resumed = muster.simulate(fed, **args(), checkpoint=tmp_path, resume=True)
    assert same_bits(whole, resumed)


def test_a_missing_file_and_lost_sums_are_noticed_too(tmp_path):
    fed = nine_clients()
    stopped(fed, tmp_path)
    (tmp_path / "round-00000006" / "s.safetensors").unlink()
    with pytest.warns(muster.MusterWarning, match=r"s\.safetensors is missing; resuming"):
        muster.simulate(fed, **args(checkpoint_every=99), checkpoint=tmp_path, resume=True)
    for place in tmp_path.glob("round-*"):
        (place / "sums.json").write_text("[")
    with pytest.raises(
        muster.MusterError, match=r"sums\.json cannot be read.*start from round 1 without"
    ):
        muster.simulate(fed, **args(), checkpoint=tmp_path, resume=True)


def test_a_damaged_result_is_noticed(tmp_path):
    muster.save(muster.simulate(nine_clients(), **args()), tmp_path / "run")
    flip(tmp_path / "run" / "weights.safetensors", -2)
    with pytest.raises(muster.MusterError, match=r"weights\.safetensors is not what was written"):
        muster.load(tmp_path / "run")


def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path, monkeypatch):
    fed = nine_clients()
    whole = muster.simulate(fed, **args())
    real = durable.sync

    def full(path):
        if "round-00000006" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path)

    monkeypatch.setattr(durable, "sync", full)
    with pytest.raises(muster.MusterError, match=r"cannot be written .*No space left.*make room"):
        muster.simulate(fed, **args(), checkpoint=tmp_path)
    assert [p.name for p in sorted(tmp_path.glob("round-*"))] == [
        "round-00000002",
        "round-00000004",
    ]
    monkeypatch.undo()
    resumed = muster.simulate(fed, **args(), checkpoint=tmp_path, resume=True)
    assert same_bits(whole, resumed)


def test_results_hide_no_figure_of_other_results(tmp_path):
    """A kill between saving and drawing must not leave an older figure next to newer numbers."""
    run = muster.simulate(nine_clients(), **args())
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "figure.png").write_bytes(b"old")
    (folder / "notes.txt").write_text("mine")
    muster.save(run, folder)
    assert not (folder / "figure.png").exists()
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_ledger_that_went_to_disk_is_the_same_ledger(tmp_path, monkeypatch):
    fed = nine_clients()
    whole = muster.simulate(fed, **args())
    monkeypatch.setattr(ledgers, "SPILL", 10)
    spilled = muster.simulate(fed, **args())
    assert same_bits(whole, spilled)
    stopped(fed, tmp_path / "a")
    assert len(list((tmp_path / "a" / "round-00000006").glob("clients-*"))) > 1
    resumed = muster.simulate(fed, **args(), checkpoint=tmp_path / "a", resume=True)
    assert same_bits(whole, resumed)

    def interrupt(row):
        if row["round"] == 6:
            raise KeyboardInterrupt

    with pytest.raises(muster.Interrupted) as caught:
        muster.simulate(fed, **args(), checkpoint=tmp_path / "b", on_round=interrupt)
    assert caught.value.run.clients["round"].max() == 6
    assert same_bits(whole, muster.simulate(fed, **args(), checkpoint=tmp_path / "b", resume=True))


def test_the_ledgers_files_go_with_the_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers, "SPILL", 10)
    monkeypatch.setattr(ledgers.tempfile, "tempdir", str(tmp_path))
    muster.simulate(nine_clients(), **args())
    assert list(tmp_path.iterdir()) == []


def test_two_runs_cannot_write_to_one_folder(tmp_path):
    fed = nine_clients()
    refused = []

    def second(row):
        with pytest.raises(muster.MusterError, match="in use by another run"):
            muster.simulate(fed, **args(rounds=1), checkpoint=tmp_path)
        refused.append(row["round"])

    muster.simulate(fed, **args(rounds=2), checkpoint=tmp_path, on_round=second)
    assert refused == [1, 2]
    muster.simulate(fed, **args(rounds=2), checkpoint=tmp_path, resume=True)


def test_another_module_of_the_same_shapes_is_refused(tmp_path):
    from torch import nn

    fed = nine_clients()
    width = fed.train.x.shape[1]

    def of(activation):
        return nn.Sequential(nn.Linear(width, 4), activation, nn.Linear(4, fed.classes))

    class Doubled(nn.Sequential):
        def forward(self, x):
            return 2 * super().forward(x)

        def __repr__(self):
            return nn.Sequential.__repr__(self).replace("Doubled", "Sequential")

    stopped(fed, tmp_path, model=of(nn.ReLU()), engine="loop")
    others = [of(nn.Tanh()), Doubled(*of(nn.ReLU()))]
    for other in others:
        with pytest.raises(muster.MusterError, match="was made with module="):
            muster.simulate(
                fed, **args(model=other, engine="loop"), checkpoint=tmp_path, resume=True
            )
    # The same module with other starting parameters is the same module.
    same = args(model=of(nn.ReLU()), engine="loop")
    assert muster.simulate(fed, **same, checkpoint=tmp_path, resume=True).complete


def test_a_checkpoint_that_lacks_what_is_remembered_now_is_refused(tmp_path, monkeypatch):
    fed, trusting = nine_clients(), {"method": M.fedalign(0.5, trust=True)}
    stopped(fed, tmp_path, **trusting)

    def more(n):
        return {TRUST: {**build_trust_state(n)[TRUST], "grudge": torch.zeros(n)}}

    monkeypatch.setattr(training_loop, "build_trust_state", more)
    with pytest.raises(muster.MusterError, match="has no trust/grudge: it is of another version"):
        muster.simulate(fed, **args(**trusting), checkpoint=tmp_path, resume=True)
