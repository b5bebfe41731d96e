"""Steps: where the model goes, whatever the clients' optimizers made of theirs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import muster
from helpers import offer, roster_of
from muster.base import params
from muster.parts import ControlVariates, NormBound, Scaffold
from muster.parts.step import QFair, Step
from muster.protocol import Appraisal, Replies


@pytest.mark.parametrize("q", [0.0, 0.3, 1.0, 2.5])
def test_q_ffl_stays_between_the_model_and_the_mean_of_the_replies(q):
    """Clients may go any way and any distance, by any optimizer: G_k only shortens the step."""
    draw = np.random.default_rng(0)
    for size in (1e-6, 1e-2, 1.0, 1e3):
        models = {"w": torch.from_numpy(size * draw.normal(size=(5, 2)))}
        loss = draw.uniform(0.1, 4.0, 5)
        replies = Replies(roster_of([True] * 5), models, Appraisal(loss, loss), np.full(5, np.nan))
        for lr in (1e-4, 0.1, 3.0):
            made = replace(offer(), lr=lr, trainable=("w",), model={"w": torch.zeros(2).double()})
            moved = QFair(q)(made, replies, loss**q, {})[0]["w"]
            mean = params.mean(models, loss**q)["w"]
            share = float(moved @ mean / (mean @ mean))
            assert torch.allclose(moved, share * mean, rtol=1e-12, atol=0)
            assert 0 < share <= 1 + 1e-12
            assert (q > 0) or share == pytest.approx(1, abs=1e-12)


@dataclass(frozen=True)
class Forgetful(Step):
    """A median that says nothing but how replies are combined."""

    def __call__(self, offer, replies, weight, server):
        return {n: t.quantile(0.5, dim=0) for n, t in replies.models.items()}, server


@dataclass(frozen=True)
class Bare:
    """A step that is none of ours."""

    def __call__(self, offer, replies, weight, server):
        return offer.model, server


def test_a_step_that_forgets_what_it_needs_is_not_handed_a_mean():
    assert not Forgetful().only_mean
    assert Forgetful().memory({}, np.ones(3, bool)) == {}
    assert muster.Method("mine", step=Forgetful()).step == Forgetful()


def test_a_step_without_the_base_class_is_one_line_that_says_so():
    with pytest.raises(muster.MusterError, match=r"Bare has no only_mean; .* muster\.parts\.Step"):
        muster.Method("mine", step=Bare())


def test_a_step_that_hands_replies_on_keeps_and_takes_what_the_next_one_does():
    assert muster.Method("mine", solver=ControlVariates(), step=NormBound(then=Scaffold()))
    with pytest.raises(muster.MusterError, match="does not keep"):
        muster.Method("mine", solver=ControlVariates(), step=NormBound())
