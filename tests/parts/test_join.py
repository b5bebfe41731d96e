"""Join and admit, the two sides of one band: the client's decision and the server's."""

from __future__ import annotations

import numpy as np
import pytest

import muster
from helpers import nine_clients, offer, roster_of
from muster.local import Local
from muster.parts.admit import Band
from muster.parts.join import Aligned, Available, Straggling
from muster.protocol import Appraisal

M = muster.methods


@pytest.fixture
def fed():
    return nine_clients()


def test_strict_inequalities_on_both_sides():
    roster = roster_of([True, False, False, False, False])
    loss = np.array([9.0, 1.25, 1.2499, 0.75, 0.7501])
    appraisal = Appraisal(loss, np.zeros(5))
    joined = Aligned("loss")(offer(eps=0.25), roster, appraisal)
    assert joined.yes.tolist() == [True, False, True, True, True]
    assert joined.reason.tolist()[:3] == ["priority", "loss too high", "aligned"]
    extent = Band("loss")(offer(eps=0.25), roster, appraisal)
    assert extent.tolist() == [1.0, 0.0, 1.0, 0.0, 1.0]


def test_accuracy_turns_the_band_round():
    roster = roster_of([False] * 4)
    appraisal = Appraisal(np.zeros(4), np.array([0.25, 0.2501, 0.75, 0.7499]))
    assert Aligned("accuracy")(offer(eps=0.25), roster, appraisal).yes.tolist() == [
        False, True, True, True
    ]  # fmt: skip
    assert Band("accuracy")(offer(eps=0.25), roster, appraisal).tolist() == [0.0, 1.0, 0.0, 1.0]


def test_without_a_reference_nobody_else_joins():
    roster = roster_of([True, False])
    unknown = offer(loss=float("nan"))
    decision = Aligned()(unknown, roster, Appraisal(np.array([1.0, 1.0]), np.zeros(2)))
    assert decision.yes.tolist() == [True, False]


def test_availability_concerns_only_the_others_and_matches_its_probability():
    roster = roster_of([True] * 100 + [False] * 4000)
    n = len(roster)
    decision = Available(0.3)(offer(), roster, Appraisal.unknown(n))
    assert decision.yes[:100].all()
    assert abs(decision.yes[100:].mean() - 0.3) < 0.03
    assert set(decision.reason[~decision.yes]) == {"unavailable"}
    again = Available(0.3)(offer(round=1), roster, Appraisal.unknown(n))
    assert (again.yes != decision.yes).any()


def test_stragglers_come_once_in_every_period():
    roster = roster_of([False] * 50)
    rounds = [Straggling(4)(offer(round=t), roster, Appraisal.unknown(50)).yes for t in range(8)]
    assert (np.sum(rounds[:4], axis=0) == 1).all()
    assert np.array_equal(rounds[0], rounds[4])


@pytest.mark.parametrize("more", [{"availability": 0.5}, {"straggler_period": 2}])
def test_fedalign_with_unreliable_others_admits_a_subset(fed, more):
    args = {"model": muster.models.Softmax(), "rounds": 10, "local": Local(steps=2, lr=0.01)}
    always = muster.simulate(fed, M.fedalign(5.0, warmup=0), **args)
    some = muster.simulate(fed, M.fedalign(5.0, warmup=0, **more), **args)
    assert always.rounds["silent"].sum() == 0
    assert some.rounds["silent"].sum() > 0
    assert "unavailable" in some.clients["reason"].to_list()
    assert some.clients.filter("priority")["joined"].all()
