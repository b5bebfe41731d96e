"""The model judged after a few local steps of each client's own (MaxFL, Table 4)."""

from __future__ import annotations

import numpy as np
import pytest

import muster
import reference
from helpers import federation, layers_of, module_of, random_layers
from muster.local import Local
from muster.schedules import Linear

M = muster.methods
RHO = np.linspace(0.5, 1.2, 8)


@pytest.fixture(scope="module")
def fed():
    data, priority = reference.problem(5, clients=8)
    held, _ = reference.problem(6, clients=8)
    return federation(data, priority, test=held, requirement=RHO, unseen=[6, 7])


def go(fed, rounds, method=M.maxfl(), size=None, **more):
    local = Local(steps=2, batch_size=size, lr=Linear(0.6, 0.2))
    layers = random_layers((5, 4))
    return muster.simulate(fed, method, module_of(layers), rounds, local, dtype="float64", **more)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_appeal_and_accuracy_after_tuning_agree_with_numpy(fed, engine):
    data, _ = reference.problem(5, clients=8)
    held, _ = reference.problem(6, clients=8)
    run = go(fed, 3, engine=engine, tuned_steps=3)
    last = layers_of(run)
    own = [reference.local_sgd(last, [pair] * 3, 0.2) for pair in data]  # the last round's lr
    meets = np.array([reference.loss(m, *p) for m, p in zip(own, data, strict=True)]) < RHO
    accuracy = np.array([reference.accuracy(m, *p) for m, p in zip(own, held, strict=True)])
    row = run.rounds.row(-1, named=True)
    assert row["gm_appeal_tuned"] == pytest.approx(meets[:6].mean())
    assert row["gm_appeal_tuned_unseen"] == pytest.approx(meets[6:].mean())
    assert row["tuned_test_accuracy"] == pytest.approx(accuracy[:6].mean())
    assert row["tuned_test_accuracy_unseen"] == pytest.approx(accuracy[6:].mean())
    assert row["priority_tuned_test_accuracy"] == pytest.approx(fed.objective @ accuracy)
    assert row["gm_appeal_tuned"] > row["gm_appeal"], "tuning changed somebody's mind"


def test_training_does_not_notice(fed):
    """On minibatches, with clients who may leave: the same bits but for the five new columns."""
    how = {"size": 4, "participation": muster.Flexible(from_round=1)}
    plain, tuned = go(fed, 4, **how), go(fed, 4, tuned_steps=5, **how)
    new = set(tuned.rounds.columns) - set(plain.rounds.columns)
    twins = {f"{name}{of}" for name in ("gm_appeal_tuned", "tuned_test_accuracy")
             for of in ("", "_unseen")}  # fmt: skip
    assert new == twins | {"priority_tuned_test_accuracy"}
    assert plain.rounds.drop("seconds").equals(tuned.rounds.drop("seconds", *new))
    assert plain.clients.equals(tuned.clients)
    assert all(np.array_equal(plain.weights[n], w) for n, w in tuned.weights.items())
    again = go(fed, 4, tuned_steps=5, evaluate_every=0, **how)
    for name in new:
        assert again.rounds[name].to_list() == [None] * 3 + [tuned.rounds[name][-1]]


def test_a_resumed_run_is_tuned_the_same_way(fed, tmp_path):
    class Stop(Exception):
        pass

    def stop(row):
        if row["round"] == 3:
            raise Stop

    how = {"size": 4, "tuned_steps": 2, "checkpoint_every": 1}
    with pytest.raises(Stop):
        go(fed, 4, checkpoint=tmp_path, on_round=stop, **how)
    resumed = go(fed, 4, checkpoint=tmp_path, resume=True, **how)
    assert resumed.rounds.drop("seconds").equals(go(fed, 4, **how).rounds.drop("seconds"))
    with pytest.raises(muster.MusterError, match="made with tuned_steps=2, this run has tuned_st"):
        go(fed, 4, checkpoint=tmp_path, resume=True, **(how | {"tuned_steps": 0}))


def test_without_a_common_model_there_is_nothing_to_tune(fed):
    assert not [c for c in go(fed, 1, M.local(), tuned_steps=2).rounds.columns if "tuned" in c]
    with pytest.raises(muster.MusterError, match="tuned_steps: -1; allowed: whole numbers from 0"):
        go(fed, 1, tuned_steps=-1)
