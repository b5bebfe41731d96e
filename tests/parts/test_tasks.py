"""Every task: its loss against torch, on both engines, and what is said of what cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch.nn import functional as F

import muster
import tasks as case
from helpers import same_bits
from muster.base.registry import kinds
from muster.tasks.task import Scoring

M, T = muster.methods, muster.tasks
torch.manual_seed(0)
Z, Y = torch.randn(2, 6, 4).double(), torch.randint(4, (2, 6))  # two clients of six rows
WEIGHTS = (0.5, 1.0, 2.0, 0.1)


def cox(z, y):
    """The negative log partial likelihood over the events, by two loops."""
    terms = []
    for (time, event), eta in zip(y, z[:, 0], strict=True):
        if event > 0:
            at_risk = [z[j, 0] for j in range(len(y)) if y[j, 0] >= time]
            terms.append(torch.logsumexp(torch.stack(at_risk), 0) - eta)
    return torch.stack(terms).mean() if terms else z.sum() * 0.0


MEANS = {
    "regression": lambda z, y: F.mse_loss(z[:, 0], y),
    "outputs": F.mse_loss,
    "huber": lambda z, y: F.huber_loss(z[:, 0], y, delta=0.5),
    "poisson": lambda z, y: F.poisson_nll_loss(z[:, 0], y),
    "binary": lambda z, y: F.binary_cross_entropy_with_logits(z[:, 0], y.double()),
    "multiclass": F.cross_entropy,
    "multilabel": lambda z, y: F.binary_cross_entropy_with_logits(z, y.double()),
    "survival": cox,
    "next_token": lambda z, y: torch.stack(
        [F.cross_entropy(a, b, ignore_index=-100) for a, b in zip(z, y, strict=True)]
    ).mean(),
}


def by_hand(kind, fed, rounds, steps, lr):
    """FedAvg on everyone, full batches, in plain torch; then the objective's loss."""
    mean, share = MEANS[kind], fed.train.sizes / fed.train.sizes.sum()
    model = case.model_of(kind)
    for _ in range(rounds):
        replies = []
        for k in range(fed.n):
            own = case.model_of(kind)
            own.load_state_dict(model.state_dict())
            optimizer = torch.optim.SGD(own.parameters(), lr)
            for _ in range(steps):
                optimizer.zero_grad()
                x, y = fed.train.client(k)
                mean(own(x), y).backward()
                optimizer.step()
            replies.append([p.detach() for p in own.parameters()])
        with torch.no_grad():
            for i, p in enumerate(model.parameters()):
                p.copy_(sum(s * r[i] for s, r in zip(share, replies, strict=True)))
    return model.eval()


@pytest.mark.parametrize("kind", MEANS)
def test_every_task_trains_as_plain_torch_does_on_both_engines(kind):
    """Clients of different sizes, so that the stack is padded; losses and scores too."""
    task, fed = case.TASKS[kind][0], case.of(kind)
    model = by_hand(kind, fed, 2, 3, 0.1)
    local = muster.Local(steps=3, batch_size=None, lr=0.1)
    for engine in ("stacked", "loop"):
        run = muster.simulate(
            fed, M.fedavg(), case.model_of(kind), 2, local, task=task, dtype="float64",
            engine=engine, processes=1,
        )  # fmt: skip
        for name, value in model.state_dict().items():
            assert np.abs(run.weights[name] - value.numpy()).max() < 1e-9, name
        for k in range(fed.n):
            x, y = fed.test.client(k)
            with torch.no_grad():
                z = model(x)
            assert run.final["test_loss"][k] == pytest.approx(float(MEANS[kind](z, y)), abs=1e-9)
            if kind == "regression":
                expected = metrics.r2_score(y, z[:, 0])
                assert run.final["test_r2"][k] == pytest.approx(expected, abs=1e-9)
            if kind == "binary":
                expected = metrics.roc_auc_score(y, z[:, 0])
                assert run.final["test_auc"][k] == pytest.approx(expected, abs=1e-9)
            if kind == "next_token":
                expected = np.exp(float(MEANS[kind](z, y)))
                assert run.final["test_perplexity"][k] == pytest.approx(expected, abs=1e-9)
        first = task.score_name
        pooled = fed.objective @ run.final[f"test_{first}"].to_numpy()
        assert run.rounds[f"test_{first}"][-1] == pytest.approx(pooled, abs=1e-9)
        words = {*run.rounds.columns, *run.final.columns, *run.clients.columns}
        assert ("accuracy" in task.scores) == any(c.endswith("accuracy") for c in words)
        assert first in run.clients.columns


@pytest.mark.parametrize("kind", ["multiclass", "survival"])
def test_each_client_s_own_model_is_scored_in_a_stack_as_alone(kind):
    task, fed = case.TASKS[kind][0], case.of(kind)
    runs = [
        muster.simulate(
            fed, M.ditto(0.5), case.model_of(kind), 2, muster.Local(steps=2, batch_size=4, lr=0.1),
            task=task, dtype="float64", engine=engine, processes=1,
        )
        for engine in ("stacked", "loop")
    ]  # fmt: skip
    name = f"own_test_{task.score_name}"
    assert runs[0].rounds[name][-1] == pytest.approx(runs[1].rounds[name][-1], abs=1e-9)
    assert runs[0].rounds["own_loss"][-1] == pytest.approx(runs[1].rounds["own_loss"][-1], abs=1e-9)


def test_weights_and_smoothing_are_torch_s_row_by_row():
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)
    expected = [
        F.cross_entropy(z, y, weights, reduction="none", label_smoothing=0.2)
        for z, y in zip(Z, Y, strict=True)
    ]
    task = T.multiclass(WEIGHTS, 0.2)
    assert not task.cross_entropy
    assert torch.allclose(task.loss(Z, Y), torch.stack(expected), atol=1e-12, rtol=0)

    z, y = Z[..., :1], (Y > 1).long()
    one = torch.where(y > 0, 3.1, 0.5).double()
    one[y > 0] = 3.1
    smooth = y.double() * 0.9 + 0.05
    expected = F.binary_cross_entropy_with_logits(z[..., 0], smooth, one, reduction="none")
    assert torch.allclose(T.binary((0.5, 3.1), 0.1).loss(z, y), expected, atol=1e-12, rtol=0)

    labels = (Z.roll(1, 1) > 0).long()
    expected = F.binary_cross_entropy_with_logits(Z, labels.double(), weights, reduction="none")
    found = T.multilabel(WEIGHTS).loss(Z, labels)
    assert torch.allclose(found, expected.mean(-1), atol=1e-12, rtol=0)

    expected = F.poisson_nll_loss(
        Z, Y[..., None].expand_as(Z).double(), full=True, reduction="none"
    )
    found = T.poisson(full=True).loss(Z, Y[..., None].expand_as(Z))
    assert torch.allclose(found, expected.mean(-1), atol=1e-12, rtol=0)


def test_cox_takes_padding_ties_and_sets_without_events():
    draw = np.random.default_rng(0)
    y = torch.from_numpy(
        np.stack([np.round(draw.exponential(size=(3, 8)), 1), draw.integers(0, 2, (3, 8))], -1)
    )
    y[2, :, 1] = 0  # no events
    z = torch.randn(3, 8, 1).double().requires_grad_()
    counts = torch.tensor([8, 5, 8])
    weight = (torch.arange(8) < counts[:, None]) / counts[:, None].double()
    found = T.survival().set_loss(z, y, weight)
    for k, n in enumerate(counts.tolist()):
        assert float(found[k].detach()) == pytest.approx(
            float(cox(z[k, :n], y[k, :n]).detach()), abs=1e-9
        )
    (g,) = torch.autograd.grad(found.sum(), z)
    assert torch.isfinite(g).all()
    assert (g[1, 5:] == 0).all()
    assert (g[2] == 0).all()


def test_a_function_is_a_task():
    fed = case.of("custom")

    def absolute(z, y):
        return (z[:, 0] - y).abs()

    def near(z, y):
        return ((z[:, 0] - y).abs() < 1.0).to(z.dtype)

    args = {"rounds": 2, "dtype": "float64", "local": muster.Local(steps=2, lr=0.01)}
    runs = [
        muster.simulate(fed, M.fedalign(5.0), case.network(1), task=absolute, engine=e, **args)
        for e in ("stacked", "loop")
    ]
    for name, w in runs[0].weights.items():
        assert np.abs(runs[1].weights[name] - w).max() < 1e-9
    assert runs[0].rounds["train_minus_loss"][-1] == pytest.approx(-runs[0].rounds["loss"][-1])
    named = muster.simulate(
        fed, M.fedavg(), case.network(1), task=T.custom(absolute, near, "within_one"), **args
    )
    assert 0 <= named.rounds["test_within_one"][-1] <= 1
    with pytest.raises(muster.MusterError, match=r"gives \(\) for .* rows; give the loss of each"):
        muster.simulate(
            fed, M.fedavg(), case.network(1), task=lambda z, y: absolute(z, y).mean(), **args
        )


@pytest.mark.parametrize("higher", [True, False])
def test_the_score_decides_by_its_direction(higher):
    """R2: more is better; mean absolute error: less. Who joins is who is on the right side."""
    fed = case.of("regression")
    task = T.regression(scores=("r2",) if higher else ("mae",))
    method = M.fedalign(0.2, criterion="score", warmup=0)
    local = muster.Local(steps=3, batch_size=None, lr=0.05)
    run = muster.simulate(fed, method, case.network(1), 4, local, task=task, dtype="float64")
    name, some = task.score_name, 0
    for t in range(1, 5):
        here = run.clients.filter(run.clients["round"] == t)
        w, score = fed.objective, here[name].to_numpy()
        reference = w @ score
        for k in (2, 3):
            suits = score[k] > reference - 0.2 if higher else score[k] < reference + 0.2
            assert here["joined"][k] == suits
            why = f"{name} too {'low' if higher else 'high'}"
            assert here["reason"][k] in (("aligned", "score outside the band") if suits else (why,))
            some += int(suits)
    assert 0 < some < 8, "some joined, and some did not"


def test_the_paper_s_word_is_the_score():
    fed = case.of("multiclass")
    runs = [
        muster.simulate(fed, M.fedalign(0.3, criterion=c, warmup=0), muster.models.Softmax(), 3)
        for c in ("accuracy", "score")
    ]
    assert same_weights(*runs)
    assert runs[0].clients["joined"].equals(runs[1].clients["joined"])


def same_weights(a, b):
    return all(np.array_equal(w, b.weights[name]) for name, w in a.weights.items())


def test_a_client_without_a_score_is_left_out_of_it_and_not_refused():
    """A client of one class has no AUC: it is silent where the AUC decides, and counts where the
    loss does; the pooled AUC is over the others."""
    draw = np.random.default_rng(0)
    clients = [(draw.normal(size=(8, 4)), np.array([0, 1] * 4)) for _ in range(3)]
    clients.append((draw.normal(size=(8, 4)), np.ones(8, int)))
    with pytest.warns(muster.MusterWarning, match="hold a single class"):
        fed = muster.Federation.from_arrays(clients, priority=[0, 1, 3])
    task = T.binary(scores=("auc", "accuracy"))
    for criterion in ("score", "loss"):
        run = muster.simulate(
            fed, M.fedalign(1.0, criterion=criterion, warmup=0), case.network(1).float(), 2,
            task=task,
        )  # fmt: skip
        assert run.rounds["refused"].sum() == 0
        auc = run.final["train_auc"]
        assert auc[3] is None
        assert run.rounds["train_auc"][-1] == pytest.approx((auc[0] + auc[1]) / 2)


def test_what_is_useful_is_better_than_a_guess():
    fed = case.of("regression")
    run = muster.simulate(
        fed, M.fedavg(), muster.models.Linear(), 40,
        muster.Local(epochs=1, batch_size=None, lr=0.1), task=T.regression(),
    )  # fmt: skip
    variance = [float(fed.train.client(k)[1].var(correction=0)) for k in range(fed.n)]
    assert run.final["useful"].to_list() == [
        bool(loss < v) for loss, v in zip(run.final["train_loss"], variance, strict=True)
    ]
    assert run.final["useful"].any()
    y = [fed.train.client(k)[1] for k in range(fed.n)]
    middle = sum(w * v.mean() for w, v in zip(fed.objective, y, strict=True))
    guess = sum(w * ((v - middle) ** 2).mean() for w, v in zip(fed.objective, y, strict=True))
    assert run.facts["constant_loss"] == pytest.approx(float(guess), abs=1e-9)
    assert "majority_accuracy" not in run.facts
    worse = muster.simulate(
        fed, M.fedavg(), case.network(1), 1, muster.Local(steps=1, lr=0.0), task=T.regression()
    )
    assert any("worse than a constant prediction" in c for c in worse.warnings)


def test_targets_that_are_whole_numbers_can_be_numbers():
    """Counts are stored as classes until a task says they are numbers."""
    x = np.random.default_rng(0).normal(size=(6, 4))
    fed = muster.Federation.from_arrays([(x, [0, 1, 2, 3, 7, 1]), (x, [2, 2, 0, 1, 1, 0])])
    told = muster.Federation.from_arrays(
        [(x, [0.0, 1, 2, 3, 7, 1]), (x, [2.0, 2, 0, 1, 1, 0])], classes=0
    )
    assert fed.classes == 8
    assert told.classes == 0
    assert repr(told) == "Federation(2 clients, 2 priority, 12 rows, a number to predict)"
    a, b = (
        muster.simulate(f, M.fedavg(), muster.models.Linear(), 2, task=T.regression())
        for f in (fed, told)
    )
    assert same_bits(a, b)


def test_names_and_files():
    assert set(kinds(T.Task)) >= {
        "multiclass", "binary", "multilabel", "regression", "huber", "poisson", "survival",
        "next_token",
    }  # fmt: skip
    from muster.config.experiment import load

    chosen = load({"task": {"kind": "binary", "weights": [1, 2], "scores": ["f1", "auc"]}})
    assert chosen.settings.task == T.binary((1.0, 2.0), scores=("f1", "auc"))


X = np.ones((4, 4))
WRONG = {
    "numbers for classes": (
        lambda: run_of(case.of("regression"), T.multiclass(), 1),
        "task multiclass: it takes classes .* these targets are a number to predict; take",
    ),
    "too many classes": (
        lambda: run_of(case.of("multiclass"), T.binary(), 1), "task binary: 3 classes; allowed: 2"),
    "too many outputs": (
        lambda: run_of(case.of("regression"), T.regression(), 2),
        r"shape \(2, 2\); by its task \(Regression.*so it must be \(2, 1\)"),
    "too few outputs": (
        lambda: run_of(case.of("outputs"), T.regression(), 1), r"so it must be \(2, 2\)"),
    "no pair": (
        lambda: run_of(case.of("regression"), T.survival(), 1), r"allowed: 2, \(time, event\)"),
    "unknown score": (lambda: T.regression(scores=("auc",)), "unknown score 'auc'.*r2"),
    "no score": (lambda: T.binary(scores=()), "scores: none; name at least one of"),
    "weights": (lambda: T.binary(weights=(1.0,)), "weights: .*allowed: two, of 0 and of 1"),
    "too few weights": (
        lambda: run_of(case.of("multiclass"), T.multiclass((1.0, 1.0)), 3),
        "weights: 2 for 3 outputs"),
    "a model by name for tokens": (
        lambda: muster.simulate(
            case.of("next_token"), M.fedavg(), muster.models.Linear(), 1, task=T.next_token()),
        "model: the task does not say how many outputs"),
    "smoothing": (lambda: T.multiclass(smoothing=2), "smoothing: 2; allowed"),
}  # fmt: skip


def run_of(fed, task, outputs):
    return muster.simulate(fed, M.fedavg(), case.network(outputs), 1, task=task, dtype="float64")


@pytest.mark.parametrize("what", WRONG)
def test_impossible_settings_are_refused_in_one_line(what):
    do, says = WRONG[what]
    with pytest.raises(muster.MusterError, match=says) as caught:
        do()
    assert "\n" not in str(caught.value)


def test_tuning_knows_which_way_a_score_is_better():
    from muster.study.tune import Tune

    best = {m: Tune(measure=m).best for m in ("test_r2", "test_mae", "mean_test_perplexity")}
    assert best == {"test_r2": "max", "test_mae": "min", "mean_test_perplexity": "min"}


def tokens(change):
    x, y = case.rows("next_token", np.random.default_rng(0), 6, 0)
    return [(x, change(y.copy()))] * 2


def put(at, value):
    def change(y):
        y[at] = value
        return y

    return change


REAL = np.random.default_rng(0).normal(size=(6, 4))


@pytest.mark.parametrize(
    ("clients", "task", "message"),
    [
        (
            tokens(put((1, 2), -1)),
            T.next_token(),
            "next_token: client 0: token -1; tokens are 0 or",
        ),
        (tokens(put((1, 2), 7)), T.next_token(), "token 7; tokens are 0 to 6, as the model has"),
        (tokens(put(2, -100)), T.next_token(), r"no place counts \(all are -100\); drop that row"),
        (tokens(lambda y: y + 0.5), T.next_token(), "targets are float64 .*; give a token"),
        (tokens(lambda y: abs(y[:, 0])), T.next_token(), "targets are int64 .*; give a token"),
        ([(REAL, [[0, 1, 2]] * 6)], T.multilabel(), "multilabel: client 0: label 2; labels are 0"),
        ([(REAL, [[0, 1, 0.5]] * 6)], T.multilabel(), "label 0.5; labels are 0 and 1"),
        (
            [(REAL, [1, 2, -1, 0, 1, 1.5])],
            T.poisson(),
            "poisson: .*target -1; counts are 0 or more",
        ),
    ],
)
def test_targets_that_cannot_be_are_refused_in_one_line(clients, task, message):
    model = case.reader() if isinstance(task, T.next_token) else case.network(3)
    with pytest.raises(muster.MusterError, match=message) as e:
        muster.simulate(muster.Federation.from_arrays(clients), M.fedavg(), model, 1, task=task)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: (z[:, 0] - y) ** 2 / y.var(),
        lambda z, y: -torch.log_softmax(z[:, 0], 0) * y,
    ],
)
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_loss_that_looks_across_rows_is_refused(loss, engine):
    with pytest.raises(muster.MusterError, match="loss of a row depends on the rows next to it"):
        muster.simulate(
            case.of("regression"), M.fedavg(), case.network(1), 1, task=loss, engine=engine
        )


def test_a_loss_that_wants_classes_says_how_it_gets_them():
    def loss(z, y):
        return F.cross_entropy(z, y, reduction="none")

    fed, how = case.of("multiclass"), {"dtype": "float64", "rounds": 2}
    with pytest.raises(muster.MusterError, match=r'custom\(loss, targets="classes"\)') as e:
        muster.simulate(fed, M.fedavg(), case.network(3), task=loss, **how)
    assert "\n" not in str(e.value)
    own = muster.simulate(
        fed, M.fedavg(), case.network(3), task=T.custom(loss, targets="classes"), **how
    )
    usual = muster.simulate(fed, M.fedavg(), case.network(3), **how)
    assert own.rounds["loss"].to_list() == pytest.approx(usual.rounds["loss"].to_list())


def test_a_score_of_ones_own_with_a_known_name_has_its_direction():
    def far(z, y):
        return (z[:, 0] - y).abs()

    higher = [
        Scoring(T.custom(far, far, name, **more)).first.higher
        for name, more in (("mae", {}), ("mae", {"higher": True}), ("mine", {}))
    ]
    assert higher == [False, True, True]


def test_a_score_is_named_once():
    with pytest.raises(muster.MusterError, match="scores: auc, auc; name each once"):
        T.binary(scores=("auc", "auc"))


@pytest.mark.parametrize(
    "task",
    [
        T.multiclass((1.0, 4.0, 2.0)),
        T.multiclass(smoothing=0.3),
        T.multiclass((1.0, 4.0, 2.0), 0.2),
        T.binary((1.0, 4.0)),
        T.binary((3.0, 1.0), 0.2),
        T.multilabel(smoothing=0.2),
    ],
)
def test_no_constant_beats_the_guess(task):
    """By its gradient, which is 0 at the best one."""
    y = torch.tensor([0, 1, 1, 0, 0, 0, 1, 0])
    if isinstance(task, T.multilabel):
        y = torch.stack([y, 1 - y, y], 1)
    z = task.guess(y, 3).requires_grad_()
    task.loss(z.expand(len(y), -1), y).mean().backward()
    assert z.grad.abs().max() < 1e-9
    assert z.shape[1] == (1 if isinstance(task, T.binary) else 3)


def test_times_that_differ_stay_apart_in_float32():
    fed = case.of("survival")
    late = fed.train.y.clone()
    late[:, 0] = 1.7e9 + 70 * late[:, 0]
    assert len(late[:, 0].float().unique()) < len(late[:, 0].unique()), "float32 merges them"
    runs = [
        muster.simulate(
            replace(fed, train=replace(fed.train, y=y), test=None), M.fedavg(), case.network(1), 2,
            muster.Local(steps=2, batch_size=None, lr=0.1), task=T.survival(), engine=engine,
        )
        for engine in ("stacked", "loop")
        for y in (fed.train.y, late)
    ]  # fmt: skip
    for early, after in (runs[:2], runs[2:]):
        for name, w in early.weights.items():
            np.testing.assert_array_equal(w, after.weights[name])


def eventless(*clients):
    fed = case.of("survival")
    y = fed.train.y.clone()
    for k in clients:
        y[fed.train.offsets[k] : fed.train.offsets[k + 1], 1] = 0
    return replace(fed, train=replace(fed.train, y=y), test=None)


def test_clients_without_an_event_have_no_loss_and_do_not_count_where_losses_do():
    how = {"rounds": 2, "task": T.survival(), "dtype": "float64"}
    fed = eventless(1, 3)  # a priority client and another
    run = muster.simulate(fed, M.fedalign(100.0, warmup=0), case.network(1), **how)
    assert run.final["train_loss"].is_null().to_list() == [False, True, False, True]
    at = dict(run.clients.filter(run.clients["round"] == 1).select("client", "reason").rows())
    assert at[1] == at[3] == "loss unknown"
    assert at[2] == "aligned"
    assert any("2 of 4 clients (1 in the objective) hold no event" in c for c in run.warnings)
    alone = muster.simulate(
        replace(fed, priority=np.arange(4) == 0, importance=np.eye(4)[0]),
        M.fedalign(100.0, warmup=0), case.network(1), **how,
    )  # fmt: skip
    assert run.rounds["reference_loss"][0] == alone.rounds["reference_loss"][0]
    fed = muster.with_solo(fed, case.network(1), 20, task=T.survival())
    claimed = muster.simulate(fed, M.maxfl(), case.network(1), **how).clients
    assert claimed.filter(claimed["client"].is_in([1, 3]))["weight"].sum() == 0
    assert set(claimed.filter(claimed["client"] == 3)["reason"]) == {"loss unknown"}
