"""Names of clients in every table that lists them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import muster
from muster.run.training_loop import add_names

CALLED = np.array(["north", "south", "[red]", "", "east", "west"])


@pytest.fixture(scope="module")
def fed():
    fed = muster.data.digits(clients=6, priority=2, partition=muster.data.Dirichlet(0.5))
    return muster.with_solo(fed, muster.models.Softmax(), 1, muster.Local(steps=20, lr=0.1))


def play(fed, **more):
    return muster.simulate(
        fed, muster.methods.maxfl(), muster.models.Softmax(), 5,
        muster.Local(steps=2, batch_size=8, lr=0.05), participation=muster.Flexible(from_round=2),
        attack=muster.attacks.InflateAndNoise(fraction=0.3), **more,
    )  # fmt: skip


def test_names_stand_next_to_numbers_everywhere(fed, tmp_path):
    run = play(replace(fed, names=CALLED))
    muster.save(run, tmp_path / "r")
    for found in (run, muster.load(tmp_path / "r")):
        for table in (found.final, found.clients, found.moves, found.attackers):
            assert len(table), "each has something to name"
            at = table.columns.index("client")
            assert table.columns[at + 1] == "name"
            assert table["name"].to_list() == CALLED[table["client"].to_numpy()].tolist()
    assert set(run.moves["move"]) >= {"left"}


def test_names_change_nothing_else(fed):
    plain, named = play(fed), play(replace(fed, names=CALLED))
    for table in ("final", "clients", "moves", "attackers"):
        assert "name" not in getattr(plain, table).columns
        assert getattr(named, table).drop("name").equals(getattr(plain, table))


def test_a_run_goes_on_with_its_names(fed, tmp_path):
    named = replace(fed, names=CALLED)
    whole = play(named)

    def stop(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(muster.Interrupted) as stopped:
        play(named, checkpoint=tmp_path, on_round=stop)
    assert stopped.value.run.clients["name"].null_count() == 0
    assert play(named, checkpoint=tmp_path, resume=True).clients.equals(whole.clients)


def test_numbers_are_no_names_and_nobody_has_none():
    table = pl.DataFrame({"round": [1, 2], "client": [-1, 1], "move": ["turned away", "left"]})
    assert add_names(table, None).columns == ["round", "client", "move"]
    assert add_names(table, np.array(["0", "1"])).columns == ["round", "client", "move"]
    named = add_names(table.clone(), np.array(["1", "0"]))
    assert named["name"].to_list() == [None, "0"]


def test_empty_tables_have_the_column(fed):
    run = muster.simulate(
        replace(fed, names=CALLED), muster.methods.fedavg(), muster.models.Softmax(), 1
    )
    assert run.moves.columns == ["round", "client", "name", "move"]
    assert run.moves.schema["name"] == pl.String


def test_the_majority_class_is_named(fed, capsys):
    from rich.console import Console

    from muster.report.tables import run_table

    labels = (*"abcdefghi", "[j]")
    run = muster.simulate(
        replace(fed, labels=labels), muster.methods.fedavg(), muster.models.Softmax(), 1
    )
    shares = fed.objective @ fed.train.label_shares(10)
    most = labels[int(shares.argmax())]
    assert (run.labels, run.facts["majority_class"]) == (labels, most)
    Console(width=100).print(run_table(run))
    assert f"always answering '{most}' " in capsys.readouterr().out


def test_warnings_call_clients_by_name():
    data = [(np.eye(4) * (1e4 if k == 1 else 1), [0, 1, 0, 1]) for k in range(6)]
    fed = muster.Federation.from_arrays(train=data, priority=[0, 1, 2, 3, 4])
    fed = replace(fed, names=CALLED)
    with pytest.warns(muster.MusterWarning, match=r"client 1 \(south\), a priority client"):
        muster.simulate(
            fed, muster.methods.fedalign(), muster.models.MLP((3,)), 2, muster.Local(steps=1)
        )
