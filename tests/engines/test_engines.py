"""Engines: the same numbers from both, the same bits from the same seed, however it is run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import muster
import reference
from helpers import federation, gap, layers_of, module_of, random_layers, same_bits
from muster.engines import Compute, LoopEngine, StackedEngine, choose
from muster.engines.modules import stackable
from muster.engines.stacked_engine import StackedBatch
from muster.federation.ragged_rows import RaggedRows
from muster.tasks.classification import Multiclass
from muster.tasks.regression import Regression
from muster.tasks.task import has_slope, is_cross_entropy

M = muster.methods
LOCAL = muster.Local(steps=5, batch_size=4, lr=0.2)
DRAWN = muster.Local(steps=5, batch_size=4, lr=0.2, batches="independent")
DOUBLE = Compute(dtype="float64")


def go(fed, method, model, engine="auto", rounds=10, local=LOCAL, dtype="float64", **more):
    return muster.simulate(fed, method, model, rounds, local, dtype=dtype, engine=engine, **more)


@pytest.fixture(scope="module")
def fed():
    data, priority = reference.problem(0, clients=8)
    return federation(data, priority)


WORK = {"steps": LOCAL, "epochs": muster.Local(epochs=2, batch_size=7, lr=0.2), "drawn": DRAWN}
MODELS = {"softmax": muster.models.Softmax(), "mlp": muster.models.MLP((6, 5))}


@pytest.mark.parametrize(
    ("method", "local", "model"),
    [
        # Every method by name, by steps: tests/methods/test_baselines.py.
        pytest.param(
            method, local, model, id=f"{method.name}-{work}-{name}",
            marks=[] if method.name == "fedalign" else pytest.mark.slow,
        )
        for method in (M.fedalign(0.3), M.fedavg(), M.fedprox(0.5), M.local())
        for work, local in WORK.items()
        for name, model in MODELS.items()
    ],
)  # fmt: skip
def test_stacked_and_loop_give_the_same_numbers(fed, model, method, local):
    a = go(fed, method, model, "stacked", local=local)
    b = go(fed, method, model, "loop", local=local, processes=1)
    assert (a.engine, b.engine) == ("stacked", "loop")
    for name in a.weights:
        assert np.abs(a.weights[name] - b.weights[name]).max() < 1e-9
    assert a.clients["admitted"].equals(b.clients["admitted"])
    assert np.allclose(a.rounds["loss"], b.rounds["loss"], atol=1e-9)


STACKABLE = {
    "tanh": lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)),
    "layer norm": lambda: nn.Sequential(
        nn.Linear(5, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 4)
    ),
    "no bias": lambda: nn.Sequential(nn.Linear(5, 6, bias=False), nn.ReLU(), nn.Linear(6, 4)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(5, 6), nn.ReLU()), nn.Linear(6, 4)),
}


@pytest.mark.parametrize("name", STACKABLE)
def test_layers_with_a_stacked_form_agree_with_the_module_itself(fed, name):
    torch.manual_seed(0)
    model = STACKABLE[name]()
    assert not isinstance(stackable(model), str)
    a = go(fed, M.fedprox(0.3), model, "stacked", rounds=5)
    b = go(fed, M.fedprox(0.3), model, "loop", rounds=5, processes=1)
    for key in a.weights:
        assert np.abs(a.weights[key] - b.weights[key]).max() < 1e-9


def test_a_layer_used_twice_is_used_twice(fed):
    """One ReLU object in two places has a stacked form; one Linear in two places has none."""
    torch.manual_seed(0)
    act = nn.ReLU()
    model = nn.Sequential(nn.Linear(5, 6), act, nn.Linear(6, 6), act, nn.Linear(6, 4))
    a = go(fed, M.fedavg(), model, "stacked", rounds=4)
    b = go(fed, M.fedavg(), model, "loop", rounds=4, processes=1)
    for key in a.weights:
        assert np.abs(a.weights[key] - b.weights[key]).max() < 1e-9
    twice = nn.Linear(5, 5)
    assert (
        stackable(nn.Sequential(twice, nn.ReLU(), twice, nn.Linear(5, 4)))
        == "a parameter used twice"
    )


class Tied(nn.Module):
    """Two names for one parameter, and a parameter that is not used."""

    def __init__(self):
        super().__init__()
        self.a, self.out, self.spare = nn.Linear(5, 5), nn.Linear(5, 4), nn.Linear(3, 3)
        self.b = self.a

    def forward(self, x):
        return self.out(self.b(torch.relu(self.a(x))))


@pytest.mark.parametrize("method", [M.fedavg(), M.fedavgm(), M.scaffold()], ids=lambda m: m.name)
def test_tied_and_unused_parameters(fed, method):
    torch.manual_seed(0)
    run = go(fed, method, Tied(), rounds=3, processes=1)
    assert np.array_equal(run.weights["a.weight"], run.weights["b.weight"])
    torch.manual_seed(0)
    start = Tied().state_dict()
    assert not np.allclose(run.weights["a.weight"], start["a.weight"].numpy())
    assert np.allclose(run.weights["spare.weight"], start["spare.weight"].numpy())


def test_embeddings_of_tokens_have_a_stacked_form():
    draw = np.random.default_rng(0)
    data = [(draw.integers(0, 9, (12, 3)), draw.integers(0, 3, 12)) for _ in range(4)]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 3))
    fed = federation(data)
    a = go(fed, M.fedavg(), model, "stacked", rounds=4)
    b = go(fed, M.fedavg(), model, "loop", rounds=4, processes=1)
    for key in a.weights:
        assert np.abs(a.weights[key] - b.weights[key]).max() < 1e-9


class Residual(nn.Module):
    """A module of the user's own, which has no stacked form."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(5, 5), nn.Linear(5, 4)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return self.outer(x + self.drop(torch.relu(self.inner(x))))


def test_any_module_runs_and_its_own_parameters_are_the_start(fed):
    torch.manual_seed(0)
    model = Residual()
    before = {n: t.clone() for n, t in model.state_dict().items()}
    still = go(fed, M.fedavg(), model, rounds=1, local=muster.Local(steps=1, lr=0.0))
    assert still.engine == "loop"
    assert set(still.weights) == set(before)
    for name, t in before.items():
        assert np.allclose(still.weights[name], t.numpy())
    moved = go(fed, M.fedavg(), model, rounds=1)
    assert not np.allclose(moved.weights["inner.weight"], before["inner.weight"].numpy())
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items()), "left untouched"


def test_the_engine_is_chosen_from_the_model_and_can_be_forced(fed):
    mlp = muster.models.MLP((3,)).build(fed, 0)
    assert isinstance(choose(Compute(), mlp, fed, LOCAL), StackedEngine)
    assert isinstance(choose(Compute("loop"), mlp, fed, LOCAL), LoopEngine)
    assert isinstance(choose(Compute(), Residual(), fed, LOCAL), LoopEngine)
    with pytest.raises(
        muster.MusterError, match=r"Dropout .drop. draws numbers .* use engine='loop'"
    ):
        choose(Compute("stacked"), Residual(), fed, LOCAL)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without CUDA would run this")
def test_cuda_is_refused_where_there_is_none(fed):
    with pytest.raises(muster.MusterError, match="no CUDA device is present; use device='cpu'"):
        go(fed, M.fedavg(), muster.models.Softmax(), device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_cuda_gives_the_numbers_of_the_cpu(fed, engine):
    a = go(fed, M.fedalign(0.3), muster.models.MLP((6,)), engine, device="cuda")
    b = go(fed, M.fedalign(0.3), muster.models.MLP((6,)), engine)
    for name in a.weights:
        assert np.abs(a.weights[name] - b.weights[name]).max() < 1e-9


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_same_seed_same_bits_and_other_seeds_differ(fed, engine, dtype):
    more = {"processes": 1} if engine == "loop" else {}
    runs = [
        go(fed, M.fedalign(0.3), muster.models.MLP((6,)), engine, dtype=dtype, seed=s, **more)
        for s in (1, 1, 2)
    ]
    assert same_bits(runs[0], runs[1])
    assert not np.array_equal(runs[0].weights["1.weight"], runs[2].weights["1.weight"])
    assert runs[0].weights["1.weight"].dtype == dtype


@pytest.mark.parametrize("local", [LOCAL, DRAWN], ids=["shuffled", "independent"])
def test_same_bits_whatever_the_number_of_processes(fed, local):
    torch.manual_seed(0)
    model = Residual()
    runs = [
        go(fed, M.fedalign(0.5), model, "loop", 4, local, dtype="float32", processes=n)
        for n in (1, 2, 3)
    ]
    assert same_bits(runs[0], runs[1])
    assert same_bits(runs[0], runs[2])


@pytest.mark.parametrize("rule", ["shuffled", "independent"])
def test_the_compiled_loop_gives_the_numbers_of_the_fused_path(monkeypatch, rule):
    draw = np.random.default_rng(0)
    sizes = (3, 40, 25, 11)
    data = [(draw.normal(size=(n, 9)), draw.integers(0, 7, n)) for n in sizes]
    layers = random_layers((9, 7))
    local = muster.Local(epochs=2, batch_size=6, lr=0.3, batches=rule)
    from muster.engines import stacked_engine

    for method in (M.fedavg(), M.fedprox(0.6)):
        results = []
        for threshold in (0.0, float("inf")):
            monkeypatch.setattr(stacked_engine, "COMPILE_FROM", threshold)
            fed = federation(data)
            results.append(go(fed, method, module_of(layers), local=local, rounds=6))
        assert gap(layers_of(results[0]), layers_of(results[1])) < 1e-9


@pytest.mark.parametrize(("rounds", "compiled"), [(600, True), (599, False)])
def test_small_rounds_are_compiled_where_a_run_has_many_of_them(monkeypatch, rounds, compiled):
    """From 3,000 steps on: 600 rounds of five. Stopped after the first, which shows it."""
    from muster.engines.stacked_engine import StackedCohort

    called, real = [], StackedCohort._run_kernel

    def run_kernel(*how):
        called.append(1)
        real(*how)

    monkeypatch.setattr(StackedCohort, "_run_kernel", run_kernel)

    def stop(row):
        raise KeyboardInterrupt

    draw = np.random.default_rng(0)
    fed = federation([(draw.normal(size=(9, 4)), draw.integers(0, 3, 9)) for _ in "ab"])
    local = muster.Local(steps=5, batch_size=3, lr=0.1)
    with pytest.raises(KeyboardInterrupt, match="after round 1"):
        muster.simulate(fed, M.fedavg(), muster.models.Softmax(), rounds, local, on_round=stop)
    assert bool(called) == compiled


@pytest.mark.parametrize("threshold", [0.0, float("inf")])
def test_bytes_are_pixels_on_every_path(monkeypatch, threshold):
    from muster.engines import stacked_engine

    monkeypatch.setattr(stacked_engine, "COMPILE_FROM", threshold)
    draw = np.random.default_rng(0)
    raw = [(draw.integers(0, 256, (20, 8)).astype(np.uint8), draw.integers(0, 3, 20)) for _ in "ab"]
    scaled = [(x / 255, y) for x, y in raw]
    a = go(federation(raw), M.fedavg(), muster.models.Softmax(), rounds=3)
    b = go(federation(scaled), M.fedavg(), muster.models.Softmax(), rounds=3)
    assert np.abs(a.weights["1.weight"] - b.weights["1.weight"]).max() < 1e-12


def test_batch_norm_trains_evaluates_and_averages_its_statistics():
    draw = np.random.default_rng(0)
    data = [(draw.normal(size=(9, 3, 8, 8)), draw.integers(0, 4, 9)) for _ in range(3)]
    fed = federation(data)
    run = go(
        fed, M.fedavg(), muster.models.CNN(), rounds=2, local=muster.Local(epochs=1, batch_size=4)
    )
    # 9 rows in batches of 4 leave one row over, which BatchNorm cannot train on alone.
    assert run.engine == "loop"
    assert run.clients["steps"].unique().to_list() == [2]
    assert np.isfinite(run.weights["1.running_mean"]).all()
    assert np.abs(run.weights["1.running_mean"]).max() > 0
    assert "1.num_batches_tracked" in run.weights


def test_batch_norm_refuses_a_client_of_one_row():
    draw = np.random.default_rng(0)
    data = [(draw.normal(size=(n, 3, 8, 8)), np.arange(n) % 2) for n in (5, 1)]
    with pytest.raises(muster.MusterError, match="BatchNorm cannot train on client 1"):
        go(federation(data), M.fedavg(), muster.models.CNN())


def test_each_clients_own_model_has_the_same_measures_on_both_engines(fed):
    stack = {
        "0.weight": torch.randn(fed.n, 4, 5, dtype=torch.float64),
        "0.bias": torch.randn(fed.n, 4, dtype=torch.float64),
    }
    model = nn.Sequential(nn.Linear(5, 4))
    who = np.array([3, 0, 5])
    some = {n: t[:3] for n, t in stack.items()}
    a = StackedEngine(model, fed, LOCAL, DOUBLE).appraise_each(some, who)
    b = LoopEngine(model, fed, LOCAL, DOUBLE).appraise_each(some, who)
    assert np.allclose(a.loss, b.loss, atol=1e-12)
    assert np.array_equal(a.accuracy, b.accuracy)


@pytest.mark.parametrize("hidden", [[], [6], [6, 5]])
def test_the_fused_gradient_is_that_of_autograd(fed, hidden):
    width, classes = fed.train.x.shape[1], fed.classes
    widths = [width, *hidden, classes]
    pairs = zip(widths, widths[1:], strict=False)
    layers = [layer for a, b in pairs for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())]
    engine = StackedEngine(torch.nn.Sequential(*layers[:-1]), fed, LOCAL, DOUBLE)
    model = {n: t.double() for n, t in engine.main.module.state_dict().items()}
    stack = {n: t + torch.randn(5, *t.shape, dtype=torch.float64) for n, t in model.items()}
    scale = torch.tensor([[0.25] * 4 + [0.0] * 3, [1 / 7] * 7] + [[0.2] * 5 + [0.0] * 2] * 3)
    x, y = torch.randn(5, 7, width).double(), torch.randint(classes, (5, 7))
    counts = np.array([4, 7, 5, 5, 5])
    scale = scale.double()
    (flat,) = engine.flatten(x[None], y[None], scale[None])
    batch = StackedBatch(engine, x, y, scale, counts, flat)
    assert engine.fused is not None
    fused = batch(stack)
    engine.fused = None
    noted = batch(stack)
    assert list(fused) == list(noted) == list(stack)
    for name, t in noted.items():
        assert torch.allclose(fused[name], t, rtol=0, atol=1e-14)


LOGISTIC = [muster.tasks.binary(), muster.tasks.binary(smoothing=0.2)]
SQUARES = [muster.tasks.regression()] * 3
CLOSED = [*((task, 1) for task in LOGISTIC), *zip(SQUARES, (1, 2, 3), strict=True)]


@pytest.mark.parametrize(("task", "outputs"), CLOSED)
@pytest.mark.parametrize("rows", [3, 40])
def test_the_gradient_of_one_linear_layer_is_that_of_autograd(task, outputs, rows):
    squares = task in SQUARES
    y = np.ones((6, outputs), np.float32) if squares else np.arange(6) % 2
    fed = muster.Federation.from_arrays(train=[(np.eye(6, 5), y)], priority=[0])
    module = nn.Sequential(nn.Linear(5, outputs))
    engine = StackedEngine(module, fed, LOCAL, Compute("stacked"), task)
    stack = {"0.weight": torch.randn(4, outputs, 5), "0.bias": torch.randn(4, outputs)}
    scale = torch.full((4, rows), 1 / rows)
    scale[2, 1:] = 0.0
    y = torch.randn(4, rows, outputs) if squares else torch.randint(2, (4, rows))
    batch = StackedBatch(
        engine, torch.randn(4, rows, 5), y, scale, np.array([rows, rows, 1, rows]), None
    )
    assert engine.linear == "0."
    closed = batch(stack)
    engine.linear = None
    noted = batch(stack)
    assert list(closed) == list(noted) == list(stack)
    for name, t in noted.items():
        # A third is no float: there two orders of the same products differ in the last bit.
        off = 1e-6 if outputs == 3 else 0.0
        assert torch.allclose(closed[name], t, rtol=off, atol=off)


@pytest.mark.parametrize("rows", [3, 40])
def test_numbers_in_a_plain_row_have_the_gradient_of_autograd(rows):
    """Targets `[clients, rows]`, as federations with one number a row have them."""
    fed = muster.Federation.from_arrays(train=[(np.eye(6, 5), np.arange(6) / 4)], priority=[0])
    task = muster.tasks.regression()
    engine = StackedEngine(nn.Sequential(nn.Linear(5, 1)), fed, LOCAL, Compute("stacked"), task)
    stack = {"0.weight": torch.randn(4, 1, 5), "0.bias": torch.randn(4, 1)}
    scale, y = torch.full((4, rows), 1 / rows), torch.randn(4, rows)
    batch = StackedBatch(engine, torch.randn(4, rows, 5), y, scale, np.full(4, rows), None)
    closed = batch(stack)
    engine.linear = None
    assert all(torch.equal(closed[name], t) for name, t in batch(stack).items())


class Absolute(Regression):
    def loss(self, z, y):
        return (z.squeeze(-1) - y).abs()


class Twice(Absolute):
    def loss(self, z, y):
        return 2 * super().loss(z, y)

    def slope(self, z, y):
        return 2 * (z - y.unsqueeze(-1)).sign()


class Together(Regression):
    """A loss of all rows together: the largest error."""

    averages_rows = False

    def set_loss(self, z, y, w):
        return ((z.squeeze(-1) - y).abs() * (w > 0)).amax(-1)


class Passing:
    """A task that passes its attributes on."""

    def __init__(self, task):
        self._task = task

    def __getattr__(self, name):
        return getattr(self._task, name)


class Margin(Multiclass):
    def loss(self, z, y):
        true = z.gather(-1, y[..., None]).squeeze(-1)
        return (1 + z.logsumexp(-1) - true).square()


def test_a_loss_that_a_subclass_replaces_is_not_differentiated_as_the_first():
    tasks = (Regression(), Absolute(), Twice(), Together(), Passing(Regression()))
    assert [has_slope(t) for t in tasks] == [1, 0, 1, 0, 1]
    replaced = Regression()
    object.__setattr__(replaced, "loss", lambda z, y: z.sum(-1) + y)
    assert not has_slope(replaced)
    known = (Multiclass(), Margin(), Multiclass(smoothing=0.1), Regression(), Passing(Multiclass()))
    assert [is_cross_entropy(t) for t in known] == [1, 0, 0, 0, 1]


@pytest.mark.parametrize("task", [Absolute(), Twice(), Together(), Margin()])
def test_both_engines_train_on_the_loss_of_a_subclass(task):
    draw = np.random.default_rng(0)
    classes = isinstance(task, Margin)
    data = [(draw.normal(size=(8, 3)).astype(np.float32),
             draw.integers(3, size=8) if classes else draw.normal(size=8).astype(np.float32))
            for _ in range(2)]  # fmt: skip
    fed = muster.Federation.from_arrays(train=data, priority=[0])
    model = muster.models.Softmax() if classes else muster.models.Linear()
    stacked, loop = (
        muster.simulate(fed, M.fedavg(), model, 3, LOCAL, engine=engine, task=task).weights
        for engine in ("stacked", "loop")
    )
    for name, t in stacked.items():
        assert t == pytest.approx(loop[name], abs=1e-5)


def test_clients_may_be_asked_in_any_order(fed):
    engine = StackedEngine(nn.Sequential(nn.Linear(5, 4)), fed, LOCAL, DOUBLE)
    model = {n: t.double() for n, t in engine.main.state.items()}
    order = np.array([7, 2, 5, 0, 1, 3, 4, 6])
    assert np.allclose(
        engine.appraise(model, order).loss, engine.appraise(model, np.arange(8)).loss[order]
    )


def test_shared_and_weighted_test_rows_are_measured_with_their_weights():
    draw = np.random.default_rng(0)
    x, y = torch.from_numpy(draw.normal(size=(6, 5))), torch.from_numpy(draw.integers(0, 4, 6))
    rows = np.array([0, 1, 2, 3, 2, 3, 4, 5, 0])
    weight = np.array([0.5, 0.25, 0.25, 0.1, 0.2, 0.3, 0.4, 0.9, 0.1])
    data = RaggedRows(x, y, np.array([0, 3, 7, 9]), rows, weight)
    fed = muster.Federation.from_rows(data, classes=4)
    engine = StackedEngine(nn.Sequential(nn.Linear(5, 4)), fed, LOCAL, DOUBLE)
    model = {n: t.double() for n, t in engine.main.state.items()}
    layers = [tuple(t.numpy() for t in model.values())]
    one = np.array([reference.loss(layers, x.numpy()[[i]], y.numpy()[[i]]) for i in range(6)])
    expected = [weight[a:b] @ one[rows[a:b]] for a, b in ((0, 3), (3, 7), (7, 9))]
    assert np.allclose(engine.appraise(model, np.arange(3)).loss, expected, atol=1e-12)
    stack = {n: t.expand(3, *t.shape) for n, t in model.items()}
    assert np.allclose(engine.appraise_each(stack, np.arange(3)).loss, expected, atol=1e-12)


def test_a_worker_that_fails_says_why_and_one_that_dies_is_noticed():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(5, 4)

        def forward(self, x):
            if torch.is_grad_enabled():  # a client trains: not so when the module is tried
                raise ArithmeticError("no training today")
            return self.inner(x)

    data, _ = reference.problem(0, clients=4)
    with pytest.raises(RuntimeError, match="no training today"):
        go(federation(data), M.fedavg(), Fails(), processes=2)

    class Dies(Fails):
        def forward(self, x):
            if torch.is_grad_enabled():
                import os

                os._exit(9)
            return self.inner(x)

    with (
        pytest.warns(muster.MusterWarning, match="another one takes over"),
        pytest.raises(muster.MusterError, match=r"ended unexpectedly \(exit code 9"),
    ):
        go(federation(data), M.fedavg(), Dies(), engine="loop", processes=2)
