"""Opinion: what a client makes of a model, judged from its own data and by its own requirement.

The simulator asks everyone at once, a deployed client asks itself; either way nothing here needs
another client's rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import Float64, Int64
from ..engines.measure import Split
from ..federation import Federation
from ..lazy import pl
from ..protocol import Appraisal, View

LISTED = 5_000_000  # clients times classes up to which it is listed who has what


def label_entropy(fed: Federation, clients: Int64) -> Float64:
    """`H_k = -sum_c f_kc log f_kc`: the loss of the best constant prediction on client k's
    labels, which it has without any model."""
    counts = fed.label_counts()[clients]
    f = counts / counts.sum(1, keepdims=True)
    return np.asarray(-np.sum(f * np.log(np.where(f > 0, f, 1.0)), axis=1), np.float64)


def bar(fed: Federation, clients: Int64) -> Float64:
    """The loss below which the model is useful to each client: its requirement rho_k where it has
    one, otherwise the loss of its best constant prediction, H_k.

    A client that holds a single class has H_k = 0, which no model can beat, and nothing to compare
    with but guessing among all C classes: its bar is `log C`.
    """
    if fed.requirement is not None:
        return fed.requirement[clients]
    entropy = label_entropy(fed, clients)
    return np.where(entropy > 0, entropy, np.log(fed.classes))


def required(fed: Federation, clients: Int64, split: Split) -> Float64:
    """What clients require of a model's loss on these rows: their rho_k on their training rows; on
    held-out ones what their own model has there, where they have one, and else rho_k as well."""
    assert fed.requirement is not None, "nobody requires anything"
    held_out = fed.requirement_test
    return (fed.requirement if split == "train" or held_out is None else held_out)[clients]


def opinion(
    fed: Federation,
    clients: Int64,
    useful_below: Float64,
    train: Appraisal,
    test: Appraisal | None,
    own: Appraisal | None = None,
    own_test: Appraisal | None = None,
) -> View:
    """What some clients make of a model, from their appraisals of it and what only they know: the
    requirement, and what they would fall back on. `useful_below` is their `bar`."""
    view = View(
        train, test, (train.loss < useful_below).astype(np.float64), own=own, own_test=own_test
    )
    if fed.requirement is None:
        return view
    meets = train.loss < required(fed, clients, "train")
    view = replace(view, meets=meets.astype(np.float64))
    if test is None:
        return view
    meets_test = test.loss < required(fed, clients, "test")
    view = replace(view, meets_test=meets_test.astype(np.float64))
    if fed.solo_accuracy is None:
        return view
    return replace(view, preferred=np.where(meets, test.accuracy, fed.solo_accuracy[clients]))


def tuned(
    fed: Federation, clients: Int64, view: View, train: Appraisal, test: Appraisal | None
) -> View:
    """A view with what the same clients make of the model after tuning it: whether it meets their
    requirement then, and its held-out accuracy (MaxFL, Table 4)."""
    view = replace(view, tuned_accuracy=None if test is None else test.accuracy)
    if fed.requirement is None:
        return view
    meets = train.loss < required(fed, clients, "train")
    return replace(view, meets_tuned=meets.astype(np.float64))


def guesses(fed: Federation) -> dict[str, Any]:
    """What needs no model: the loss of the best constant prediction on the objective, and the
    accuracy of always answering its most frequent class, and what that is called."""
    shares = fed.objective @ fed.train.label_shares(fed.classes)
    best = int(shares.argmax())
    some = shares[shares > 0]
    known: dict[str, Any] = {
        "constant_loss": float(-(some * np.log(some)).sum()),
        "majority_accuracy": float(shares[best]),
    }
    if fed.labels is not None:
        known["majority_class"] = fed.labels[best]
    if fed.test is not None:
        tested = fed.objective @ fed.test.label_shares(fed.classes)
        known["majority_test_accuracy"] = float(tested[best])
    return known


def holdings(fed: Federation) -> pl.DataFrame | None:
    """Who has which rows: one row for each client and class that it has; None where rows have no
    classes, or there would be too many to list."""
    if fed.train.y.is_floating_point() or fed.n * fed.classes > LISTED:
        return None
    counts = fed.label_counts()
    client, label = np.nonzero(counts)
    return pl.DataFrame({"client": client, "label": label, "rows": counts[client, label]})
