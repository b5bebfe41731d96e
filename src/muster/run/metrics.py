"""Metrics: what a model is worth, to its owners and to each client.

Everything is computed from per-client appraisals, so one pass over the data serves all of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Float64, Int64
from ..federation import Federation, Population
from ..protocol import Appraisal, View


def label_entropy(fed: Federation, clients: Int64) -> Float64:
    """`H_k = -sum_c f_kc log f_kc`: the loss of the best constant prediction on client k's
    labels, which it has without any model."""
    counts = fed.label_counts()[clients]
    f = counts / counts.sum(1, keepdims=True)
    return np.asarray(-np.sum(f * np.log(np.where(f > 0, f, 1.0)), axis=1), np.float64)


def bar(fed: Federation, clients: Int64) -> Float64:
    """The loss below which the model is useful to each client: its requirement rho_k where it has
    one, otherwise the loss of its best constant prediction."""
    return label_entropy(fed, clients) if fed.requirement is None else fed.requirement[clients]


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
    rho = fed.requirement[clients]
    meets = train.loss < rho
    view = replace(view, meets=meets.astype(np.float64))
    if test is None:
        return view
    alone = rho if fed.requirement_test is None else fed.requirement_test[clients]
    view = replace(view, meets_test=(test.loss < alone).astype(np.float64))
    if fed.solo_accuracy is None:
        return view
    return replace(view, preferred=np.where(meets, test.accuracy, fed.solo_accuracy[clients]))


def evaluate(population: Population, view: View) -> dict[str, float]:
    """The row's measures of a model from every client's view of it. Clients that gave none are
    left out.

    loss, train_accuracy      on the objective, sum_k a_k p_k (.)_k (eq. 5)
    test_loss, test_accuracy  on the held-out data, the same weights: the priority test distribution
    fairness                  share of all clients to whom the model is useful (section 1): their
                              loss is below `bar`
    mean_test_accuracy        over clients that take part, each counting alike (MaxFL, Table 1)
    gm_appeal                 share of them whose requirement is met, F_k(w) < rho_k (MaxFL eq. 1)
    gm_appeal_test            the same on held-out data: below their own model's held-out loss
    preferred_accuracy        mean held-out accuracy when each uses the model if it appeals, else
                              its own
    ..._unseen                the same for the clients that only judge
    own_...                   of the models clients keep for themselves, on the objective
    """
    row = {
        "loss": on_objective(population, view.train.loss),
        "train_accuracy": on_objective(population, view.train.accuracy),
        "fairness": mean(view.useful),
    }
    row["test_loss"] = (
        float("nan") if view.test is None else on_objective(population, view.test.loss)
    )
    row["test_accuracy"] = (
        float("nan") if view.test is None else on_objective(population, view.test.accuracy)
    )
    groups = {"": ~population.unseen}
    if population.unseen.any():
        groups["_unseen"] = population.unseen
    each = {
        "mean_test_accuracy": None if view.test is None else view.test.accuracy,
        "gm_appeal": view.meets,
        "gm_appeal_test": view.meets_test,
        "preferred_accuracy": view.preferred,
    }
    for ending, who in groups.items():
        row |= {name + ending: mean(of[who]) for name, of in each.items() if of is not None}
    if view.own is not None:
        row["own_loss"] = on_objective(population, view.own.loss)
    if view.own_test is not None:
        row["own_test_accuracy"] = on_objective(population, view.own_test.accuracy)
    return row


def on_objective(population: Population, values: Float64) -> float:
    """`sum_k a_k p_k v_k`, over the clients that gave a value; NaN when none did."""
    heard = ~np.isnan(values)
    if heard.all():
        return float(population.objective @ values)
    w = population.objective[heard]
    return float(w @ values[heard] / w.sum()) if w.sum() > 0 else float("nan")


def mean(values: Float64) -> float:
    """The mean of what clients said; NaN when none did."""
    heard = values[~np.isnan(values)]
    return float(heard.mean()) if len(heard) else float("nan")
