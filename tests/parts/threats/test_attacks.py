"""Byzantine clients: what they do, what the guard and the rules make of it, what they gain."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import polars as pl
import pytest
import torch

import muster
import reference
from helpers import federation, module_of, random_layers
from muster.base import registry
from muster.config import load
from muster.parts.threats import attacks
from muster.parts.threats.adversary import Adversary, draw_attackers
from muster.protocol import Appraisal, Offer

M = muster.methods
LOCAL = muster.Local(steps=3, batch_size=None, lr=0.2)


@pytest.fixture
def fed():
    data, priority = reference.problem(0, clients=10)
    return federation(data, priority, requirement=np.full(10, 1.2))


def go(fed, method, attack=None, rounds=8, **more):
    layers = random_layers((5, 4))
    return muster.simulate(
        fed, method, module_of(layers), rounds, LOCAL, dtype="float64", attack=attack, **more
    )


class Reports(attacks.Honest):
    """Attackers report this loss, and send a model far away."""

    def __init__(self, loss):
        self.loss, self.fraction = loss, 0.3

    def report(self, offer, appraisal, requirement):
        return Appraisal(np.full_like(appraisal.loss, self.loss), appraisal.accuracy)

    def send(self, offer, models, clients):
        return {n: t + 1e3 for n, t in models.items()}


REPORTING = [M.fedalign(0.3, warmup=0), M.qffl(2.0), M.afl()]  # clients tell their loss
CLAIMING = [M.maxfl()]  # clients tell q_k, worked out from it


def outsiders(fed, attack):
    return [int(k) for k in draw_attackers(fed, attack, 0) if not fed.priority[k]]


@pytest.mark.parametrize(
    ("method", "loss"),
    [(m, v) for m in REPORTING for v in (1e12, 1e6, np.nan, np.inf, -1.0)]
    + [(m, v) for m in CLAIMING for v in (1e12, 1e6, np.nan, np.inf)],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_a_forged_loss_of_1e12_or_nan_never_moves_the_model(fed, method, loss):
    """The liars send a model 1000 away from where it should be; it counts for nothing."""
    attack = Reports(loss)
    # What a priority client says counts whenever it can be true (Algorithm 1), with a warning.
    believed = method.name == "fedalign" and np.isfinite(loss) and loss >= 0
    with pytest.warns(muster.MusterWarning, match="priority client") if believed else nullcontext():
        run = go(fed, method, attack)
    assert believed or all(np.abs(w).max() < 50 for w in run.weights.values())
    liars = run.clients.filter(pl.col("client").is_in(outsiders(fed, attack)))
    assert liars["weight"].sum() == 0
    if method.reports or np.isnan(loss):
        assert not liars["admitted"].any()


def test_a_huge_loss_under_mwfed_is_no_more_than_a_requirement_not_met(fed):
    def share(loss):
        attack = Reports(loss)
        run = go(fed, M.mwfed(), attack, rounds=3)
        return run.clients.filter(pl.col("client").is_in(outsiders(fed, attack)))

    assert share(1e12)["weight"].to_list() == share(2.0)["weight"].to_list()
    assert share(1e12)["steps"].to_list() == share(2.0)["steps"].to_list()
    assert share(np.nan)["weight"].sum() == 0


def test_a_loss_that_is_high_for_everyone_is_believed():
    """Features of 1e4 make every loss enormous; nobody is refused for it."""
    data, priority = reference.problem(0)
    fed = federation([(x * 1e4, y) for x, y in data], priority)
    wide = go(fed, M.fedalign(np.inf, warmup=0))
    plain = go(fed, M.fedavg())
    assert all(np.array_equal(wide.weights[n], plain.weights[n]) for n in wide.weights)
    assert wide.rounds["refused"].sum() == 0


def test_models_that_would_break_the_server_are_refused(fed):
    class Sends(attacks.Honest):
        fraction = 0.2

        def __init__(self, value):
            self.value = value

        def send(self, offer, models, clients):
            return {n: torch.full_like(t, self.value) for n, t in models.items()}

    run = go(fed, M.fedadam(), Sends(1e24))
    assert run.rounds["refused"].to_list() == [2] * 8
    assert all(np.abs(w).max() < 50 for w in run.weights.values())
    from muster.parts.guard import guard
    from muster.protocol import Replies, Roster

    statistics = {"bn.running_var": torch.tensor([[1.0], [-1.0]])}
    offer = Offer(0, 0, 1, {"bn.running_var": torch.ones(1)})
    roster = Roster(np.arange(2), np.ones(2, bool), np.ones(2), np.ones(2))
    replies = Replies(roster, statistics, Appraisal.unknown(2), np.full(2, np.nan))
    assert guard(offer, replies, False).reason.tolist() == ["", "malformed: negative variance"]


def test_malformed_models_are_refused_whoever_sends_them(fed):
    class SendsNaN(attacks.Honest):
        fraction = 0.3

        def send(self, offer, models, clients):
            return {n: torch.full_like(t, float("nan")) for n, t in models.items()}

    for method in (M.fedavg(), M.scaffold(), M.maxfl(), M.fedadam()):
        run = go(fed, method, SendsNaN())
        assert all(np.isfinite(w).all() for w in run.weights.values())
        assert run.rounds["refused"].to_list() == [3] * 8
        reasons = run.clients.filter(~pl.col("admitted"))["reason"].unique().to_list()
        assert reasons == ["malformed: not finite"]


def test_the_papers_byzantine_clients_inflate_and_add_noise(fed):
    attack = attacks.InflateAndNoise(0.2, loss_factor=10.0, noise=1.0)
    offer = Offer(0, 3, 10, {"w": torch.zeros(1000, dtype=torch.float64)})
    said = attack.report(offer, Appraisal(np.array([0.3]), np.array([0.5])), np.array([1.0]))
    assert said.loss.tolist() == [3.0]
    models = {"w": torch.full((2, 1000), 0.5, dtype=torch.float64)}
    sent = attack.send(offer, models, np.array([4, 7]))
    noise = sent["w"] - models["w"]
    assert noise.std(dim=1).tolist() == pytest.approx([0.5, 0.5], rel=0.1)
    assert not torch.equal(noise[0], noise[1])
    again = attack.send(offer, models, np.array([4, 7]))
    assert torch.equal(sent["w"], again["w"]), "keyed"
    assert torch.equal(models["w"], torch.full((2, 1000), 0.5, dtype=torch.float64)), "untouched"


def test_scale_and_sign_flip():
    offer = Offer(0, 0, 1, {"w": torch.ones(2)})
    models = {"w": torch.tensor([[2.0, 0.0]])}
    far = attacks.ScaleUpdate(0.1, 10.0).send(offer, models, np.array([0]))
    assert far["w"].tolist() == [[11.0, -9.0]]
    back = attacks.sign_flip().send(offer, models, np.array([0]))
    assert back["w"].tolist() == [[0.0, 2.0]]


def test_label_flip_turns_only_the_attackers_labels(fed):
    flipped = attacks.LabelFlip(0.2).poison(fed, np.array([2, 5]))
    for k in range(10):
        before, after = fed.train.client(k)[1], flipped.train.client(k)[1]
        assert torch.equal(after, 3 - before if k in (2, 5) else before)


def test_forged_losses_win_what_they_are_made_to_win(fed):
    """Reporting F gets a misaligned client into FedALIGN; reporting rho_k gives MaxFL's largest
    weight. Both are what the rules promise; the ledger says what was gained."""
    attack = attacks.ForgeLoss(0.3)
    liars = set(draw_attackers(fed, attack, 0).tolist())
    run = go(fed, M.fedalign(0.1, warmup=0), attack)
    outside = [k for k in liars if not fed.priority[k]]
    rows = run.clients.filter(pl.col("client").is_in(outside))
    assert rows["admitted"].all()
    gains = run.attackers.filter(pl.col("client").is_in(outside))
    assert (gains["weight"] > 0).all()
    assert (gains["weight"] - gains["honest_weight"]).sum() > 0
    run = go(fed, M.maxfl(), attack)
    claims = run.clients.filter(pl.col("client").is_in(list(liars)))["claim"]
    assert claims.to_list() == [0.25] * len(claims)
    together = run.attackers.group_by("round").agg(pl.col("weight", "honest_weight").sum())
    assert (together["weight"] > together["honest_weight"]).all()


def test_honest_weights_are_those_of_an_honest_round(fed):
    attack = attacks.InflateAndNoise(0.3, loss_factor=5.0, noise=0.0)
    lying = go(fed, M.maxfl(), attack, rounds=1)
    honest = go(fed, M.maxfl(), rounds=1)
    who = draw_attackers(fed, attack, 0).tolist()
    expected = honest.clients.filter(pl.col("client").is_in(who))["weight"].to_list()
    assert lying.attackers["honest_weight"].to_list() == pytest.approx(expected)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_attackers_who_stay_are_in_the_pool_whatever_their_loss(fed, engine):
    """From round 3 on the model meets nobody's requirement: honest clients leave, and so do
    attackers unless they stay. Honesty would have taken them out of the pool."""
    strict = federation(
        reference.problem(0, clients=10)[0], fed.priority, requirement=np.full(10, 0.01)
    )
    free = {"participation": muster.Flexible(from_round=2), "engine": engine, "rounds": 4}
    leaving = go(strict, M.maxfl(), attacks.InflateAndNoise(0.2), **free)
    assert leaving.rounds["pool"].to_list() == [10, 10, 0, 0]
    attack = attacks.InflateAndNoise(0.2, stays=True)
    staying = go(strict, M.maxfl(), attack, **free)
    who = draw_attackers(strict, attack, 0).tolist()
    assert who == draw_attackers(strict, attacks.InflateAndNoise(0.2), 0).tolist()
    assert staying.rounds["pool"].to_list() == [10, 10, 2, 2]
    assert not set(staying.moves["client"]) & set(who)
    gains = staying.attackers.sort("round", "client")
    assert gains["client"].to_list() == who * 4
    late = gains.filter(pl.col("round") > 2)
    assert (late["weight"] > 0).all()
    assert late["honest_weight"].to_list() == [0.0] * 4
    assert (gains.filter(pl.col("round") <= 2)["honest_weight"] > 0).all()


def test_every_attack_has_an_option_to_stay():
    every = registry.kinds(attacks.Attack)
    assert len(every) >= 5
    for kind in every:
        chosen = load({"attack": {"kind": kind, "stays": True}, "data": "digits"})
        assert chosen.settings.attack.stays
        assert not load({"attack": kind, "data": "digits"}).settings.attack.stays


def test_an_inflated_loss_costs_weight_under_maxfl_and_buys_it_under_qffl(fed):
    attack = attacks.InflateAndNoise(0.3, loss_factor=10.0, noise=0.0)
    gain = {}
    for method in (M.maxfl(), M.qffl(1.0)):
        a = go(fed, method, attack, rounds=4).attackers
        gain[method.name] = (a["weight"] - a["honest_weight"]).mean()
    assert gain["maxfl"] < 0 < gain["qffl"]


def test_label_flip_spares_honest_clients_that_share_rows():
    shared = muster.data.Shards(per_client=2, shared=True)
    fed = muster.data.digits(clients=20, partition=shared)
    flipped = attacks.LabelFlip(0.1).poison(fed, np.array([0]))
    for k in range(20):
        before, after = fed.train.client(k), flipped.train.client(k)
        assert torch.equal(before[0], after[0])
        assert torch.equal(after[1], 9 - before[1] if k == 0 else before[1])


def test_attackers_are_a_seeded_share_of_those_who_take_part(fed):
    attack = attacks.sign_flip(0.2)
    assert len(draw_attackers(fed, attack, 0)) == 2
    assert draw_attackers(fed, attack, 0).tolist() == draw_attackers(fed, attack, 0).tolist()
    draws = {tuple(draw_attackers(fed, attack, s).tolist()) for s in range(20)}
    assert len(draws) > 10
    assert len(draw_attackers(fed, None, 0)) == 0
    assert len(draw_attackers(fed, attacks.sign_flip(0.0), 0)) == 0
    with pytest.raises(
        muster.MusterError,
        match=r"attack fraction: 1\.5; allowed: 0 \(nobody\), or more and below 1",
    ):
        attacks.sign_flip(1.5)


def test_no_attack_changes_nothing():
    adversary = Adversary()
    appraisal = Appraisal(np.ones(2), np.ones(2))
    models = {"w": torch.ones(2, 1)}
    offer = Offer(0, 0, 1, {"w": torch.zeros(1)})
    assert adversary.report(offer, np.arange(2), appraisal, np.ones(2)) is appraisal
    assert adversary.send(offer, np.arange(2), models) is models


def test_drift_is_one_direction_at_right_angles_to_the_honest_mean():
    draw = np.random.default_rng(0)
    shapes = {"a": (4, 5), "b": (6,), "bn.running_mean": (2,)}
    model = {n: torch.from_numpy(draw.normal(size=s)) for n, s in shapes.items()}
    honest = {n: t + torch.from_numpy(draw.normal(size=(5, *t.shape))) for n, t in model.items()}
    own = {n: t + torch.ones((3, *t.shape), dtype=t.dtype) for n, t in model.items()}

    def flat(models):
        return np.hstack([(models[n] - model[n]).reshape(len(models[n]), -1) for n in ("a", "b")])

    def sent(round, **more):
        offer = Offer(7, round, 9, model, trainable=("a", "b"))
        return muster.parts.Drift(0.3, **more).collude(offer, own, np.array([1, 4, 8]), honest)

    moved = flat(honest)
    mean, m = moved.mean(0), np.median(np.linalg.norm(moved, axis=1))
    exact = flat(sent(2, noise=0.0))
    assert np.linalg.norm(exact, axis=1) == pytest.approx([1.45 * m] * 3)
    assert exact @ mean == pytest.approx([0] * 3, abs=1e-9)
    np.testing.assert_allclose(flat(sent(5, noise=0.0)), exact)
    noisy = flat(sent(2))
    assert np.linalg.norm(noisy - exact, axis=1) == pytest.approx([0.07 * 1.45 * m] * 3)
    assert not np.allclose(flat(sent(3)), noisy), "the noise is of the round"
    unit = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    between = (unit @ unit.T)[np.triu_indices(3, 1)]
    assert ((between > 0.98) & (between < 0.999)).all(), "alike, and no copies"
    assert torch.equal(sent(2)["bn.running_mean"], own["bn.running_mean"])
    alone = muster.parts.Drift().send(Offer(7, 0, 9, model), own, np.array([1, 4, 8]))
    assert all(torch.isfinite(t).all() for t in alone.values())


def test_the_minority_attack_calls_the_rarest_class_the_commonest():
    rows = {0: [0] * 6 + [1] * 2, 1: [0] * 4 + [2] * 4, 2: [3] * 7 + [2], 3: [1] * 4 + [3] * 4}
    x = np.arange(32.0).reshape(4, 8, 1)
    data = [(x[k], np.array(y)) for k, y in rows.items()]
    fed = muster.Federation.from_arrays(train=data, priority=[0, 1])
    harmed = attacks.Minority(0.3, rows=0.5).poison(fed, np.array([2]))
    own, labels = harmed.train.client(2)
    # The priority clients have ten rows of class 0, two of 1, four of 2 and none of 3.
    rare = [x[0, 6, 0], x[0, 7, 0], *x[3, :4, 0]]
    expected = x[2, :, 0].copy()
    expected[::2] = rare[:4]
    np.testing.assert_array_equal(own[:, 0], expected)
    assert labels.tolist() == [0, 3, 0, 3, 0, 3, 0, 2]
    for k in (0, 1, 3):
        assert torch.equal(harmed.train.client(k)[0], fed.train.client(k)[0])
        assert torch.equal(harmed.train.client(k)[1], fed.train.client(k)[1])


def test_edge_cases_are_rows_turned_over():
    fed = muster.data.digits(clients=10)
    attack = attacks.EdgeCase(0.1, target=3, rows=0.25)
    turned = attack.poison(fed, np.array([4]))
    (x, y), (before, labels) = turned.train.client(4), fed.train.client(4)
    most = fed.train.x.max()
    np.testing.assert_allclose(x[::4], most - before[::4])
    assert (y[::4] == 3).all()
    rest = np.arange(len(y)) % 4 > 0
    assert torch.equal(x[rest], before[rest])
    assert torch.equal(y[rest], labels[rest])


@pytest.mark.parametrize(("start", "awake"), [(0.5, [5, 8]), (6, [6, 9]), (0, [0, 3, 6, 9])])
def test_sleepers_wrap_any_attack_for_a_share_of_the_run(start, awake):
    model = {"w": torch.zeros(3, dtype=torch.float64)}
    own = {"w": torch.ones((1, 3), dtype=torch.float64)}
    liars = attacks.Liars(0.1, then=muster.parts.Drift(), from_round=start, every=3)
    changed = []
    for t in range(10):
        sent = liars.collude(Offer(0, t, 10, model), own, np.array([0]), own)["w"]
        changed += [] if torch.equal(sent, own["w"]) else [t]
    assert changed == awake
    with pytest.raises(muster.MusterError, match=r"attack from_round: 1\.5; allowed"):
        attacks.Liars(from_round=1.5)
