"""Opinion: what a client makes of a model, judged from its own data and by its own requirement.

The simulator asks everyone at once, a deployed client asks itself; either way nothing here needs
another client's rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.arrays import Float64, Int64
from ..base.errors import plural
from ..base.lazy import pl
from ..engines.accumulate import Split
from ..federation import Federation
from ..protocol import Appraisal, Evaluation
from ..tasks.base import StandardTask, Task, averages_rows
from ..tasks.classification import Binary, Multiclass
from ..tasks.regression import NumberTask

if TYPE_CHECKING:
    from torch import Tensor

LISTED = 5_000_000  # clients times classes up to which it is listed who has what


def label_entropy(fed: Federation, clients: Int64) -> Float64:
    """`H_k = -sum_c f_kc log f_kc`: the loss of the best constant prediction on client k's
    labels, which it has without any model."""
    counts = fed.label_counts()[clients]
    f = counts / counts.sum(1, keepdims=True)
    return np.asarray(-np.sum(f * np.log(np.where(f > 0, f, 1.0)), axis=1), np.float64)


def bar(fed: Federation, clients: Int64, task: Task = Multiclass()) -> Float64:
    """The loss below which the model is useful to each client: its requirement rho_k where it has
    one, otherwise the loss of its best constant prediction: H_k for classes, that of its mean for
    numbers, of equal risks for survival. NaN where the task knows no guess.

    A client that holds a single class has H_k = 0, which no model can beat, and nothing to compare
    with but guessing among all C classes: its bar is `log C`.
    """
    if fed.requirement is not None:
        return fed.requirement[clients]
    if fed.classes and task.cross_entropy:
        entropy = label_entropy(fed, clients)
        return np.where(entropy > 0, entropy, np.log(fed.classes))
    guessed = guessed_loss(fed, clients, task)
    lone = fed.classes > 0 and isinstance(task, (Multiclass, Binary))
    return np.where(guessed > 1e-9, guessed, np.log(fed.classes)) if lone else guessed


def guessed_loss(fed: Federation, clients: Int64, task: Task) -> Float64:
    """The loss of each client's best constant prediction on its training rows; NaN where the task
    knows none."""
    if not isinstance(task, StandardTask):
        return np.full(len(clients), np.nan)
    return np.array(
        [constant_loss(task, fed.train.client(int(k))[1], fed.classes) for k in clients]
    )


def constant_loss(task: StandardTask, y: Tensor, classes: int = 0) -> float:
    """The loss of the best constant prediction of these targets; NaN where they say none."""
    if task.has_no_loss(y):
        return float("nan")
    z = task.guess(y, classes)
    z = z.expand(len(y), *z.shape[1:])
    return float(task.set_loss(z, y, z.new_ones(len(y))))


def required(fed: Federation, clients: Int64, split: Split) -> Float64:
    """What clients require of a model's loss on these rows: their rho_k on their training rows; on
    held-out ones what their own model has there, where they have one, and else rho_k as well."""
    assert fed.requirement is not None, "nobody requires anything"
    held_out = fed.requirement_test
    return (fed.requirement if split == "train" or held_out is None else held_out)[clients]


def below(loss: Float64, bar: Float64) -> Float64:
    """1 where a loss is below its bar, 0 where it is not, and NaN where there is no bar."""
    return np.where(np.isnan(bar), np.nan, loss < bar)


def opinion(
    fed: Federation,
    clients: Int64,
    useful_below: Float64,
    train: Appraisal,
    test: Appraisal | None,
    own: Appraisal | None = None,
    own_test: Appraisal | None = None,
    called: str = "accuracy",
) -> Evaluation:
    """What some clients make of a model, from their appraisals of it and what only they know: the
    requirement, and what they would fall back on. `useful_below` is their `bar`, `called` what
    their score is called."""
    useful = below(train.loss, useful_below)
    view = Evaluation(train, test, useful, own=own, own_test=own_test, score_name=called)
    if fed.requirement is None:
        return view
    meets = below(train.loss, required(fed, clients, "train"))
    view = replace(view, meets=meets)
    if test is None:
        return view
    view = replace(view, meets_test=below(test.loss, required(fed, clients, "test")))
    if fed.solo_score is None:
        return view
    return replace(view, preferred=np.where(meets == 1, test.score, fed.solo_score[clients]))


def tuned(
    fed: Federation, clients: Int64, view: Evaluation, train: Appraisal, test: Appraisal | None
) -> Evaluation:
    """A view with what the same clients make of the model after tuning it: whether it meets their
    requirement then, and its held-out score (MaxFL, Table 4)."""
    view = replace(view, tuned=None if test is None else test.score)
    if fed.requirement is None:
        return view
    return replace(view, meets_tuned=below(train.loss, required(fed, clients, "train")))


def guesses(fed: Federation, task: Task = Multiclass()) -> dict[str, Any]:
    """What needs no model: the loss of the best constant prediction on the objective, and of
    classes the accuracy of always answering its most frequent one, and what that is called."""
    if not fed.classes or task.score_name != "accuracy" or not isinstance(task, StandardTask):
        return guessed_numbers(fed, task)
    shares = fed.objective @ fed.train.label_shares(fed.classes)
    best = int(shares.argmax())
    some = shares[shares > 0]
    known: dict[str, Any] = {"majority_accuracy": float(shares[best])}
    plain = isinstance(task, Binary) and not task.weights and not task.smoothing
    if task.cross_entropy or plain:
        known["constant_loss"] = float(-(some * np.log(some)).sum())
    if fed.labels is not None:
        known["majority_class"] = fed.labels[best]
    if fed.test is not None:
        tested = fed.objective @ fed.test.label_shares(fed.classes)
        known["majority_test_accuracy"] = float(tested[best] / max(tested.sum(), 1e-300))
    return known


def guessed_numbers(fed: Federation, task: Task) -> dict[str, Any]:
    """What a constant prediction has where targets are numbers: the loss of answering the mean of
    all rows that the objective counts."""
    members = np.flatnonzero(fed.objective > 0)
    if not isinstance(task, NumberTask) or not len(members):
        return {}
    weight = fed.objective[members]
    rows = [fed.train.client(int(k))[1].double() for k in members]
    middle = sum(w * y.mean(0, keepdim=True) for w, y in zip(weight, rows, strict=True))
    z = task.guess(middle)
    losses = [float(task.loss(z.expand(len(y), -1), y).mean()) for y in rows]
    return {"constant_loss": float(weight @ losses)}


def without_loss(fed: Federation, task: Task) -> list[str]:
    """A sentence on clients whose training rows say no loss, where there are any."""
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


def holdings(fed: Federation) -> pl.DataFrame | None:
    """Who has which rows: one row for each client and class that it has; None where rows have no
    classes, or there would be too many to list."""
    if not fed.classes or fed.n * fed.classes > LISTED:
        return None
    counts = fed.label_counts()
    client, label = np.nonzero(counts)
    return pl.DataFrame({"client": client, "label": label, "rows": counts[client, label]})
