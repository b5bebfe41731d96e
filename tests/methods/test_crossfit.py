"""assist by cross-fitting, its guard, and interpolation: whole runs against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import muster
from muster.methods import assist, fedavg, fedavg_priority, interpolation
from muster.parts.evidence import FREEDOMS, CrossFit, choose_freedom, solve
from muster.parts.tracks import AgainstAlone
from softmax_clients import (
    LR,
    STEPS,
    clients_of,
    descend,
    final,
    folds_of,
    helper_weight,
    loss,
    replies,
)

F = 4
FULL = {"local": muster.Local(steps=STEPS, batch_size=None, lr=LR), "dtype": "float64"}


def flat(weights):
    return np.concatenate([t.ravel() for t in weights.values()])


class Numpy:
    """Cross-fitting over rounds of full-batch softmax regression, written out."""

    freedom = "shrunk"

    def __init__(self, fed, priority):
        self.x, self.y = fed.train.x.double().numpy(), fed.train.y.numpy()
        self.n, self.priority = fed.n, priority
        self.rows = [fed.train.positions(np.array([k])) for k in range(fed.n)]
        self.folds = {k: folds_of(fed, k, "cross-fit", F) for k in priority}
        self.p = fed.population.share[: len(priority)]
        self.p = self.p / self.p.sum()
        self.full = fed.population.share[len(priority) :]
        self.w = np.zeros((F + 1, 3 * 4 + 3))
        m = fed.n - len(priority)
        self.gram, self.gain = np.zeros((F, m, m)), np.zeros((F, m))

    def train(self, w, rows):
        return descend(self.x[rows], self.y[rows], start=w)

    def round(self):
        now, target, stacks = 0.0, 0.0, []
        for f in range(F + 1):
            mine = [
                np.concatenate([r for g, r in enumerate(self.folds[k]) if g != f - 1])
                for k in self.priority
            ]
            m_p = self.p @ np.array([self.train(self.w[f], r) for r in mine])
            others = np.array([self.train(self.w[f], r) for r in self.rows[len(self.priority) :]])
            d = others - m_p
            stacks.append((m_p, d))
            if f:
                v = self.p @ np.array(
                    [self.train(self.w[f], self.folds[k][f - 1]) for k in self.priority]
                )
                self.gram[f - 1] += d @ d.T
                self.gain[f - 1] += d @ (v - m_p)
                now, target = now + d @ d.T, target + ((v - m_p) ** 2).sum()
        share = self.full / self.full.sum()
        a = solve(self.freedom, self.gram.sum(0), self.gain.sum(0), share)
        if (pull := a @ now @ a) > target:
            a = a * np.sqrt(target / pull)
        self.w = np.array([m_p + a @ d for m_p, d in stacks])
        return a

    def mine(self, f):
        """Rows of the one priority client without fold f."""
        return np.concatenate([r for g, r in enumerate(self.folds[0]) if g != f - 1])

    def round_alone(self):
        self.w = np.array([self.train(self.w[f], self.mine(f)) for f in range(F + 1)])

    def round_all(self):
        share = np.append(1.0, self.full)
        for f in range(F + 1):
            rows = [self.mine(f), *self.rows[1:]]
            self.w[f] = share @ [self.train(self.w[f], r) for r in rows] / share.sum()


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_three_rounds_are_those_of_numpy(engine):
    fed = clients_of(3, (14, 9, 40, 40, 30))
    oracle = Numpy(fed, (0, 1))
    expected = [oracle.round() for _ in range(3)]
    run = muster.simulate(
        fed, assist("crossfit"), muster.models.Softmax(), rounds=3, engine=engine, **FULL
    )
    table = run.clients.filter(~pl.col("priority")).sort("round", "client")
    assert np.array(expected).any()
    assert table["weight"].to_numpy() == pytest.approx(np.ravel(expected), abs=1e-9)
    assert sorted(flat(run.weights)) == pytest.approx(sorted(oracle.w[0]), abs=1e-12)


def test_a_priority_client_that_helpers_replace_is_not_refused():
    """Where helpers' weights sum to 1 the priority reply weighs 0; it is admitted all the same."""
    fed = clients_of(3, (14, 40, 40), (0,), shift=[0, 1.0, 1.0])
    run = muster.simulate(fed, assist("crossfit"), muster.models.Softmax(), rounds=4, **FULL)
    own = run.clients.filter(pl.col("priority"))
    assert (own["weight"] == 0).any()
    assert own["admitted"].all()


def test_its_cost_is_in_the_ledger():
    """Helpers train and send F + 1 models; a priority client F more, on the folds."""
    fed = clients_of(3, (14, 9, 40))
    run = muster.simulate(fed, assist("crossfit"), muster.models.Softmax(), rounds=1, **FULL)
    once = muster.simulate(fed, fedavg(), muster.models.Softmax(), rounds=1, **FULL)
    table, plain = run.clients.sort("client"), once.clients.sort("client")
    times = np.array([2 * F + 1, 2 * F + 1, F + 1])
    assert (table["steps"].to_numpy() == times * STEPS).all()
    assert (table["bytes_up"].to_numpy() == times * plain["bytes_up"].to_numpy()).all()
    assert (table["bytes_down"].to_numpy() == (F + 1) * plain["bytes_down"].to_numpy()).all()
    guarded = muster.simulate(
        fed, assist("crossfit", guard=True), muster.models.Softmax(), rounds=1, **FULL
    ).clients.sort("client")
    assert (guarded["steps"].to_numpy() == [(3 * F + 2) * STEPS] * 2 + [(F + 1) * STEPS]).all()


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_weights_of_each_freedom_are_optimal_for_it(freedom):
    draw = np.random.default_rng(5)
    d, t = draw.normal(size=(4, 6)), draw.normal(size=6)
    gram, gain, share = d @ d.T, d @ t, np.array([0.1, 0.2, 0.3, 0.4])
    a = solve(freedom, gram, gain, share)
    assert (a >= 0).all()
    assert a.sum() <= 1 + 1e-12

    def risk(a):
        return a @ gram @ a - 2 * gain @ a

    if freedom == "none":
        assert not a.any()
    elif freedom == "one":
        b = np.linspace(0, 1, 10001)
        assert risk(a) <= min(risk(one * share) for one in b) + 1e-12
    else:
        one, ridge = solve("one", gram, gain, share), np.trace(gram) / 4

        def penalized(a):
            return risk(a) + (ridge * ((a - one) ** 2).sum() if freedom == "shrunk" else 0.0)

        others = draw.dirichlet(np.ones(5), 20000)[:, :4]
        assert penalized(a) <= min(map(penalized, others)) + 1e-9


def test_freedom_is_chosen_by_risk_out_of_fold():
    """Helpers that are noise: nobody counts. One good helper among bad ones: one weight each."""
    draw = np.random.default_rng(1)
    share = np.full(4, 0.25)
    noise = draw.normal(size=(F, 4, 50))
    target = draw.normal(size=(F, 50))
    gram = noise @ noise.transpose(0, 2, 1)
    assert choose_freedom(gram, -np.abs(np.einsum("fhd,fd->fh", noise, target)), share) == "none"
    good = noise.copy() * 3
    good[:, 0] = target + 0.1 * noise[:, 0]
    gram = good @ good.transpose(0, 2, 1)
    gain = np.einsum("fhd,fd->fh", good, target)
    assert choose_freedom(gram, gain, share) in ("each", "shrunk")
    assert solve("each", gram.sum(0), gain.sum(0), share).argmax() == 0


def test_evidence_is_unbiased():
    """Gaussian clients: c_f is, in the mean, what unlimited rows of the objective would show."""
    draw = np.random.default_rng(0)
    mu, helper = np.array([1.0, -0.5, 0.3]), np.array([0.6, 0.1, 0.2])
    rows = mu + draw.normal(size=(20000, 8, 3))
    h = helper + draw.normal(size=(20000, 3)) / 5
    c, truth = [], []
    for f in range(F):
        fold, rest = rows[:, f::F].mean(1), np.delete(rows, np.s_[f::F], 1).mean(1)
        c.extend(((h - rest) * (fold - rest)).sum(1))
        truth.extend(((h - rest) * (mu - rest)).sum(1))
    assert np.mean(c) == pytest.approx(np.mean(truth), abs=4 * np.std(c) / len(c) ** 0.5)


def test_helpers_of_the_same_kind_count_and_those_with_permuted_labels_hardly():
    same = clients_of(1, (16, 400, 400), (0,))
    draw = np.random.default_rng(3)
    wrong = [same.train.client(0)] + [
        (x, draw.permutation(y)) for x, y in map(same.train.client, (1, 2))
    ]
    far = muster.Federation.from_arrays(train=wrong, priority=[0])
    near, away = (helper_weight(final(fed, assist("crossfit"))) for fed in (same, far))
    assert near > 0.5
    assert away < near / 4


@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e6]))
@settings(max_examples=40, deadline=None)
def test_a_round_pulls_no_further_than_unseen_rows_do(seed, far):
    """Helpers that earned any trust before, and send anything now: |pull|^2 <= |D_V - D_P|^2, in
    the mean over folds."""
    draw = np.random.default_rng(seed)
    n, rule = 4, CrossFit()
    earned = draw.normal(size=(F, n, 6))
    evidence = rule.memory(n)["evidence"]
    evidence["gram"][:, 1:, 1:] = torch.from_numpy(earned @ earned.transpose(0, 2, 1))[:, 1:, 1:]
    evidence["gain"][:, 1:] = torch.from_numpy(10 * draw.random((F, n)))[:, 1:]
    models = draw.normal(size=(n, F + 1, 6))
    models[1:] *= far
    fold = draw.normal(size=(n, F, 6))
    sent = replies(models, [True, False, False, False], [np.nan] * n)
    sent = replace(sent, extra={"validation": {"w": torch.from_numpy(fold)}})
    server = rule.learn(sent, np.ones(n), {"evidence": evidence})
    weight = rule(sent, np.ones(n), server)
    assert weight.sum() == pytest.approx(1)
    pull = np.einsum("k,kfd->fd", weight, models)[1:] - models[0, 1:]
    assert (pull**2).sum() <= ((fold[0] - models[0, 1:]) ** 2).sum() * (1 + 1e-9)


@pytest.mark.parametrize("method", [interpolation(), assist("crossfit", guard=True)])
def test_what_is_deployed_is_chosen_by_unseen_rows(method):
    """Both rules against numpy: losses on each fold of the models that never saw it."""
    fed = clients_of(3, (14, 40, 40), (0,), shift=[0, 1.0, 1.0])
    helped, alone = Numpy(fed, (0,)), Numpy(fed, (0,))
    x, y = helped.x, helped.y
    shares = []
    for _ in range(4):
        gain = np.array(
            [
                [
                    loss(alone.w[f], x[r], y[r])
                    - loss(alone.w[f] + b * (helped.w[f] - alone.w[f]), x[r], y[r])
                    for b in method.deploy.points
                ]
                for f, r in enumerate(helped.folds[0], 1)
            ]
        )
        shares.append(method.deploy(gain.mean(0), gain.std(0, ddof=1) / F**0.5))
        alone.round_alone()
        helped.round() if method.name == "assist" else helped.round_all()
    run = muster.simulate(fed, method, muster.models.Softmax(), rounds=4, **FULL)
    b = shares[-1]
    assert len(set(shares)) > 1
    product = alone.w[0] + b * (helped.w[0] - alone.w[0])
    assert sorted(flat(run.weights)) == pytest.approx(sorted(product), abs=1e-9)


def test_help_that_harms_is_not_deployed():
    """Everyone's rows but the priority client's have other labels: FedAvg on all is worse than
    alone, and what `interpolation` and the guard deploy is not."""
    fed = clients_of(1, (40, 200, 200), (0,))
    draw = np.random.default_rng(0)
    wrong = [fed.train.client(0)] + [
        (x, draw.permutation(y)) for x, y in map(fed.train.client, (1, 2))
    ]
    fed = muster.Federation.from_arrays(train=wrong, test=[wrong[0]] * 3, priority=[0])
    losses = {
        name: final(fed, m, evaluate_every=0).rounds["loss"][-1]
        for name, m in {
            "alone": fedavg_priority(),
            "all": fedavg(),
            "between": interpolation(),
            "guard": assist("crossfit", guard=True),
        }.items()
    }
    assert losses["all"] > 1.5 * losses["alone"]
    assert losses["between"] < 1.1 * losses["alone"]
    assert losses["guard"] < 1.1 * losses["alone"]


@pytest.mark.parametrize("guard", [False, True])
def test_any_solver_optimizer_and_module_and_resume(tmp_path, guard):
    """SCAFFOLD's variates and a kept momentum have a state in every track; resumed alike."""
    fed = clients_of(7, (12, 9, 30), (0, 1))
    momentum = muster.optimizers.sgd(momentum=0.9, keep=True)
    scaffold = replace(
        assist("crossfit", guard=guard),
        solver=muster.parts.ControlVariates(),
        step=muster.parts.Scaffold(),
    )
    for chosen, local in (
        (scaffold, muster.Local(steps=4, batch_size=8, lr=0.1)),
        (
            assist("crossfit", guard),
            muster.Local(steps=2, batch_size=4, lr=0.05, optimizer=momentum),
        ),
    ):
        arguments = {"model": muster.models.MLP((8,)), "rounds": 4, "local": local,
                     "evaluate_every": 0}  # fmt: skip
        runs = [
            muster.simulate(fed, chosen, engine=engine, **arguments, dtype="float64")
            for engine in ("stacked", "loop")
        ]
        folder = tmp_path / type(chosen.step).__name__
        muster.simulate(
            fed, chosen, **arguments, checkpoint=folder, checkpoint_every=3, dtype="float64"
        )
        again = muster.simulate(
            fed, chosen, **arguments, checkpoint=folder, resume=True, dtype="float64"
        )
        for name, t in runs[0].weights.items():
            assert runs[1].weights[name] == pytest.approx(t, abs=1e-9)
            assert (again.weights[name] == t).all()


def test_partial_participation_and_importance():
    """Absent helpers add nothing to the sums; a client half in the objective is validated too."""
    fed = clients_of(6, (20, 20, 40, 40, 40), (0,))
    half = muster.Federation.from_arrays(
        train=[fed.train.client(k) for k in range(5)], priority=[0], importance=[1, 0.5, 0, 0, 0]
    )
    run = final(half, assist("crossfit", invite=muster.parts.Sample(3)), rounds=20)
    counted = run.clients.group_by("round").agg(pl.col("weight").sum())
    played = run.rounds.filter(~pl.col("skipped"))["round"].implode()
    assert counted.filter(pl.col("round").is_in(played))["weight"].to_numpy() == pytest.approx(1)
    assert run.rounds["loss"][-1] < run.rounds["loss"][0]


def test_a_client_with_too_few_rows_for_folds_validates_nothing():
    fed = clients_of(5, (3, 60, 60), (0,))
    run = final(fed, assist("crossfit", guard=True), rounds=3)
    assert (run.clients.filter(~pl.col("priority"))["weight"] == 0).all()
    assert np.isfinite(run.rounds["loss"].to_numpy()).all()


def test_solvers_with_models_of_their_own_are_refused():
    with pytest.raises(muster.MusterError, match="several models side by side, which solver Ditto"):
        replace(assist("crossfit"), solver=muster.parts.Ditto(1.0))
    with pytest.raises(muster.MusterError, match="weigh has 4 folds and deploy 5"):
        replace(assist("crossfit"), deploy=AgainstAlone(folds=5))


def test_too_many_clients_for_pairs_is_one_line():
    with pytest.raises(muster.MusterError, match='at most 2000 clients with evidence = "crossfit"'):
        CrossFit().memory(2001)


def test_trust_goes_with_cross_fitting_and_not_with_the_guard():
    fed = clients_of(1, (16, 14, 15, 60, 60), (0, 1, 2))
    run = final(fed, assist("crossfit", trust=True), rounds=6)
    assert np.isfinite(run.rounds["loss"].to_numpy()).all()
    assert run.clients.filter(pl.col("priority"))["admitted"].all()
    with pytest.raises(muster.MusterError, match="guard and trust"):
        assist(guard=True, trust=True)
