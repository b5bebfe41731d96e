"""assist: one round against numpy, its guarantees on whole runs, and folds of clients' rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize, nnls

import muster
from muster.base.params import group_by_layer
from muster.methods import assist, fedavg_priority
from softmax_clients import LR, STEPS, clients_of, descend, final, folds_of, helper_weight


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_one_round_is_that_of_numpy(engine):
    fed = clients_of()
    x, y = fed.train.x.double().numpy(), fed.train.y.numpy()
    share = fed.population.share[:2]
    replies, spread = [], []
    for k in range(2):
        m1, m2 = (descend(x[rows], y[rows]) for rows in folds_of(fed, k))
        replies.append((m1 + m2) / 2)
        spread.append(((m1 - m2) ** 2).sum() / 4)
    for k in (2, 3):
        rows = fed.train.positions(np.array([k]))
        replies.append(descend(x[rows], y[rows]))
    m_p = share @ np.array(replies[:2]) / share.sum()
    v = (share / share.sum()) ** 2 @ spread
    d = np.array(replies[2:]) - m_p
    found = minimize(
        lambda a: a @ d @ d.T @ a - 2 * v * a.sum(),
        [0.1, 0.1],
        bounds=[(0, 1)] * 2,
        constraints=[{"type": "ineq", "fun": lambda a: 1 - a.sum()}],
        options={"ftol": 1e-16},
    )
    run = muster.simulate(
        fed,
        assist(),
        muster.models.Softmax(),
        rounds=1,
        local=muster.Local(steps=STEPS, batch_size=None, lr=LR),
        engine=engine,
        dtype="float64",
    )
    table = run.clients.sort("client")
    assert table["claim"].to_numpy() == pytest.approx([*spread, 0, 0], rel=1e-9)
    assert table["weight"].to_numpy()[2:] == pytest.approx(found.x, abs=1e-5)
    weight = table["weight"].to_numpy()
    expected = weight @ np.array(replies)
    got = np.concatenate([t.ravel() for t in run.weights.values()])
    assert sorted(got) == pytest.approx(sorted(expected), abs=1e-12)
    assert table["steps"].to_list() == [2 * STEPS, 2 * STEPS, STEPS, STEPS]


def simplex_weights(gram, gain):
    """a >= 0, sum a <= 1 that minimise a'Ga - 2c'a: least squares with a heavy row for the sum, of
    the weights and of what they leave."""
    unit, n = max(np.trace(gram) / len(gain), 1e-12), len(gain)
    root = np.linalg.cholesky(gram / unit + 1e-10 * np.eye(n))
    rows, target = np.zeros((n + 1, n + 1)), np.zeros(n + 1)
    rows[:n, :n], target[:n] = root.T, np.linalg.solve(root, gain / unit)
    rows[n] = target[n] = 1e4 * max(1.0, np.abs(target[:n]).max())
    return nnls(rows, target, maxiter=1000)[0][:n]


@pytest.mark.parametrize(
    ("seed", "sizes", "importance", "asked"),
    [
        (10, (12, 9, 40, 40, 30, 25), (1, 1, 0, 0, 0, 0), None),
        (11, (12, 40, 30, 20), (1, 0.5, 0.25, 0), None),
        (12, (3, 2, 40, 30), (1, 1, 0, 0), None),
        (13, (3, 15, 7, 30), (1, 1, 0.5, 0), None),
        (14, (10, 40), (1, 0), None),
        (15, (10, 8, 12), (1, 1, 1), None),
        (16, (10,), (1,), None),
        (17, (12, 9, 20, 30, 30, 40, 25, 8), (1, 1, 1, 0.5, 0, 0, 0, 0), 4),
        (18, (12, 9, 20, 30, 30, 40, 25, 8), (1, 1, 1, 1, 0.3, 0, 0, 0), 6),
    ],
)
def test_weights_are_those_of_the_page(seed, sizes, importance, asked):
    """The rule of docs/assist.md, with its programme solved another way: several priority clients,
    partly in the objective, too few rows for halves, one helper, none, some clients asked."""
    whole = clients_of(seed, sizes, (0,))
    fed = muster.Federation.from_arrays(
        train=[whole.train.client(k) for k in range(len(sizes))],
        priority=np.flatnonzero(np.array(importance) == 1).tolist(),
        importance=list(map(float, importance)),
    )
    method = assist() if asked is None else assist(invite=muster.parts.Sample(asked))
    local = muster.Local(steps=STEPS, batch_size=None, lr=LR)
    run = muster.simulate(fed, method, muster.models.Softmax(), 1, local, dtype="float64")
    table = run.clients.sort("client")
    x, y, share = fed.train.x.double().numpy(), fed.train.y.numpy(), np.array(sizes) / sum(sizes)
    models, spread = [], []
    for k in table["client"]:
        rows = fed.train.positions(np.array([k]))
        halves = [rows] if importance[k] == 0 or sizes[k] < 4 else folds_of(fed, k)
        parts = [descend(x[some], y[some]) for some in halves]
        models.append(np.mean(parts, axis=0))
        lone = (models[-1] ** 2).sum() if importance[k] > 0 else 0.0  # training begins at 0
        spread.append(lone if len(halves) == 1 else ((parts[0] - parts[1]) ** 2).sum() / 4)
    own, v_k = np.array(importance)[table["client"].to_numpy()], np.array(spread)
    base = own * share[table["client"].to_numpy()]
    base, helpers = base / base.sum(), own < 1
    away = (np.array(models) - base @ models)[helpers]
    expected = base
    if helpers.any():
        a = simplex_weights(away @ away.T, base**2 @ v_k - (base * v_k)[helpers])
        expected = base * (1 - a.sum())
        expected[helpers] += a
    assert len(table) == (asked or len(sizes))
    assert table["weight"].to_numpy() / table["weight"].sum() == pytest.approx(expected, abs=1e-4)
    got = np.concatenate([t.ravel() for t in run.weights.values()])
    assert sorted(got) == pytest.approx(sorted(expected @ models), abs=1e-4)


def test_halves_are_disjoint_and_all_there_is():
    fed = clients_of()
    first, second = folds_of(fed, 0)
    assert sorted([*first, *second]) == list(range(12))
    assert abs(len(first) - len(second)) <= 1
    other = folds_of(fed, 0, seed=1)[0]
    assert sorted(other) != sorted(first)


def test_helpers_of_the_same_kind_count_and_those_with_permuted_labels_hardly():
    same = clients_of(1, (10, 400, 400), (0,))
    draw = np.random.default_rng(3)
    x, y = same.train.x.numpy().copy(), same.train.y.numpy().copy()
    ends = same.train.offsets
    wrong = [
        (x[a:b], y[a:b] if k == 0 else draw.permutation(y[a:b]))
        for k, (a, b) in enumerate(zip(ends, ends[1:], strict=False))
    ]
    far = muster.Federation.from_arrays(train=wrong, priority=[0])
    near, away = helper_weight(final(same, assist())), helper_weight(final(far, assist()))
    assert near > 0.3
    assert away < near / 3


def test_without_helpers_it_is_training_on_halves_alone():
    fed = clients_of(2, (12, 9), (0, 1))
    run = final(fed, assist())
    assert run.clients["weight"].to_numpy().sum() == pytest.approx(30)
    assert abs(run.rounds["loss"][-1] - final(fed, fedavg_priority()).rounds["loss"][-1]) < 0.1


def test_a_round_without_the_objective_is_skipped():
    fed = clients_of(4, (30, 30, 30, 30, 30, 30), (0,))
    run = final(fed, assist(invite=muster.parts.Sample(2)), rounds=12)
    without = (
        run.clients.group_by("round").agg(pl.col("priority").any()).filter(~pl.col("priority"))
    )
    skipped = run.rounds.filter(pl.col("skipped"))["round"].to_list()
    assert sorted(skipped) == sorted(without["round"].to_list())
    assert 0 < len(skipped) < 12


def test_a_client_with_too_few_rows_for_halves_claims_its_whole_update():
    fed = clients_of(5, (3, 60, 60), (0,))
    run = final(fed, assist(), rounds=1)
    assert run.clients.filter(pl.col("client") == 0)["claim"][0] > 0
    assert run.clients.filter(pl.col("client") == 0)["steps"][0] == 5


def test_importance_between_0_and_1():
    """A client that is half in the objective claims a spread, and can help beyond its half."""
    fed = clients_of(6, (12, 40, 40), (0,))
    half = muster.Federation.from_arrays(
        train=[fed.train.client(k) for k in range(3)], priority=[0], importance=[1.0, 0.5, 0.0]
    )
    table = final(half, assist(), rounds=1).clients.sort("client")
    assert (table["claim"].to_numpy()[:2] > 0).all()
    assert table["claim"][2] == 0
    assert table["weight"].sum() == pytest.approx(1)


def test_stein_without_a_spread_is_refused():
    with pytest.raises(
        muster.MusterError, match='needs each client\'s spread; use claim = "spread"'
    ):
        muster.Method("x", weigh=muster.parts.Stein())


def test_any_solver_optimizer_and_module(tmp_path):
    """State kept by clients (SCAFFOLD's, a momentum's) is averaged over halves; resumed alike."""
    fed = clients_of(7, (12, 9, 30), (0, 1))
    momentum = muster.optimizers.sgd(momentum=0.9, keep=True)
    method = muster.Method(
        "x",
        solver=muster.parts.ControlVariates(),
        step=muster.parts.Scaffold(),
        weigh=muster.parts.Stein(),
        claim=muster.parts.Spread(),
    )
    for chosen, local in (
        (method, muster.Local(steps=4, batch_size=8, lr=0.1)),
        (assist(prox=0.1), muster.Local(epochs=2, batch_size=4, lr=0.05, optimizer=momentum)),
    ):
        for engine in ("stacked", "loop"):
            arguments = {"model": muster.models.MLP((8,)), "rounds": 4, "local": local,
                         "evaluate_every": 0}  # fmt: skip
            whole = muster.simulate(fed, chosen, engine=engine, **arguments)
            folder = tmp_path / f"{chosen.name}-{engine}"
            muster.simulate(fed, chosen, **{**arguments, "rounds": 4}, engine=engine,
                            checkpoint=folder, checkpoint_every=2)  # fmt: skip
            again = muster.simulate(
                fed, chosen, **arguments, engine=engine, checkpoint=folder, resume=True
            )
            for name, t in whole.weights.items():
                assert (again.weights[name] == t).all()
        assert np.isfinite(whole.rounds["loss"][-1])


def test_help_where_rows_are_few():
    """20 rows of digits for each of two priority clients: better than alone, seed by seed."""
    gains = []
    for seed in range(3):
        few = muster.data.Few(of=muster.data.IID(), first=2, rows=20)
        fed = muster.data.digits(clients=10, priority=2, partition=few, seed=seed)
        arguments = {"model": muster.models.Softmax(), "rounds": 60, "seed": seed,
                     "evaluate_every": 0}  # fmt: skip
        score = {
            m.name: muster.simulate(fed, m, **arguments).rounds["test_accuracy"][-1]
            for m in (assist(), fedavg_priority())
        }
        gains.append(score["assist"] - score["fedavg_priority"])
    assert np.mean(gains) > 0.02, gains


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_the_round_of_a_network_is_that_of_replies_trained_apart(engine):
    """One round of an MLP: halves and helpers trained one by one as clients of other federations,
    and the programme over layers in units of their noise, in numpy."""
    fed = clients_of(3, (12, 9, 30, 25), (0, 1))
    local = muster.Local(steps=STEPS, batch_size=None, lr=LR)
    model = muster.models.MLP((6,))

    def play(federation, method):
        return muster.simulate(
            federation, method, model, 1, local, engine=engine, dtype="float64", seed=0
        )

    def train(rows):
        pair = (fed.train.x[rows], fed.train.y[rows])
        lone = muster.Federation.from_arrays(train=[pair], priority=[0], classes=fed.classes)
        return play(lone, muster.methods.fedavg()).weights

    halves = [[train(rows) for rows in folds_of(fed, k)] for k in (0, 1)]
    others = [train(fed.train.positions(np.array([k]))) for k in (2, 3)]
    layers = group_by_layer(others[0]).values()

    def flat(weights, names):
        return np.concatenate([weights[name].ravel() for name in names])

    b = fed.population.share[:2] / fed.population.share[:2].sum()
    units, v = [], []
    for names in layers:
        m = np.array([[flat(half, names) for half in each] for each in halves])
        v_l = b**2 @ (((m[:, 0] - m[:, 1]) ** 2).sum(1) / 4)
        own = b @ m.mean(1)
        away = np.array([flat(other, names) for other in others]) - own
        units.append(away / np.sqrt(v_l))
        v.append(v_l)
    away = np.concatenate(units, 1) * np.sqrt(np.mean(v))
    a = simplex_weights(away @ away.T, np.full(2, sum(v)))
    table = play(fed, assist()).clients.sort("client")
    assert table["claim"].sum() == pytest.approx(
        sum(((np.concatenate([t.ravel() for t in one.values()])
              - np.concatenate([t.ravel() for t in two.values()])) ** 2).sum() / 4
            for one, two in halves), rel=1e-9,
    )  # fmt: skip
    assert table["weight"].to_numpy()[2:] == pytest.approx(a, abs=1e-4)
    assert table["bytes_up"].to_list()[:2] == [table["bytes_up"][2] + 2 * 8] * 2  # a number a layer
