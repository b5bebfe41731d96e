"""Tasks: any loss and score on both engines, cross-entropy as one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import scipy.special
import torch
from torch import nn
from torch.nn import functional

import muster
import reference
from helpers import federation, same_bits
from muster.base.registry import kinds
from muster.engines import stacked_engine
from muster.parts import Multiclass, Task

M = muster.methods
ROUNDS, STEPS, LR = 5, 3, 0.05


@dataclass(frozen=True)
class Squared:
    """Squared error of one output against the label as a number; its score is within a half."""

    score_name: ClassVar[str] = "within a half"
    cross_entropy: ClassVar[bool] = False

    def outputs(self, classes):
        return 1

    def loss(self, z, y):
        return (z.squeeze(-1) - y) ** 2

    def score(self, z, y):
        return (z.squeeze(-1) - y).abs() < 0.5


@dataclass(frozen=True)
class Smoothed:
    """Cross-entropy against labels smoothed by `amount`, written out."""

    amount: float = 0.2
    score_name: ClassVar[str] = "accuracy"
    cross_entropy: ClassVar[bool] = False

    def outputs(self, classes):
        return classes

    def loss(self, z, y):
        log = functional.log_softmax(z, -1)
        own = log.gather(-1, y.unsqueeze(-1)).squeeze(-1)
        return -(1 - self.amount) * own - self.amount * log.mean(-1)

    def score(self, z, y):
        return z.argmax(-1) == y


def smoothed_mean(z, y):
    return functional.cross_entropy(z, y, label_smoothing=0.2)


# name: (task, the same as a mean over rows, outputs, how many rows are right)
TASKS = {
    "squared error": (
        Squared(), lambda z, y: ((z[:, 0] - y) ** 2).mean(), 1,
        lambda z, y: ((z[:, 0] - y).abs() < 0.5).double().mean()),
    "label smoothing": (
        Smoothed(), smoothed_mean, 4, lambda z, y: (z.argmax(1) == y).double().mean()),
}  # fmt: skip


def network(outputs):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, outputs)).double()


def by_hand(data, module, mean, right, mu=0.0):
    """FedAvg (FedProx for mu > 0) on everyone in plain torch; the model's loss and score too."""
    data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in data]
    sizes = torch.tensor([len(y) for _, y in data], dtype=torch.float64)
    share = sizes / sizes.sum()
    w = [p.detach().clone() for p in module.parameters()]

    def at(values, x):
        return torch.func.functional_call(
            module, dict(zip([n for n, _ in module.named_parameters()], values, strict=True)), (x,)
        )

    for _ in range(ROUNDS):
        total = [torch.zeros_like(p) for p in w]
        for (x, y), p in zip(data, share, strict=True):
            own = [t.clone() for t in w]
            for _ in range(STEPS):
                leaves = [t.requires_grad_() for t in own]
                grads = torch.autograd.grad(mean(at(leaves, x), y), leaves)
                own = [
                    (t - LR * (g + mu * (t - t0))).detach()
                    for t, g, t0 in zip(leaves, grads, w, strict=True)
                ]
            total = [a + p * t for a, t in zip(total, own, strict=True)]
        w = total
    with torch.no_grad():
        loss = sum(p * mean(at(w, x), y) for (x, y), p in zip(data, share, strict=True))
        score = sum(p * right(at(w, x), y) for (x, y), p in zip(data, share, strict=True))
    return [t.numpy() for t in w], float(loss), float(score)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize("name", TASKS)
def test_a_task_of_ones_own_gives_the_numbers_of_plain_torch(name, mu, engine):
    task, mean, outputs, right = TASKS[name]
    data, _ = reference.problem(0)
    module = network(outputs)
    expected, loss, score = by_hand(data, module, mean, right, mu)
    run = muster.simulate(
        federation(data), M.fedprox(mu), module, ROUNDS, task=task, dtype="float64", engine=engine,
        local=muster.Local(steps=STEPS, batch_size=None, lr=LR), processes=2,
    )  # fmt: skip
    assert run.engine == engine
    gaps = [np.abs(a - b).max() for a, b in zip(run.weights.values(), expected, strict=True)]
    assert max(gaps) < 1e-9
    assert run.rounds["loss"][-1] == pytest.approx(loss, abs=1e-9)
    called = f"train_{task.score_name.replace(' ', '_')}"
    measured = np.average(run.final[called], weights=run.final["rows"])
    assert run.rounds[called][-1] == pytest.approx(score, abs=1e-9)
    assert ("train_accuracy" in run.rounds.columns) == (task.score_name == "accuracy")
    assert measured == pytest.approx(score, abs=1e-9)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_each_clients_own_model_is_judged_by_the_task(engine):
    """Ragged clients, padded in a stack: a task sees leading axes and must not mix rows."""
    data, _ = reference.problem(0)
    fed, module = federation(data), network(1)
    local = muster.Local(steps=4, batch_size=None, lr=LR)
    own = muster.solo(fed, module, 1, local, task=Squared(), dtype="float64", engine=engine)
    for k, (x, y) in enumerate(data):
        model = network(1)
        optimizer = torch.optim.SGD(model.parameters(), LR)
        x, y = torch.from_numpy(x), torch.from_numpy(y)
        for _ in range(4):
            optimizer.zero_grad()
            ((model(x)[:, 0] - y) ** 2).mean().backward()
            optimizer.step()
        with torch.no_grad():
            expected = float(((model(x)[:, 0] - y) ** 2).mean())
        assert own.train.loss[k] == pytest.approx(expected, abs=1e-9)


def test_only_cross_entropy_takes_the_forms_made_for_it(monkeypatch):
    """Smoothed by nothing is cross-entropy, but does not say so: the same numbers, another way."""
    data, _ = reference.problem(0)
    fed, taken = federation(data), []
    real = stacked_engine.fused_step

    def spy(*args):
        taken.append(1)
        return real(*args)

    monkeypatch.setattr(stacked_engine, "fused_step", spy)
    args = {"rounds": 3, "dtype": "float64", "local": muster.Local(steps=4, batch_size=6)}
    fused = muster.simulate(fed, M.fedavg(), network(4), **args)
    count = len(taken)
    assert count > 0
    plain = muster.simulate(fed, M.fedavg(), network(4), task=Smoothed(0.0), **args)
    assert len(taken) == count
    for name in fused.weights:
        assert np.abs(fused.weights[name] - plain.weights[name]).max() < 1e-9


def test_multiclass_is_the_default_and_has_a_name():
    data, _ = reference.problem(0)
    fed = federation(data)
    a = muster.simulate(fed, M.fedavg(), muster.models.Softmax(), 2)
    b = muster.simulate(fed, M.fedavg(), muster.models.Softmax(), 2, task=muster.tasks.multiclass())
    assert same_bits(a, b)
    assert kinds(Task)["multiclass"] is Multiclass
    assert Multiclass().score_name == "accuracy"


def test_multiclass_is_cross_entropy_and_accuracy_over_any_leading_axes():
    torch.manual_seed(0)
    z, y = torch.randn(3, 2, 7, 4).double(), torch.randint(4, (3, 2, 7))
    task = Multiclass()
    for i in range(3):
        for j in range(2):
            expected = functional.cross_entropy(z[i, j], y[i, j], reduction="none")
            assert torch.allclose(task.loss(z, y)[i, j], expected, atol=1e-15)
            assert torch.equal(task.score(z, y)[i, j], z[i, j].argmax(1) == y[i, j])


@pytest.mark.parametrize("classes", [2, 10, 15, 16, 40])
@pytest.mark.parametrize("rows", [1, 255, 256, 3001])
def test_cross_entropy_is_scipys_for_any_number_of_rows_and_classes(rows, classes):
    """It takes another way where rows are many and classes few."""
    torch.manual_seed(0)
    z, y = 30 * torch.randn(rows, classes), torch.randint(classes, (rows,))
    exact = -scipy.special.log_softmax(z.double().numpy(), 1)[np.arange(rows), y.numpy()]
    assert np.allclose(Multiclass().loss(z, y), exact, rtol=1e-5, atol=1e-5)
    assert np.allclose(Multiclass().loss(z.double(), y), exact, rtol=1e-13, atol=1e-13)
    z.requires_grad_()
    (slope,) = torch.autograd.grad(Multiclass().loss(z, y).sum(), z)
    expected = scipy.special.softmax(z.detach().double().numpy(), 1)
    expected[np.arange(rows), y.numpy()] -= 1
    assert np.allclose(slope, expected, atol=1e-5)
    z = z.detach()
    z[0, 0] = float("inf")
    assert Multiclass().loss(z, y)[0].isnan()


def test_a_model_by_name_has_the_outputs_its_task_needs():
    data, _ = reference.problem(0)
    fed = federation(data)
    run = muster.simulate(fed, M.fedavg(), muster.models.MLP((3,)), 1, task=Squared())
    assert run.weights["3.weight"].shape == (1, 3)
    with pytest.raises(muster.MusterError, match=r"shape \(2, 3\); labels go from 0 to 3"):
        muster.simulate(fed, M.fedavg(), nn.Linear(5, 3), 1)


def test_what_is_no_task_is_refused_and_another_ones_checkpoint_too(tmp_path):
    data, _ = reference.problem(0)
    fed = federation(data)
    with pytest.raises(muster.MusterError, match=r"task: str; give one of muster\.tasks"):
        muster.simulate(fed, M.fedavg(), muster.models.Softmax(), 1, task="regression")
    muster.simulate(fed, M.fedavg(), network(4), 2, checkpoint=tmp_path, checkpoint_every=1)
    with pytest.raises(muster.MusterError, match="task"):
        muster.simulate(
            fed, M.fedavg(), network(4), 2, checkpoint=tmp_path, resume=True, task=Smoothed()
        )
