"""Invitations: who is asked, how often, and with what share."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
import pytest
import torch

import muster
import reference
from helpers import admitted, federation, gap, layers_of, module_of, nine_clients, random_layers
from muster.config.dotted_keys import build_method
from muster.local import Local
from muster.parts.invite import Apart, Fraction, Full, Sample, WithReplacement
from muster.parts.step import Average, Estimate
from muster.protocol import Appraisal, Offer, Replies

M = muster.methods


@pytest.fixture
def fed():
    return nine_clients()


def no_losses(clients):
    raise AssertionError("this invitation needs no losses")


def test_full_sample_and_fraction(fed):
    pool = np.arange(9)
    assert Full()(fed, pool, 0, 0, no_losses).clients.tolist() == list(range(9))
    asked = Sample(4)(fed, pool, 0, 3, no_losses).clients
    assert len(set(asked.tolist())) == 4
    assert (np.diff(asked) > 0).all()
    assert len(Fraction(0.5)(fed, pool, 0, 0, no_losses)) == 5
    assert len(Sample(40)(fed, pool, 0, 0, no_losses)) == 9
    draws = {tuple(Sample(4)(fed, pool, 0, t, no_losses).clients.tolist()) for t in range(30)}
    assert len(draws) > 20


def test_sampling_is_uniform(fed):
    counts = np.zeros(9)
    for t in range(3000):
        counts[Sample(3)(fed, np.arange(9), 0, t, no_losses).clients] += 1
    assert np.abs(counts / 3000 - 1 / 3).max() < 0.04


def test_draws_with_replacement_average_as_eq_55(fed):
    data, priority = reference.problem(0, clients=9)
    layers = random_layers((5, 4))
    invite = WithReplacement(4)
    method = M.fedalign(1e9, warmup=0, invite=invite)
    local = Local(steps=2, batch_size=None, lr=0.1)
    run = muster.simulate(fed, method, module_of(layers), 1, local, dtype="float64")
    roster = invite(fed, np.arange(9), 0, 0, no_losses)
    total = sum(len(data[k][1]) for k in priority)
    share = dict(zip(roster.clients.tolist(), roster.share.tolist(), strict=True))
    drawn = {k: round(share[k] * 4) for k in priority if k in share}
    assert sum(drawn.values()) == 4
    others = [k for k in range(9) if k not in priority]
    p = {k: len(data[k][1]) / total for k in others}
    own = {k: reference.local_sgd(layers, [data[k]] * 2, 0.1) for k in range(9)}
    scale = 1 + sum(p.values())
    for j in range(2):
        expected = sum(c * own[k][0][j] for k, c in drawn.items()) / 4 / scale
        expected = expected + sum(p[k] / scale * own[k][0][j] for k in others)
        assert np.abs(layers_of(run)[0][j] - expected).max() < 1e-12


def test_draws_with_replacement_follow_the_data_shares(fed):
    total = np.zeros(9)
    for t in range(4000):
        roster = WithReplacement(2)(fed, np.arange(9), 0, t, no_losses)
        total[roster.clients] += roster.share
    assert np.abs(total[fed.priority] / 4000 - fed.share[fed.priority]).max() < 0.02


def test_a_fraction_of_all_clients_agrees_with_numpy(fed):
    """Supplement D.4: F(w) over all priority clients, the average over those asked."""
    data, priority = reference.problem(0, clients=9)
    layers = random_layers((5, 4))
    invite = Fraction(0.5)
    local = Local(steps=2, batch_size=None, lr=0.1)
    method = M.fedalign(0.4, warmup=0, invite=invite)
    run = muster.simulate(fed, method, module_of(layers), 8, local, dtype="float64")
    sizes = np.array([len(y) for _, y in data])
    p = sizes / sizes[priority].sum()
    for t in range(8):
        asked = invite(fed, np.arange(9), 0, t, no_losses).clients.tolist()
        own = [reference.loss(layers, *pair) for pair in data]
        f = sum(p[k] * own[k] for k in priority)
        let_in = [k for k in asked if k in priority or abs(own[k] - f) < 0.4]
        assert admitted(run)[t] == let_in
        if let_in:
            models = [reference.local_sgd(layers, [data[k]] * 2, 0.1) for k in let_in]
            layers = reference.average(models, [p[k] for k in let_in])
    assert gap(layers_of(run), layers) < 1e-9


# --- priority clients and the others, drawn apart ------------------------------------------------


def test_groups_are_drawn_apart_by_count_or_fraction(fed):
    pool = np.arange(9)
    for apart, of_three, of_six in (
        (Apart(2, 3), 2, 3),
        (Apart(0.3, 0.5), 1, 3),
        (Apart(0.01, 0.0), 1, 0),
        (Apart(7, 1.0), 3, 6),
        (Apart(1.0, 0), 3, 0),
    ):
        seen = set()
        for t in range(20):
            roster = apart(fed, pool, 0, t, no_losses)
            assert (np.diff(roster.clients) > 0).all()
            assert int(roster.priority.sum()) == of_three
            assert int((~roster.priority).sum()) == of_six <= apart.max_clients(9)
            group = np.where(roster.priority, 3 / of_three, 6 / max(of_six, 1))
            assert np.allclose(roster.share, fed.share[roster.clients] * group)
            assert np.array_equal(roster.full, roster.share)
            seen.add(tuple(roster.clients.tolist()))
        assert (len(seen) > 1) == (of_three < 3 or 0 < of_six < 6)


def test_each_of_a_group_is_drawn_as_often_as_another(fed):
    counts = np.zeros(9)
    for t in range(1000):
        counts[Apart(1, 2)(fed, np.arange(9), 0, t, no_losses).clients] += 1
    assert np.abs(counts / 1000 - 1 / 3).max() < 0.06


def test_every_method_asks_the_same_priority_clients_in_every_round(fed):
    """In warm-up and after it, with others or without: what fig. 8 compares."""
    invite = Apart(0.4, 0.5)
    chosen = {}
    for method in (
        M.fedavg_priority(invite), M.fedalign(5.0, warmup=3, invite=invite),
        M.fedavg(invite), M.fedprox(0.1, invite=invite, warmup=2),
    ):  # fmt: skip
        run = muster.simulate(fed, method, muster.models.Softmax(), 8, seed=4)
        asked = run.clients.group_by("round", "priority").agg(pl.col("client").sort())
        chosen[method.name] = asked.filter("priority").sort("round")["client"].to_list()
        others = asked.filter(~pl.col("priority"))["round"].sort().to_list()
        first = {"fedavg_priority": 9, "fedalign": 4, "fedavg": 1, "fedprox": 3}[method.name]
        assert others == list(range(first, 9))
    assert len({str(rounds) for rounds in chosen.values()}) == 1
    assert all(len(clients) == 1 for clients in chosen["fedalign"])
    assert len({tuple(clients) for clients in chosen["fedalign"]}) == 3


def full_and_partial(data, step):
    """One round of everyone, and one for each subset of 2 of 4 priority clients plus all others."""
    fed = federation(data, [0, 1, 2, 3])
    layers = random_layers((5, 4))
    local = Local(steps=2, batch_size=None, lr=0.1)

    def one(invite, seed):
        method = replace(M.fedalign(0.25, warmup=0, invite=invite), step=step)
        return muster.simulate(fed, method, module_of(layers), 1, local, seed, dtype="float64")

    found = {}
    for seed in range(200):
        asked = Apart(2, 1.0)(fed, np.arange(9), seed, 0, no_losses).clients
        chosen = tuple(asked[asked < 4].tolist())
        if chosen not in found:
            found[chosen] = layers_of(one(Apart(2, 1.0), seed))
    assert sorted(found) == list(combinations(range(4), 2)), "every subset"
    everyone = one(Full(), 0)
    assert 0 < everyone.rounds["admitted_nonpriority"][0] < 5, "some others are aligned"
    return layers_of(everyone), reference.average(list(found.values()), [1.0] * 6)


def test_k_of_p_without_replacement_is_an_unbiased_estimate_of_the_full_round():
    """A.4: over all subsets of the priority clients the mean of w' is the full round's w'."""
    data, _ = reference.problem(0, clients=9)
    full, mean = full_and_partial(data, Estimate())
    assert gap(full, mean) < 1e-12
    # An average divides by what the weights of those drawn sum to, which differs between subsets.
    full, mean = full_and_partial(data, Average())
    assert gap(full, mean) > 1e-4


def test_with_clients_of_one_size_the_average_is_unbiased_too():
    data = [(x[:5], y[:5]) for x, y in reference.problem(0, clients=9)[0]]
    full, mean = full_and_partial(data, Average())
    assert gap(full, mean) < 1e-12


def every_draw(fed, invite, moves, aligned):
    """`Estimate`'s move w' - w and its 1 + S, for every subset that an invitation may ask."""
    found = {}
    start = {"w": torch.zeros(moves.shape[1], dtype=torch.float64)}
    for seed in range(3000):
        roster = invite(fed, np.arange(fed.n), seed, 0, no_losses)
        if tuple(roster.clients) in found:
            continue
        let_in = roster.pick(roster.priority | aligned[roster.clients])
        models = {"w": torch.from_numpy(moves[let_in.clients])}
        unknown = np.full(len(let_in), np.nan)
        replies = Replies(let_in, models, Appraisal(unknown, unknown), unknown)
        made = Offer(0, 0, 1, start, trainable=("w",))
        weight = let_in.weight(np.ones(len(let_in)))
        moved = Estimate()(made, replies, weight, {})[0]["w"].numpy()
        beyond = (weight * ~let_in.priority).sum()
        found[tuple(roster.clients)] = moved, 1 + beyond
    return [np.array(values) for values in zip(*found.values(), strict=True)]


def test_with_some_of_the_others_the_sum_is_unbiased_and_the_round_is_a_ratio(fed):
    """Every draw is as likely as another, so means over all of them are exact."""
    draw = np.random.default_rng(0)
    moves = 0.3 + draw.normal(size=(9, 4))  # what each client's training adds to w
    aligned = np.arange(9) % 3 != 2  # those of the others that are admitted
    (full,), (theta,) = every_draw(fed, Full(), moves, aligned)
    bias = {}
    for m, draws in ((2, 3 * 15), (3, 3 * 20), (5, 3 * 6), (6, 3)):
        moved, beyond = every_draw(fed, Apart(2, m), moves, aligned)
        assert len(moved) == draws, "every subset"
        assert beyond.mean() == pytest.approx(theta, abs=1e-12)
        assert np.abs((moved * beyond[:, None]).mean(0) - full * theta).max() < 1e-12
        bias[m] = float(np.linalg.norm(moved.mean(0) - full) / np.linalg.norm(full))
    assert bias[6] < 1e-12
    slope = [bias[m] / (1 / m - 1 / 6) for m in (2, 3, 5)]
    assert min(slope) > 0.5, "there is one"
    assert max(slope) / min(slope) < 1.5


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_the_estimate_agrees_with_numpy(fed, engine):
    """w + (|P|/K sum_S p_k (w_k - w) + sum_others p_k (w_k - w)) / (1 + S)."""
    data, priority = reference.problem(0, clients=9)
    layers = random_layers((5, 4))
    method = replace(M.fedalign(1e9, warmup=0, invite=Apart(2, 1.0)), step=Estimate(0.7))
    local = Local(steps=2, batch_size=None, lr=0.1)
    run = muster.simulate(fed, method, module_of(layers), 1, local, dtype="float64", engine=engine)
    total = sum(len(data[k][1]) for k in priority)
    p = {k: len(data[k][1]) / total for k in range(9)}
    asked = run.clients["client"].to_list()
    own = {k: reference.local_sgd(layers, [data[k]] * 2, 0.1) for k in asked}
    s = sum(p[k] for k in range(9) if k not in priority)
    for j in range(2):
        start = layers[0][j]
        move = sum(p[k] * (3 / 2 if k in priority else 1) * (own[k][0][j] - start) for k in asked)
        assert np.abs(layers_of(run)[0][j] - (start + 0.7 * move / (1 + s))).max() < 1e-12
    assert run.rounds["theta"][0] == pytest.approx(1 / (1 + s))


def test_counts_and_fractions_that_cannot_be_are_refused():
    for wrong in ({"priority": 0}, {"priority": 0.0}, {"priority": 1.5}, {"priority": True}):
        with pytest.raises(muster.MusterError, match=r"invite priority: .*; allowed: a whole"):
            Apart(**wrong)
    for wrong in (-1, 1.1, float("nan"), "all"):
        with pytest.raises(muster.MusterError, match=r"invite others: .* a fraction from 0.0 to 1"):
            Apart(1, wrong)
    table = {"name": "fedalign", "invite": {"kind": "apart", "priority": 2, "others": 1.0}}
    assert build_method(table).invite == Apart(2, 1.0)
    assert isinstance(build_method(table).invite.priority, int)


def test_reference_on_the_asked_needs_only_them(fed):
    args = {"model": muster.models.Softmax(), "rounds": 12, "evaluate_every": 0}
    method = M.fedalign(0.5, warmup=0, invite=Sample(3), reference="asked")
    run = muster.simulate(fed, method, **args)
    for row in run.rounds.iter_rows(named=True):
        asked = run.clients.filter(run.clients["round"] == row["round"])
        members = asked.filter("priority")
        if len(members) == 0:
            assert row["reference_loss"] is None
            assert row["skipped"]
            continue
        weight = fed.share[members["client"].to_numpy()]
        expected = float(weight @ members["loss"].to_numpy() / weight.sum())
        assert row["reference_loss"] == pytest.approx(expected, rel=1e-6)
