"""Metrics: what a model is worth, to its owners and to each client.

Everything is computed from per-client appraisals, so one pass over the data serves all of it.
"""

from __future__ import annotations

import numpy as np

from .federation import Bool, Federation
from .protocol import Appraisal
from .rng import Float64


def label_entropy(fed: Federation) -> Float64:
    """`H_k = -sum_c f_kc log f_kc`: the loss of the best constant prediction on client k's
    labels, which it has without any model."""
    counts = fed.label_counts()
    f = counts / counts.sum(1, keepdims=True)
    return np.asarray(-np.sum(f * np.log(np.where(f > 0, f, 1.0)), axis=1), np.float64)


def bar(fed: Federation) -> Float64:
    """The loss below which the model is useful to each client: its requirement rho_k where it has
    one, otherwise the loss of its best constant prediction."""
    return label_entropy(fed) if fed.requirement is None else fed.requirement


def evaluate(
    fed: Federation, useful_below: Float64, train: Appraisal, test: Appraisal | None
) -> dict[str, float]:
    """The row's measures of a model from every client's appraisals of it.

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
    """
    w = fed.objective
    row = {
        "loss": float(w @ train.loss),
        "train_accuracy": float(w @ train.accuracy),
        "fairness": float(np.mean(train.loss < useful_below)),
    }
    row["test_loss"] = float("nan") if test is None else float(w @ test.loss)
    row["test_accuracy"] = float("nan") if test is None else float(w @ test.accuracy)
    groups = {"": ~fed.unseen}
    if fed.unseen.any():
        groups["_unseen"] = fed.unseen
    for ending, who in groups.items():
        measures = appeal(fed, who, train, test)
        row |= {name + ending: value for name, value in measures.items()}
    return row


def appeal(
    fed: Federation, who: Bool, train: Appraisal, test: Appraisal | None
) -> dict[str, float]:
    """What the model is worth to some clients, each counting alike."""
    row: dict[str, float] = {}
    if test is not None:
        row["mean_test_accuracy"] = float(test.accuracy[who].mean())
    if fed.requirement is None:
        return row
    meets = train.loss < fed.requirement
    row["gm_appeal"] = float(meets[who].mean())
    if test is not None:
        bar = fed.requirement if fed.requirement_test is None else fed.requirement_test
        row["gm_appeal_test"] = float((test.loss < bar)[who].mean())
        if fed.solo_accuracy is not None:
            preferred = np.where(meets, test.accuracy, fed.solo_accuracy)
            row["preferred_accuracy"] = float(preferred[who].mean())
    return row


def bound_terms(
    extra: Float64,
    bias: Float64 | None,
    steps: int,
    gamma: float,
    smoothness: float,
    convexity: float,
    first: int = 1,
) -> tuple[float, float]:
    """`theta_T` and `rho_T` of Theorem 1 (eq. 7, 8) from what each round admitted.

    extra   S_t = sum over admitted non-priority clients of p_k, one entry a round
    bias    sum over the same of p_k Gamma_k, where the Gamma_k are known (else rho_T is NaN)
    steps   E, local steps a round: i counts local steps, tau(i) is the round they belong to
    first   1 as printed; 0 repairs the printed sums, which drop the first step's terms

        theta_T = 1/(T + gamma - 2) sum_i 1/(1 + S_tau(i))
        rho_T   = 2L/(mu (T + gamma - 2)) sum_i sum_k p_k I_k Gamma_k / (1 + S_tau(i))
    """
    per_step = np.repeat(extra, steps)[first:]
    scale = 1.0 / (len(extra) * steps + gamma - 2.0)
    theta = scale * float(np.sum(1.0 / (1.0 + per_step)))
    if bias is None:
        return theta, float("nan")
    drift = np.repeat(bias, steps)[first:] / (1.0 + per_step)
    return theta, 2.0 * smoothness / convexity * scale * float(np.sum(drift))
