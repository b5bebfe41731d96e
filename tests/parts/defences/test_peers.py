"""Peers: liars lose their say before honest clients of their kind do, and harm is remembered."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

import muster
from muster.parts import Audit, Drift, LabelFlip, Liars
from muster.parts.defences.trust import (
    CROWDS,
    HARM,
    MOST_EFFECT,
    draw_replies,
    estimate_effects,
    find_crowds,
    find_kin,
)
from muster.parts.threats.adversary import draw_attackers
from muster.protocol import Offer
from muster.run.audit import TRUST, build_trust_state, find_harmless, update_history

M = muster.methods


def cosines(rows):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T


def test_liars_of_a_kind_are_left_out_and_its_honest_members_stay():
    """Four honest clients of a kind and three that turn their updates: against all at once every
    honest one has three for it and three against it."""
    draw = np.random.default_rng(0)
    kind, other = draw.normal(size=(2, 30))
    honest = kind + 0.5 * draw.normal(size=(4, 30))
    liars = -(kind + 0.5 * draw.normal(size=(3, 30)))
    rest = other + 0.5 * draw.normal(size=(5, 30))
    cosine = cosines(np.vstack([honest, liars, rest]))
    assert (
        find_kin(cosine, 0.999, np.zeros(12))[0].tolist() == [True] * 4 + [False] * 3 + [True] * 5
    )
    at_once = (np.where(cosine > 0.999, 0, cosine) ** 3).sum(1) >= 0
    assert not at_once[:4].all(), "which is why the least like goes first"


def test_where_as_many_lie_as_not_those_go_first_who_were_unlike_before():
    draw = np.random.default_rng(0)
    kind = draw.normal(size=30)
    honest = kind + 0.5 * draw.normal(size=(4, 30))
    cosine = cosines(np.vstack([honest, -honest[::-1]]))
    was = np.array([0.1] * 4 + [-0.1] * 4)
    kin, like = find_kin(cosine, 0.999, was)
    assert kin.tolist() == [True] * 4 + [False] * 4
    others = np.where(np.eye(4, dtype=bool), 0, cosine[:4, :4]) ** 3
    assert like[:4] == pytest.approx(others.sum(1)), "as like as those who are left say"
    assert find_kin(cosine, 0.999, -was)[0].tolist() == [False] * 4 + [True] * 4
    assert find_kin(cosines(honest), 0.999, np.full(4, -9.0))[0].all(), "who is like them is kin"


def test_copies_do_not_vouch_for_one_another():
    draw = np.random.default_rng(1)
    honest = draw.normal(size=30) + 0.5 * draw.normal(size=(5, 30))
    copied = np.vstack([honest, *[-honest[:1]] * 4])
    assert find_kin(cosines(copied), 0.999, np.zeros(9))[0].tolist() == [True] * 5 + [False] * 4


def test_effects_are_in_median_ones_and_nobodys_vote_is_too_large():
    words = np.full((4, 6), 0.5)
    words[1] += 0.1  # without the first: worse, so it helps
    words[2] -= 0.2  # without the second: better
    words[3] -= 0.1  # with the third, which is not in: better
    inside, alone, weight = np.array([True, True, False]), np.ones(3, bool), np.ones(6)
    assert estimate_effects(words, inside, alone, weight, 2.0) == pytest.approx([1.0, -2.0, 1.0])
    liar = words.copy()
    liar[1:, 0] = 0.5 - 1e6 * (words[1:, 0] - 0.5)
    said = estimate_effects(liar, inside, alone, weight, 2.0)
    assert said == pytest.approx([1.0, -2.0, 1.0]), "twice the median voice against five of one"
    assert estimate_effects(liar, inside, alone, weight, 1e9)[1] > 0, "unless it is let"
    unheard = words.copy()
    unheard[1, :3] = np.nan
    assert estimate_effects(unheard, inside, alone, weight, 2.0) is None, "half must speak"
    flat = np.full((4, 6), 0.5)
    flat[2] -= 1.0
    assert estimate_effects(flat, inside, alone, weight, 2.0)[1] == -MOST_EFFECT


def test_harm_is_remembered_and_forgiven():
    history, who = build_trust_state(5)[TRUST], np.array([0, 2, 4])
    kin = alone = np.ones(3, bool)
    assert find_harmless(history, who, kin, alone, 2.5).all(), "nothing is known yet"
    once = np.ones(3)
    history = update_history(history, who, 0.9, effect=np.array([1.0, -4.0, 1.0]), told=once)
    assert find_harmless(history, who, kin, alone, 2.5).tolist() == [True, False, True]
    assert history["told"].tolist() == [1, 0, 1, 0, 1]
    for _ in range(10):
        history = update_history(history, who, 0.9, effect=once, told=once)
    assert find_harmless(history, who, kin, alone, 2.5).all()
    assert build_trust_state(5)[TRUST]["effect"].sum() == 0, (
        "what is remembered is not changed in place"
    )


def test_who_is_tried_is_drawn_by_seed_round_and_client():
    some, clients = np.arange(30) % 3 > 0, np.arange(100, 130)
    offer = Offer(0, 4, 10, {"w": torch.zeros(1)})
    first = draw_replies(some, 8, offer, clients)
    assert len(first) == 8
    assert some[first].all()
    assert draw_replies(some, 99, offer, clients).tolist() == np.flatnonzero(some).tolist()
    assert draw_replies(some, 8, replace(offer, round=5), clients).tolist() != first.tolist()
    back = draw_replies(some[::-1], 8, offer, clients[::-1])
    assert sorted(clients[::-1][back]) == sorted(clients[first]), "whatever the order"


def test_crowds_are_the_largest_groups_of_very_similar_replies_and_share_nobody():
    draw = np.random.default_rng(0)
    centres = np.linalg.qr(draw.normal(size=(40, 6)))[0].T
    sizes = [2, 6, 3, 5, 4, 1]  # of each kind; a pair is no crowd
    kind = np.repeat(np.arange(6), sizes)
    rows = centres[kind] + 0.2 * draw.normal(size=(len(kind), 40)) / np.sqrt(40)
    everyone = np.ones(len(kind), bool)
    found = find_crowds(cosines(rows), everyone, 0.9)
    assert len(found) == CROWDS
    assert [set(kind[group]) for group in found] == [{1}, {3}, {4}]
    assert [int(group.sum()) for group in found] == [6, 5, 4]
    some = kind != 3
    assert [set(kind[g]) for g in find_crowds(cosines(rows), some, 0.9)] == [{1}, {4}, {2}]
    assert find_crowds(cosines(rows), kind == 0, 0.9) == []
    assert find_crowds(np.ones((0, 0)), np.zeros(0, bool), 0.9) == []


def test_colluders_who_drift_together_are_found_out_as_a_crowd():
    """None of them does much: without trying them together most of them count to the end."""
    attack = Liars(0.25, "anyone", Drift(0.25))

    def share(audit):
        done = muster.simulate(
            federation(), M.maxfl(trust=audit), muster.models.Softmax(), 14,
            muster.Local(steps=3, batch_size=32, lr=0.2), seed=1, attack=attack, evaluate_every=0,
        )  # fmt: skip
        liars = draw_attackers(federation(), attack, 1).tolist()
        late = done.clients.filter(pl.col("round") > 7)
        lied = pl.col("client").is_in(liars)
        return late.filter(lied)["admitted"].mean(), late.filter(~lied)["admitted"].mean()

    liars, honest = share(Audit())
    assert liars < 0.2
    assert honest > 0.85
    assert share(Audit(crowd=1.1))[0] > 0.6


def federation():
    made = muster.data.digits(clients=24, priority="all", seed=1)
    return replace(made, requirement=np.full(24, 0.9))


def test_flipped_labels_are_found_out_and_a_run_goes_on_to_the_same_bits(tmp_path):
    attack, rounds = Liars(0.2, "anyone", LabelFlip(0.2)), 14

    def run(engine="stacked", **more):
        return muster.simulate(
            federation(), M.maxfl(trust=Audit(tried=24)), muster.models.Softmax(), rounds,
            muster.Local(steps=3, batch_size=32, lr=0.2), seed=1, attack=attack, evaluate_every=0,
            engine=engine, processes=1, dtype="float64", **more,
        )  # fmt: skip

    whole = run(checkpoint=tmp_path, checkpoint_every=5)
    liars = draw_attackers(federation(), attack, 1)
    late = whole.clients.filter(pl.col("round") > 7)
    lied = pl.col("client").is_in(liars.tolist())
    assert late.filter(lied)["admitted"].mean() < 0.5
    assert late.filter(~lied)["admitted"].mean() > 0.85
    most = pl.col("bytes_down").max().over("round")
    harmful = whole.clients.with_columns(most=most).filter(pl.col("reason") == HARM)
    assert len(harmful) > 10
    assert (harmful["bytes_down"] == harmful["most"]).all(), "who is refused is still heard"
    for place in tmp_path.rglob("round-*"):
        if place.name > "round-00000010":
            shutil.rmtree(place)
    again = run(checkpoint=tmp_path, resume=True)
    for name, w in whole.weights.items():
        np.testing.assert_array_equal(again.weights[name], w)
    loop = run("loop")
    assert loop.clients["admitted"].to_list() == whole.clients["admitted"].to_list()
    for name, w in whole.weights.items():
        np.testing.assert_allclose(loop.weights[name], w, rtol=0, atol=1e-9)
