"""One round as it is recorded: silence, warm-up, weights, theta."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import muster
from helpers import federation, nine_clients
from muster.local import Local

M = muster.methods


@pytest.fixture
def fed():
    return nine_clients()


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_silent_client_uploads_nothing_and_trains_nothing(fed, engine, monkeypatch):
    """Count every gradient step that is really taken, client by client."""
    taken = []
    if engine == "loop":
        from muster.engines.loop_engine import LoopCohort

        real = LoopCohort._batches

        def one_client(self):
            for batches in real(self):
                taken.append(int(self.group.clients[0]))
                yield batches

        monkeypatch.setattr(LoopCohort, "_batches", one_client)
    else:
        from muster.engines import stacked_engine

        real_batches = stacked_engine.StackedCohort._batches

        def batches(self):
            for n, *rest in real_batches(self):
                taken.extend(self.group.clients[:n].tolist())
                yield n, *rest

        monkeypatch.setattr(stacked_engine.StackedCohort, "_batches", batches)
    run = muster.simulate(
        fed, M.fedalign(0.05, warmup=0), muster.models.MLP((4,)), 6, Local(steps=3, batch_size=4),
        engine=engine, processes=1 if engine == "loop" else None,
    )  # fmt: skip
    silent = run.clients.filter(~run.clients["joined"])
    assert len(silent) > 5
    assert silent["bytes_up"].sum() == 0
    assert silent["steps"].sum() == 0
    assert silent["weight"].sum() == 0
    joined = run.clients.filter("joined")
    assert len(taken) == 3 * len(joined) == run.rounds["steps"].sum()
    counted = np.bincount(taken, minlength=fed.n)
    expected = np.bincount(joined["client"].to_numpy(), minlength=fed.n) * 3
    assert np.array_equal(counted, expected)
    size = sum(w.nbytes for w in run.weights.values())
    assert (joined["bytes_up"] == size + 8).all()
    assert (run.clients["bytes_down"] == size + 16).all()


def test_warm_up_asks_only_priority_clients(fed):
    args = {"model": muster.models.Softmax(), "rounds": 20}
    for warmup, rounds in ((0.25, 5), (3, 3), (0, 0)):
        run = muster.simulate(fed, M.fedalign(10.0, warmup=warmup), **args)
        asked = run.rounds["asked"].to_list()
        assert asked == [3] * rounds + [9] * (20 - rounds)


def test_theta_is_recorded_from_what_was_admitted(fed):
    run = muster.simulate(fed, M.fedalign(0.4, warmup=0), muster.models.Softmax(), rounds=10)
    others = run.clients.filter(run.clients["admitted"] & ~run.clients["priority"])
    for t, theta in run.rounds.select("round", "theta").iter_rows():
        who = others.filter(others["round"] == t)["client"].to_numpy()
        assert theta == pytest.approx(1 / (1 + fed.share[who].sum()))


def test_weights_in_the_ledger_are_shares_of_the_step(fed):
    run = muster.simulate(fed, M.fedalign(0.4, warmup=0), muster.models.Softmax(), rounds=10)
    sums = run.clients.group_by("round").agg(total=pl.col("weight").sum())["total"]
    assert np.allclose(sums, 1.0)


# --- generalized PFL: 0 < a_k < 1 ----------------------------------------------------------------


def two_clients(**more):
    """Two clients of equal size and the same data; the second in the objective by half."""
    draw = np.random.default_rng(0)
    pair = (draw.normal(size=(8, 3)), np.arange(8) % 2)
    return federation([pair, pair], [0], importance=[1.0, 0.5], **more)


HALF = Local(steps=1, batch_size=None, lr=0.1)


def half(method, rounds):
    return muster.simulate(two_clients(), method, muster.models.Softmax(), rounds, HALF)


def test_theta_counts_what_lies_beyond_the_objective():
    """The aligned client has extent 1 and a_k = .5: S = (1 - .5) p_k, p_k = 1/1.5."""
    run = muster.simulate(
        two_clients(), M.fedalign(1e9, warmup=0), muster.models.Softmax(), 1, HALF
    )
    assert run.rounds["theta"][0] == pytest.approx(1 / (1 + 0.5 / 1.5), abs=1e-15)
    nobody = muster.simulate(
        two_clients(), M.fedalign(0, warmup=0), muster.models.Softmax(), 1, HALF
    )
    assert nobody.rounds["theta"][0] == 1.0


def test_draws_with_replacement_are_unbiased_when_clients_of_some_importance_are_aligned():
    """In the full round both count a half each; so they must on average over draws."""
    fed = two_clients()
    full = muster.simulate(fed, M.fedalign(1e9, warmup=0), muster.models.Softmax(), 1, HALF)
    assert full.clients["weight"].to_list() == [0.5, 0.5]
    method = M.fedalign(1e9, warmup=0, invite=muster.parts.WithReplacement(1))
    run = muster.simulate(fed, method, muster.models.Softmax(), 200, HALF, evaluate_every=0)
    weight = np.zeros(2)
    np.add.at(weight, run.clients["client"].to_numpy(), run.clients["weight"].to_numpy())
    assert np.abs(weight / 200 - 0.5).max() < 0.07


def test_in_warm_up_an_aligned_client_counts_by_its_importance():
    run = muster.simulate(
        two_clients(), M.fedalign(1e9, warmup=1), muster.models.Softmax(), 2, HALF
    )
    weight = run.clients["weight"].to_numpy().reshape(2, 2)
    assert weight[0].tolist() == pytest.approx([2 / 3, 1 / 3], abs=1e-15)
    assert weight[1].tolist() == [0.5, 0.5]


# --- bytes, decay, memory ------------------------------------------------------------------------


def test_power_of_choice_counts_every_reported_loss(fed):
    """d clients are polled: each gets the model and tells its loss, the chosen ones too."""
    run = muster.simulate(
        fed, M.power_of_choice(d=5, m=2), muster.models.Softmax(), 1, Local(steps=1)
    )
    model = sum(w.nbytes for w in run.weights.values())
    assert run.rounds["bytes_up"][0] == 2 * model + 5 * 8
    assert run.clients["bytes_up"].to_list() == [model + 8, model + 8]


def test_epsilon_decays_from_the_end_of_the_warm_up():
    method = M.fedalign(muster.schedules.Linear(0.4, 0.0), warmup=0.5)
    assert [round(method.eps(t, 10), 3) for t in range(10)] == [0.4] * 6 + [0.3, 0.2, 0.1, 0.0]
    halved = M.fedalign(muster.schedules.Exponential(1.0, 0.5), warmup=2)
    assert [halved.eps(t, 5) for t in range(5)] == [1.0, 1.0, 1.0, 0.5, 0.25]
    # A schedule that names a round of the run means that round.
    step = M.fedalign(muster.schedules.StepTo(0.2, 0.0, at_round=6), warmup=2)
    assert [step.eps(t, 10) for t in (5, 6)] == [0.2, 0.0]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (muster.schedules.Linear(0.9, 0.0), [0.9, 0.9, 0.9, 0.6, 0.3, 0.0]),
        (muster.schedules.Inverse(0.9, 2.0), [0.9, 0.9, 0.9, 0.3, 0.18, 0.9 / 7]),
        (muster.schedules.Exponential(0.8, 0.5), [0.8, 0.8, 0.8, 0.4, 0.2, 0.1]),
        (muster.schedules.StepTo(0.8, 0.1, at_round=3), [0.8, 0.8, 0.8, 0.1, 0.1, 0.1]),
        (muster.schedules.StepTo(0.8, 0.0, at_round=1), [0.8, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_a_run_offers_decays_from_the_round_that_first_asks_the_others(
    fed, schedule, expected
):
    run = muster.simulate(fed, M.fedalign(schedule, warmup=2), muster.models.Softmax(), rounds=6)
    assert run.rounds["eps"].to_list() == pytest.approx(expected)
    outside = run.clients.filter(~pl.col("priority"))["round"]
    assert outside.min() == 3


class Broken(muster.parts.ScaleUpdate):
    """Sends a model that is not finite, which the guard refuses."""

    def send(self, offer, models, clients):
        return {n: t * float("nan") for n, t in models.items()}


@pytest.mark.parametrize("method", [M.scaffold(), M.ditto()], ids=lambda m: m.name)
def test_a_refused_reply_changes_no_memory_that_the_server_shares(fed, method, monkeypatch):
    """SCAFFOLD's c_k agrees with the server's c, so a refused client keeps its own; what a client
    keeps for itself (Ditto's model) is its own affair."""
    from muster.run import training_loop

    seen = []
    real = training_loop.play_round
    monkeypatch.setattr(training_loop, "play_round", lambda *a: seen.append(real(*a)) or seen[-1])
    attack = Broken(fraction=0.3)
    run = muster.simulate(
        fed, method, muster.models.Softmax(), 2, Local(steps=2, lr=0.1), attack=attack
    )
    liars = sorted(set(run.attackers["client"]))
    assert liars
    assert not run.attackers["admitted"].any()
    (memory,) = seen[-1][0].clients.get(np.arange(fed.n)).values()
    moved = {k for k in range(fed.n) if any(bool((t[k] != 0).any()) for t in memory.values())}
    assert moved == set(range(fed.n)) - (set(liars) if method.name == "scaffold" else set())


# --- the guard and priority clients --------------------------------------------------------------


def test_an_honest_priority_client_far_from_the_others_counts_with_a_warning():
    """Algorithm 1 takes every priority client's word: here one whose rows make its loss huge."""
    draw = np.random.default_rng(0)
    pairs = [(draw.normal(size=(10, 3)), np.arange(10) % 2) for _ in range(4)]
    pairs[0] = (1e5 * pairs[0][0], pairs[0][1])
    model = muster.models.MLP((4,))
    fed = federation(pairs, [0, 1])
    local = Local(steps=1, lr=1e-9)
    with pytest.warns(muster.MusterWarning, match="client 0, a priority client, reports a loss"):
        run = muster.simulate(fed, M.fedalign(0.1, warmup=0), model, 2, local)
    first = run.clients.filter(pl.col("client") == 0)
    assert first["loss"].min() > 100 * run.clients.filter(pl.col("client") > 0)["loss"].max()
    assert first["admitted"].all()
    assert run.rounds["reference_loss"][0] > 100
    assert "counted" in run.moves.filter(pl.col("client") == 0)["move"][0]


def test_the_deployed_model_is_recorded(tmp_path):
    """Without help the product is that of FedAvg on the priority clients, to the last digits."""
    few = muster.data.Few(of=muster.data.IID(), first=2, rows=20)
    fed = muster.data.digits(clients=10, priority=2, partition=few)
    work = Local(steps=5, batch_size=8, lr=0.1)
    guarded, alone = (
        muster.simulate(fed, method, muster.models.Softmax(), 9, work, dtype="float64")
        for method in (M.assist(guard=True), M.fedavg_priority())
    )
    same = (guarded.rounds["loss"] - alone.rounds["loss"]).abs() < 1e-9
    assert guarded.rounds["helped"].to_list() == (~same).to_list()
    assert guarded.rounds["helped"].n_unique() == 2, "both are tested"
    assert "helped" not in alone.rounds.columns
    muster.save(guarded, tmp_path / "run")
    assert muster.load(tmp_path / "run").rounds.equals(guarded.rounds)


def test_a_round_that_moved_nothing_deploys_what_was_deployed():
    fed = muster.data.digits(clients=10, priority=1)
    method = M.assist(guard=True, invite=muster.parts.Sample(1))
    run = muster.simulate(fed, method, muster.models.Softmax(), 5, seed=0)
    assert run.rounds["skipped"].all()
    assert run.rounds["helped"].to_list() == [False] * 5
