"""Per-client evaluation: loss, score, and whether the client's requirement is met.

A simulation evaluates all clients at once, a deployed client only itself: nothing here needs
another client's rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.arrays import Float64, Int64
from ..base.errors import plural
from ..base.lazy import pl
from ..engines.row_results import Split
from ..federation import Federation
from ..protocol import Appraisal, Evaluation
from ..tasks.classification import Binary, Multiclass
from ..tasks.regression import NumberTask
from ..tasks.task import StandardTask, Task, averages_rows, is_cross_entropy

if TYPE_CHECKING:
    from torch import Tensor

MAX_HOLDINGS = 5_000_000  # clients times classes up to which label counts go with the results


def label_entropy(fed: Federation, clients: Int64) -> Float64:
    """Return `H_k = -sum_c f_kc log f_kc`, the loss of the best constant prediction on the labels
    of client k."""
    counts = fed.label_counts()[clients]
    f = counts / counts.sum(1, keepdims=True)
    return np.asarray(-np.sum(f * np.log(np.where(f > 0, f, 1.0)), axis=1), np.float64)


def compute_useful_thresholds(
    fed: Federation, clients: Int64, task: Task = Multiclass()
) -> Float64:
    """Return the loss below which the model is useful to each client: its requirement rho_k where
    it has one, otherwise the loss of its best constant prediction: H_k for classes, that of the
    mean for numbers, of equal risks for survival. NaN where the task has no constant prediction.

    A client with a single class has H_k = 0, which no model can beat; its threshold is `log C`, the
    loss of guessing among all C classes.
    """
    if fed.requirement is not None:
        return fed.requirement[clients]
    if fed.classes and is_cross_entropy(task):
        entropy = label_entropy(fed, clients)
        return np.where(entropy > 0, entropy, np.log(fed.classes))
    constant = constant_losses(fed, clients, task)
    classifies = fed.classes > 0 and isinstance(task, (Multiclass, Binary))
    return np.where(constant > 1e-9, constant, np.log(fed.classes)) if classifies else constant


def constant_losses(fed: Federation, clients: Int64, task: Task) -> Float64:
    """Return the loss of each client's best constant prediction on its training rows; NaN where
    the task has none."""
    if not isinstance(task, StandardTask):
        return np.full(len(clients), np.nan)
    return np.array(
        [constant_loss(task, fed.train.client(int(k))[1], fed.classes) for k in clients]
    )


def constant_loss(task: StandardTask, y: Tensor, classes: int = 0) -> float:
    """Return the loss of the best constant prediction of these targets; NaN where there is none."""
    if task.has_no_loss(y):
        return float("nan")
    z = task.guess(y, classes)
    z = z.expand(len(y), *z.shape[1:])
    return float(task.set_loss(z, y, z.new_ones(len(y))))


def get_requirements(fed: Federation, clients: Int64, split: Split) -> Float64:
    """Return the loss a model must beat for each client on these rows: rho_k on training rows; on
    held-out rows the loss of the client's own model, or rho_k where it has none."""
    assert fed.requirement is not None, "no client has a requirement"
    held_out = fed.requirement_test
    return (fed.requirement if split == "train" or held_out is None else held_out)[clients]


def is_below(loss: Float64, threshold: Float64) -> Float64:
    """Return 1 where a loss is below its threshold, 0 where not, NaN where there is none."""
    return np.where(np.isnan(threshold), np.nan, loss < threshold)


def build_evaluation(
    fed: Federation,
    clients: Int64,
    useful_below: Float64,
    train: Appraisal,
    test: Appraisal | None,
    own: Appraisal | None = None,
    own_test: Appraisal | None = None,
    called: str = "accuracy",
) -> Evaluation:
    """Return some clients' evaluation of a model: their appraisals of it, and what follows from
    their private requirements and their solo models.

    Args:
        useful_below: their `compute_useful_thresholds`
        own: their appraisals of their own models on training rows, where they have some
        own_test: the same on held-out rows
        called: the name of their score
    """
    useful = is_below(train.loss, useful_below)
    view = Evaluation(train, test, useful, own=own, own_test=own_test, score_name=called)
    if fed.requirement is None:
        return view
    meets = is_below(train.loss, get_requirements(fed, clients, "train"))
    view = replace(view, meets=meets)
    if test is None:
        return view
    view = replace(view, meets_test=is_below(test.loss, get_requirements(fed, clients, "test")))
    if fed.solo_score is None:
        return view
    return replace(view, preferred=np.where(meets == 1, test.score, fed.solo_score[clients]))


def add_tuning(
    fed: Federation, clients: Int64, view: Evaluation, train: Appraisal, test: Appraisal | None
) -> Evaluation:
    """Add to a view the same clients' evaluation of the model after local tuning: whether it then
    meets their requirement, and its held-out score (MaxFL, Table 4)."""
    view = replace(view, tuned=None if test is None else test.score)
    if fed.requirement is None:
        return view
    return replace(view, meets_tuned=is_below(train.loss, get_requirements(fed, clients, "train")))


def compute_baselines(fed: Federation, task: Task = Multiclass()) -> dict[str, Any]:
    """Return what needs no model: the loss of the best constant prediction on the objective; of
    classes also the most frequent one, and the accuracy of always predicting it."""
    if not fed.classes or task.score_name != "accuracy" or not isinstance(task, StandardTask):
        return _compute_mean_baseline(fed, task)
    shares = fed.objective @ fed.train.label_shares(fed.classes)
    best = int(shares.argmax())
    some = shares[shares > 0]
    known: dict[str, Any] = {"majority_accuracy": float(shares[best])}
    plain = isinstance(task, Binary) and not task.weights and not task.smoothing
    if is_cross_entropy(task) or plain:
        known["constant_loss"] = float(-(some * np.log(some)).sum())
    if fed.labels is not None:
        known["majority_class"] = fed.labels[best]
    if fed.test is not None:
        tested = fed.objective @ fed.test.label_shares(fed.classes)
        known["majority_test_accuracy"] = float(tested[best] / max(tested.sum(), 1e-300))
    return known


def _compute_mean_baseline(fed: Federation, task: Task) -> dict[str, Any]:
    """Return the loss of predicting the mean of all rows of the objective, for numeric targets."""
    members = np.flatnonzero(fed.objective > 0)
    if not isinstance(task, NumberTask) or not len(members):
        return {}
    weight = fed.objective[members]
    rows = [fed.train.client(int(k))[1].double() for k in members]
    middle = sum(w * y.mean(0, keepdim=True) for w, y in zip(weight, rows, strict=True))
    z = task.guess(middle)
    losses = [float(task.loss(z.expand(len(y), -1), y).mean()) for y in rows]
    return {"constant_loss": float(weight @ losses)}


def find_clients_without_loss(fed: Federation, task: Task) -> list[str]:
    """Return a warning about clients whose training rows have no loss, where there are any."""
    if averages_rows(task) or not isinstance(task, StandardTask):
        return []
    silent = [k for k in range(fed.n) if task.has_no_loss(fed.train.client(k)[1])]
    if not silent:
        return []
    called = fed.population.get_name(silent[0])
    own = sum(bool(fed.importance[k] > 0) for k in silent)
    return [
        f"{len(silent)} of {plural(fed.n, 'client')} ({own} in the objective) hold no event, the "
        f"first is client {called}: they have no loss, so they are left out of F(w) and of "
        "measures, and where losses decide they do not take part"
    ]


def count_holdings(fed: Federation) -> pl.DataFrame | None:
    """Count each client's rows of each class, one table row per client and class that it has; None
    where rows have no classes, or the table would be too large."""
    if not fed.classes or fed.n * fed.classes > MAX_HOLDINGS:
        return None
    counts = fed.label_counts()
    client, label = np.nonzero(counts)
    return pl.DataFrame({"client": client, "label": label, "rows": counts[client, label]})
