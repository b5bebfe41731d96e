"""Sketches: products survive the projection, and only helpers with weight send a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

import muster
from muster.methods import assist
from muster.parts.defences.trust import TURNED
from muster.parts.sketch import as_model, project
from muster.parts.threats.adversary import draw_attackers
from muster.protocol import Offer
from softmax_clients import clients_of, final


def offer(t, count):
    return Offer(7, t, 1000, {"w": torch.zeros(count)}, trainable=("w",))


def test_products_survive_on_average_within_the_stated_error():
    draw = np.random.default_rng(0)
    size, x = 64, torch.from_numpy(draw.normal(size=(2, 500)))
    sketches = [project({"w": x}, offer(t, 500), size) for t in range(400)]
    product = np.array([float(s[0] @ s[1]) for s in sketches])
    exact, most = float(x[0] @ x[1]), (2 / size) ** 0.5 * float(x[0].norm() * x[1].norm())
    assert product.mean() == pytest.approx(exact, abs=4 * most / 20)
    assert product.std() < most * 1.1


def test_it_is_linear_and_the_same_for_every_client():
    x = torch.randn(3, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    each = torch.cat([project({"w": x[i : i + 1]}, offer(3, 40), 16) for i in range(3)])
    assert torch.equal(each, project({"w": x}, offer(3, 40), 16))
    whole = project({"w": x.sum(0, keepdim=True)}, offer(3, 40), 16)
    torch.testing.assert_close(each.sum(0, keepdim=True), whole)


def test_only_helpers_with_weight_send_a_model():
    fed = clients_of(2, (12, 40, 40, 40, 40, 40), (0,))
    run = final(fed, assist(sketch=16), rounds=10)
    plain = final(fed, assist(), rounds=10)
    model = plain.clients["bytes_up"].max() - 8  # and the claim
    helpers = run.clients.filter(~pl.col("priority"))
    counts = helpers.with_columns(counted=pl.col("weight") > 0)
    without = counts.filter(~pl.col("counted"))
    assert len(without)
    # Whose sketch gave no weight sent the sketch and a claim; who sent a model may still get none.
    assert set(without["bytes_up"]) <= {16 * 4 + 8, 16 * 4 + 8 + model}
    assert (without["bytes_up"] == 16 * 4 + 8).any()
    assert (counts.filter("counted")["bytes_up"] == 16 * 4 + 8 + model).all()
    assert run.rounds["bytes_up"].sum() < plain.rounds["bytes_up"].sum() + 10 * 5 * 16 * 4
    refused = without.filter(~pl.col("admitted"))["reason"].unique().to_list()
    assert refused == ["no evidence that it helps"]


def test_a_sketch_as_long_as_the_model_changes_hardly_anything():
    fed = clients_of(2, (12, 40, 40, 40), (0,))
    whole, sketched = (final(fed, assist(sketch=s), rounds=8) for s in (0, 4096))
    for name, t in whole.weights.items():
        assert sketched.weights[name] == pytest.approx(t, abs=0.02)


def test_each_layer_has_its_part_of_the_sketch():
    draw = np.random.default_rng(1)
    x = {"0.weight": torch.from_numpy(draw.normal(size=(2, 300))) * 1e6,
         "2.weight": torch.from_numpy(draw.normal(size=(2, 40)))}  # fmt: skip
    shown = Offer(7, 3, 1000, {k: t[0] for k, t in x.items()}, trainable=tuple(x))
    sketch = as_model(project(x, shown, 201), shown)
    assert {k: t.shape[1] for k, t in sketch.items()} == {"0.sketch": 100, "2.sketch": 101}
    alone = replace(shown, trainable=("2.weight",))
    norm = float(x["2.weight"][0].norm())
    assert float(sketch["2.sketch"][0].norm()) == pytest.approx(norm, rel=0.3)  # no 1e6 in it
    assert project(x, alone, 201).shape == (2, 201)
    with pytest.raises(muster.MusterError, match="sketch: 1 numbers for 2 layers; at least one"):
        project(x, shown, 1)


def test_a_long_sketch_of_a_network_changes_hardly_anything():
    fed = clients_of(2, (12, 40, 40, 40), (0,))
    local = muster.Local(steps=5, batch_size=None, lr=0.1)
    whole, sketched = (
        muster.simulate(fed, assist(sketch=s), muster.models.MLP((8,)), 6, local, evaluate_every=0)
        for s in (0, 20_000)
    )
    for name, t in whole.weights.items():
        assert sketched.weights[name] == pytest.approx(t, abs=0.02)


def test_a_priority_client_turned_round_is_found_by_sketches_too():
    fed = muster.data.digits(clients=30, priority=5, seed=1)
    liar = muster.parts.Liars(1 / 30, "priority", muster.parts.ScaleUpdate(0.1, -3.0))
    (lying,) = draw_attackers(fed, liar, 1)
    run = muster.simulate(
        fed, muster.methods.assist(sketch=256, trust=True), muster.models.Softmax(), 4,
        muster.Local(steps=5, batch_size=32, lr=0.1), seed=1, attack=liar, evaluate_every=0,
    )  # fmt: skip
    refused = run.clients.filter(run.clients["reason"] == TURNED)
    assert set(refused["client"]) == {lying}
    assert len(refused) >= 3


def test_what_it_does_not_go_with_is_one_line():
    with pytest.raises(muster.MusterError, match="sketch: not with several models side by side"):
        assist("crossfit", sketch=100)
    with pytest.raises(muster.MusterError, match="sketch needs weights from distances alone"):
        muster.Method("x", sketch=100)
    with pytest.raises(muster.MusterError, match="sketch: 3"):
        assist(sketch=3)
