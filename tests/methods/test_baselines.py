"""MaxFL and every baseline against a hand-written numpy version, state carried over rounds."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import muster
import reference
import reference_methods as ref
from helpers import federation, module_of, random_layers, same_bits
from muster.base import rng
from muster.parts.claim import appeal_weight
from muster.parts.invite import Sample

M = muster.methods
LOCAL = muster.Local(steps=3, batch_size=None, lr=0.2)
ROUNDS = 5
SHAPES = {"softmax": (5, 4), "mlp": (5, 6, 4)}
RHO = np.linspace(0.9, 1.5, 7)


def setup(shape, seed=0):
    data, _ = reference.problem(seed)
    layers = random_layers(SHAPES[shape], seed)
    return data, layers, ref.Problem(data, layers), federation(data, requirement=RHO)


def flat(run):
    return np.concatenate([a.ravel() for a in run.weights.values()])


def go(fed, layers, method, engine="stacked", **more):
    settings = {"rounds": ROUNDS, "local": LOCAL, "dtype": "float64", "engine": engine}
    if engine == "loop":
        settings["processes"] = 1
    return muster.simulate(fed, method, module_of(layers), **{**settings, **more})


def asked_by(fed, m):
    """The clients each round asks, from the invitation itself."""

    def asked(t):
        if m is None:
            return list(range(fed.n))
        return Sample(m)(fed, np.arange(fed.n), 0, t, lambda c: c).clients.tolist()

    return asked


CASES = {
    "maxfl": (
        lambda m: M.maxfl(0.8, 0.1, m),
        lambda p, a: ref.maxfl(p, a, RHO, ROUNDS, 3, 0.2, 0.8, 0.1),
    ),
    "maxfl tuned": (
        lambda m: M.maxfl(1.0, 0.1, m, tune_steps=2),
        lambda p, a: ref.maxfl(p, a, RHO, ROUNDS, 3, 0.2, 1.0, 0.1, tune=2),
    ),
    "scaffold": (
        lambda m: M.scaffold(0.7, m),
        lambda p, a: ref.scaffold(p, a, ROUNDS, 3, 0.2, 0.7),
    ),
    "perfedavg": (
        lambda m: M.perfedavg(0.1, m=m),
        lambda p, a: ref.perfedavg(p, a, ROUNDS, 3, 0.2, 0.1),
    ),
    "perfedavg hf": (
        lambda m: M.perfedavg(0.1, True, m=m),
        lambda p, a: ref.perfedavg(p, a, ROUNDS, 3, 0.2, 0.1, True),
    ),
    "perfedavg hf, as printed": (
        lambda m: M.perfedavg(0.1, True, 1e-3, m),
        lambda p, a: ref.perfedavg(p, a, ROUNDS, 3, 0.2, 0.1, True, 1e-3),
    ),
    "pfedme": (
        lambda m: M.pfedme(2.0, 4, 0.1, 0.9, m),
        lambda p, a: ref.pfedme(p, a, ROUNDS, 3, 0.2, 2.0, 4, 0.1, 0.9)[0],
    ),
    "qffl": (lambda m: M.qffl(1.5, m), lambda p, a: ref.qffl(p, a, ROUNDS, 3, 0.2, 1.5)),
    "qffl 0": (lambda m: M.qffl(0.0, m), lambda p, a: ref.qffl(p, a, ROUNDS, 3, 0.2, 0.0)),
    "afl": (lambda m: M.afl(0.05, m), lambda p, a: ref.afl(p, a, ROUNDS, 3, 0.2, 0.05)[0]),
    "mwfed": (
        lambda m: M.mwfed(4.0, m),
        lambda p, a: ref.mwfed(p, a, RHO, ROUNDS, 3, 0.2, 4.0),
    ),
    "ditto": (
        lambda m: M.ditto(0.5, m),
        lambda p, a: ref.ditto(p, a, ROUNDS, 3, 0.2, 0.5)[0],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("shape", "m"),
    [
        ("softmax", None),
        ("mlp", 4),
        pytest.param("softmax", 4, marks=pytest.mark.slow),
        pytest.param("mlp", None, marks=pytest.mark.slow),
    ],
)
def test_agrees_with_numpy_on_both_engines(case, shape, m):
    method, expected = CASES[case]
    _, layers, problem, fed = setup(shape)
    right = expected(problem, asked_by(fed, m))
    for engine in ("stacked", "loop"):
        run = go(fed, layers, method(m), engine)
        assert np.abs(flat(run) - right).max() < 1e-9, engine
    assert np.abs(right - problem.start).max() > 0.01, "the model moved"


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_personal_models_agree_with_numpy(engine):
    _, layers, problem, fed = setup("mlp")
    for method, (_, own) in (
        (M.ditto(0.5, 4), ref.ditto(problem, asked_by(fed, 4), ROUNDS, 3, 0.2, 0.5)),
        (M.pfedme(2.0, 4, 0.1, 0.9, 4),
         ref.pfedme(problem, asked_by(fed, 4), ROUNDS, 3, 0.2, 2.0, 4, 0.1, 0.9)),
    ):  # fmt: skip
        run = go(fed, layers, method, engine)
        expected = fed.objective @ [problem.loss(k, own[k]) for k in range(fed.n)]
        assert run.rounds["own_loss"][-1] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_perfedavg_is_judged_after_its_step(engine):
    """On all of a client's rows, by a gradient of size alpha: w_k = w - alpha grad F_k(w)."""
    _, layers, problem, fed = setup("mlp")
    run = go(fed, layers, M.perfedavg(0.3), engine)
    w = flat(run)
    own = [w - 0.3 * problem.grad(k, w) for k in range(fed.n)]
    expected = fed.objective @ [problem.loss(k, own[k]) for k in range(fed.n)]
    assert run.rounds["own_loss"][-1] == pytest.approx(expected, abs=1e-9)
    assert run.rounds["own_loss"][-1] < run.rounds["loss"][-1] - 1e-3


def momentum(state, delta):
    m = 0.8 * (0.0 if state is None else state) + delta
    return m, 0.5 * m


def moments(yogi):
    def rule(state, delta):
        m, v = (0.0, np.full_like(delta, 1e-6)) if state is None else state
        m = 0.9 * m + 0.1 * delta
        d2 = delta**2
        v = v - 0.01 * d2 * np.sign(v - d2) if yogi else 0.99 * v + 0.01 * d2
        return (m, v), 0.03 * m / (np.sqrt(v) + 1e-3)

    return rule


@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("shape", SHAPES)
def test_server_optimizers_agree_with_numpy(shape, engine):
    _, layers, problem, fed = setup(shape)
    for method, rule in (
        (M.fedavgm(0.5, 0.8), momentum),
        (M.fedadam(0.03), moments(False)),
        (M.fedyogi(0.03), moments(True)),
    ):
        right = ref.server(problem, ROUNDS, 3, 0.2, rule)
        assert np.abs(flat(go(fed, layers, method, engine)) - right).max() < 1e-9


def test_server_optimizers_agree_with_torch_optimizers():
    """FedAvgM and FedAdam (without bias correction) are torch's SGD and an Adam on -Delta."""
    import torch

    _, layers, problem, fed = setup("softmax")
    sizes = np.array([len(y) for _, y in problem.data], float)
    w = torch.nn.Parameter(torch.from_numpy(problem.start.copy()))
    optimizer = torch.optim.SGD([w], lr=0.5, momentum=0.8)
    for _ in range(ROUNDS):
        at = w.detach().numpy().copy()
        replies = np.stack([problem.sgd(k, at, 3, 0.2) for k in range(problem.n)])
        w.grad = torch.from_numpy(at - sizes @ replies / sizes.sum())
        optimizer.step()
    ours = flat(go(fed, layers, M.fedavgm(0.5, 0.8)))
    assert np.abs(ours - w.detach().numpy()).max() < 1e-9


def test_power_of_choice_asks_the_worst_of_those_drawn():
    _, layers, _, fed = setup("softmax")
    run = go(fed, layers, M.power_of_choice(d=5, m=2))
    everything = go(fed, layers, M.power_of_choice(d=7, m=2))
    assert run.rounds["asked"].to_list() == [2] * ROUNDS
    # With d = N the two of highest loss are asked, whatever was drawn.
    for t, clients in everything.clients.group_by("round", maintain_order=True):
        before = go(fed, layers, M.power_of_choice(d=7, m=2), rounds=t[0] - 1) if t[0] > 1 else None
        losses = (
            before.final["train_loss"].to_numpy()
            if before is not None
            else np.array(
                [ref.Problem(*setup("softmax")[:2]).loss(k, ref.pack(layers)) for k in range(7)]
            )
        )
        assert sorted(clients["client"].to_list()) == sorted(np.argsort(-losses)[:2].tolist())
    size = sum(w.nbytes for w in run.weights.values())
    assert run.rounds["bytes_down"][0] == 5 * size, "those only polled got the model too"


def test_power_of_choice_draws_by_data_share():
    from muster.parts.invite import PowerOfChoice

    _, _, _, fed = setup("softmax")
    drawn = np.zeros(fed.n)

    def losses(clients):
        drawn[clients] += 1
        return np.zeros(len(clients))

    for t in range(4000):
        PowerOfChoice(1, 1)(fed.population, np.arange(fed.n), 0, t, losses)
    assert np.abs(drawn / 4000 - fed.train.sizes / fed.train.sizes.sum()).max() < 0.03


# --- the pieces of MaxFL ------------------------------------------------------------------------


def test_q_peaks_at_a_quarter_where_the_gap_is_zero():
    gaps = np.linspace(-5, 5, 1001)
    q = appeal_weight(gaps)
    assert q.max() == appeal_weight(0.0) == 0.25
    assert gaps[q.argmax()] == 0
    assert np.allclose(q, q[::-1])
    assert (appeal_weight(np.array([-1e6, 1e6, 1e300])) == 0).all()


def test_maxfl_records_its_weights():
    _, layers, _, fed = setup("softmax")
    run = go(fed, layers, M.maxfl())
    first = run.clients.filter(pl.col("round") == 3)
    q = appeal_weight(first["loss"].to_numpy() - RHO)
    assert np.allclose(first["claim"], q)
    assert np.allclose(first["weight"], q / q.sum())


def test_requirements_are_needed_and_asked_for_by_name():
    data, _ = reference.problem(0)
    bare = federation(data)
    for method in (M.maxfl(), M.mwfed()):
        with pytest.raises(muster.MusterError, match=r"requirement: \w+ needs each client's rho_k"):
            muster.simulate(bare, method, muster.models.Softmax(), rounds=1)
    with pytest.raises(muster.MusterError, match="requirement: participation needs"):
        muster.simulate(
            bare, M.fedavg(), muster.models.Softmax(), rounds=1, participation=muster.Flexible()
        )


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_solo_requirements_agree_with_numpy(engine):
    data, layers, problem, _ = setup("mlp")
    test, _ = reference.problem(9)
    fed = federation(data, test=test)
    local = muster.Local(steps=11, batch_size=None, lr=0.2)
    fed = muster.with_solo(fed, module_of(layers), 1, local, dtype="float64", engine=engine)
    own = [problem.sgd(k, problem.start, 11, 0.2) for k in range(7)]
    assert np.allclose(fed.requirement, [problem.loss(k, w) for k, w in enumerate(own)], atol=1e-9)
    models = [ref.unpack(w, layers) for w in own]
    expected = [reference.loss(m, *pair) for m, pair in zip(models, test, strict=True)]
    assert np.allclose(fed.requirement_test, expected, atol=1e-9)
    accuracy = [reference.accuracy(m, *pair) for m, pair in zip(models, test, strict=True)]
    assert np.allclose(fed.solo_accuracy, accuracy)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_rounds_alone_are_those_of_the_method_local(engine):
    """Alone a client has the work of the run: each round with its own learning rate."""
    data, layers, problem, _ = setup("mlp")
    rates = muster.schedules.Linear(0.4, 0.1)
    local = muster.Local(steps=3, batch_size=None, lr=rates)
    how = {"dtype": "float64", "engine": engine}
    fed = muster.with_solo(federation(data), module_of(layers), 4, local, **how)
    run = muster.simulate(federation(data), M.local(), module_of(layers), 4, local, **how)
    assert np.allclose(fed.requirement, run.final["train_loss"], atol=1e-12)
    own = []
    for k in range(7):
        w = problem.start
        for t in range(4):
            w = problem.sgd(k, w, 3, rates.at(t, 4))
        own.append(problem.loss(k, w))
    assert np.allclose(fed.requirement, own, atol=1e-9)
    assert fed.solo_work == run.facts["work"] == "12 steps"


def test_the_work_alone_has_no_default():
    fed = federation(setup("softmax")[0])
    with pytest.raises(TypeError, match="rounds"):
        muster.with_solo(fed, muster.models.Softmax())
    with pytest.raises(muster.MusterError, match=r"rounds: Local.*; allowed: whole numbers from 1"):
        muster.with_solo(fed, muster.models.Softmax(), muster.Local(steps=20))


def test_appeal_and_preferred_accuracy_against_numpy():
    data, layers, _, _ = setup("softmax")
    test, _ = reference.problem(9)
    fed = federation(data, test=test, unseen=[5, 6])
    fed = muster.with_solo(fed, module_of(layers), 1, LOCAL, dtype="float64")
    run = go(fed, layers, M.maxfl())
    row = run.rounds.row(-1, named=True)
    w = ref.unpack(flat(run), layers)
    train = np.array([reference.loss(w, *pair) for pair in data])
    held = np.array([reference.loss(w, *pair) for pair in test])
    accuracy = np.array([reference.accuracy(w, *pair) for pair in test])
    meets = train < fed.requirement
    preferred = np.where(meets, accuracy, fed.solo_accuracy)
    for ending, who in (("", slice(0, 5)), ("_unseen", slice(5, 7))):
        assert row["gm_appeal" + ending] == meets[who].mean()
        assert row["gm_appeal_test" + ending] == (held < fed.requirement_test)[who].mean()
        assert row["preferred_accuracy" + ending] == pytest.approx(preferred[who].mean())
        assert row["mean_test_accuracy" + ending] == pytest.approx(accuracy[who].mean())


# --- unseen clients and flexible participation --------------------------------------------------


def test_unseen_clients_never_train_and_change_nothing():
    data, layers, _, _ = setup("softmax")
    fed = federation(data, requirement=RHO, unseen=[5, 6])
    alone = federation(data[:5], requirement=RHO[:5])
    for method in (M.maxfl(), M.fedavg(), M.scaffold(), M.afl(), M.mwfed(), M.fedalign(0.3)):
        a, b = go(fed, layers, method), go(alone, layers, method)
        assert np.abs(flat(a) - flat(b)).max() < 1e-12
        assert a.clients["client"].max() == 4
    assert a.final["unseen"].to_list() == [False] * 5 + [True] * 2


def test_bad_unseen():
    data, _ = reference.problem(0)
    with pytest.raises(muster.MusterError, match="every client is unseen"):
        federation(data, unseen=range(7))
    with pytest.raises(muster.MusterError, match="priority: client 1 is unseen"):
        federation(data, [0, 1], unseen=[1])
    with pytest.raises(muster.MusterError, match="unseen: no client 9"):
        federation(data, unseen=[9])


@pytest.mark.parametrize("method", [M.fedavg(), M.maxfl(m=3)], ids=lambda m: m.name)
def test_clients_leave_and_return_as_their_requirement_says(method):
    data, layers, _, fed = setup("softmax")
    run = go(fed, layers, method, rounds=20, participation=muster.Flexible(from_round=4))
    inside = np.ones(7, bool)
    for t in range(20):
        if t:
            before = go(
                fed, layers, method, rounds=t, participation=muster.Flexible(4), evaluate_every=0
            )
            # A shorter run is the same run as far as it goes: from_round counts rounds.
            losses = before.final["train_loss"].to_numpy()
        else:
            losses = np.array(
                [ref.Problem(data, layers).loss(k, ref.pack(layers)) for k in range(7)]
            )
        now = losses < RHO if t >= 4 else np.ones(7, bool)
        row = run.rounds.row(t, named=True)
        assert row["pool"] == now.sum()
        assert row["left"] == (inside & ~now).sum()
        assert row["returned"] == (~inside & now).sum()
        moves = run.moves.filter(pl.col("round") == t + 1) if len(run.moves) else run.moves
        if len(moves):
            left = moves.filter(pl.col("move") == "left")["client"].to_list()
            assert left == np.flatnonzero(inside & ~now).tolist()
        asked = run.clients.filter(pl.col("round") == t + 1)["client"].to_list()
        assert set(asked) <= set(np.flatnonzero(now).tolist())
        inside = now
    assert run.rounds["left"].sum() > 0


def test_an_empty_pool_is_a_recorded_skipped_round():
    data, layers, _, _ = setup("softmax")
    fed = federation(data, requirement=np.zeros(7))
    run = go(fed, layers, M.fedavg(), rounds=6, participation=muster.Flexible(from_round=2))
    assert run.rounds["skipped"].to_list() == [False] * 2 + [True] * 4
    assert run.rounds["asked"].to_list() == [7] * 2 + [0] * 4
    assert run.rounds["left"].to_list() == [0, 0, 7, 0, 0, 0]
    assert run.rounds["loss"][1] == run.rounds["loss"][5]


@pytest.mark.parametrize(
    "method", [M.scaffold(m=4), M.mwfed(m=4), M.afl(m=4), M.pfedme(m=4), M.fedadam(m=4)],
    ids=lambda m: m.name,
)  # fmt: skip
def test_stateful_methods_resume_to_the_same_bits(method, tmp_path):
    _, layers, _, fed = setup("mlp")
    more = {"participation": muster.Flexible(3), "checkpoint_every": 3}
    whole = go(fed, layers, method, **more)

    def stop(row):
        if row["round"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(muster.Interrupted):
        go(fed, layers, method, **more, checkpoint=tmp_path, on_round=stop)
    resumed = go(fed, layers, method, **more, checkpoint=tmp_path, resume=True)
    assert same_bits(whole, resumed)
    assert whole.moves.equals(resumed.moves)


@pytest.mark.parametrize("name", M.METHODS)
def test_every_method_gives_the_same_numbers_on_both_engines_with_minibatches(name):
    _, layers, _, fed = setup("mlp")
    local = muster.Local(steps=4, batch_size=5, lr=0.05)
    method = M.power_of_choice(5, 3) if name == "power_of_choice" else M.METHODS[name]()
    a = go(fed, layers, method, "stacked", local=local, rounds=4)
    b = go(fed, layers, method, "loop", local=local, rounds=4)
    assert np.abs(flat(a) - flat(b)).max() < 1e-9
    assert np.isfinite(flat(a)).all()


def test_afl_and_mwfed_stay_sound_over_many_rounds():
    """Mixture weights at 0 and multiplicative weights far apart neither crash nor stop a run."""
    _, layers, _, fed = setup("softmax")
    for method in (M.afl(1.0, m=2), M.mwfed(1e3, m=2)):
        run = go(fed, layers, method, rounds=200, evaluate_every=0)
        assert not run.rounds["skipped"].any()
        assert np.isfinite(flat(run)).all()


def test_a_learning_rate_of_zero_moves_nothing():
    _, layers, problem, fed = setup("softmax")
    still = muster.Local(steps=2, batch_size=None, lr=0.0)
    for method in (M.qffl(1.0), M.scaffold(), M.maxfl()):
        run = go(fed, layers, method, rounds=2, local=still)
        assert np.abs(flat(run) - problem.start).max() < 1e-12


def test_drawing_with_replacement_survives_an_objective_that_left():
    from muster.parts.invite import WithReplacement

    data, layers, _, _ = setup("softmax")
    fed = federation(data, [0, 1], requirement=[0, 0, 9, 9, 9, 9, 9])
    method = M.fedalign(1e9, warmup=0, invite=WithReplacement(3))
    run = go(fed, layers, method, participation=muster.Flexible(from_round=2))
    assert run.rounds["asked"].to_list()[2:] == [5] * (ROUNDS - 2)


def test_drawing_with_replacement_counts_importance_once():
    from muster.parts.invite import WithReplacement

    data, _ = reference.problem(0)
    fed = federation(data, [0, 1], importance=0.4)
    total = np.zeros(7)
    for t in range(4000):
        roster = WithReplacement(2)(fed, np.arange(7), 0, t, lambda c: c)
        total[roster.clients] += roster.share * roster.importance
    assert np.abs(total / 4000 - fed.objective).max() < 0.02


def test_clients_that_only_judge_are_in_the_traffic():
    """Flexible participation sends the model to everyone who may stay, asked or not."""
    _, layers, _, fed = setup("softmax")
    run = go(fed, layers, M.fedavg(Sample(2)), rounds=4, participation=muster.Flexible(2))
    size = sum(w.nbytes for w in run.weights.values())
    assert run.rounds["bytes_down"].to_list() == [2 * size, 2 * size, 7 * size, 7 * size]


def test_keys_of_purposes_do_not_collide():
    purposes = ["batches", "tune", "solo", "invite", "available", "attackers", "attack noise"]
    assert len({int(rng.keys(0, p)) for p in purposes}) == len(purposes)
