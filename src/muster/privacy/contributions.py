"""Contributions: what each client adds to the sum that a private round releases.

`g_k = a_k e_k c_k (clip(D_k, C / s), 0)  +  a_k i_k (0, beta C / s clip(F_k, 0, B) / B)`

over a leading client axis, where `D_k = w_k - w`, `s = sqrt(1 + beta^2)`; a_k is the client's
weight, e_k the extent to which the method counts it, c_k its claim as a share of the largest there
is (MaxFL's `4 q_k`), i_k its importance in the objective; all lie between 0 and 1. So
`|g_k| <= a_k C`, whatever its rows are, and a client that does not join adds 0. Without a released
F(w) the last place is missing and s = 1.

Everything is a function of one client's rows and of public numbers: a row of the result depends on
the same row of the arguments alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.arrays import Bool, Float64, Int64
from ..base.lazy import torch
from ..base.params import Params, State, as_rows
from ..protocol import Appraisal, Decision, Traffic
from .fixed_point import Vectors
from .gaussian import Gaussian

CONTRIBUTION = "contribution"  # the name of the array in a client's message


@dataclass(frozen=True)
class Contributions:
    """The sum of a round's contributions, and an entry for each asked client.

    Attributes:
        sums: of each group, `[group, number]`, modulo 2^32; without noise, unless they are secure;
            None: no secure sum came about
        decision: who contributed, and each one's reason
        appraisal: each asked client's appraisal of the model, where it is known
        weight: what each counted by, where it is known; NaN elsewhere
        claim: what each claimed, where it is known; NaN elsewhere
        steps: local steps of each
        state: the new client state of those who contributed, where the server side stores it
        failed: True where a client gave no answer at all
        traffic: bytes counted on the wire; None: computed from sizes
        events: other events for the ledger, as (client, text)
    """

    sums: Vectors | None
    decision: Decision
    appraisal: Appraisal
    weight: Float64
    claim: Float64
    steps: Int64
    state: State
    failed: Bool
    traffic: Traffic | None = None
    events: tuple[tuple[int, str], ...] = ()


def flatten_updates(models: Params, start: Params) -> Float64:
    """Return `w_k - w` of a stack of models as one row of float64 for each client, in the order of
    the model's names."""
    rows = [
        as_rows(models[name].to(torch.float64) - t.to(torch.float64)) for name, t in start.items()
    ]
    return np.asarray(torch.cat(rows, 1).cpu().numpy(), np.float64)


def restore_update(update: Float64, start: Params) -> Params:
    """Return a row of numbers as named tensors in the form of a model, in float64."""
    cuts = np.cumsum([t.numel() for t in start.values()])[:-1]
    pieces = np.split(update, cuts)
    return {
        name: torch.from_numpy(piece.copy()).reshape(t.shape).to(t.device)
        for piece, (name, t) in zip(pieces, start.items(), strict=True)
    }


def clip_rows(values: Float64, most: float) -> Float64:
    """Return rows shortened to a length; one that is not finite becomes 0."""
    finite = np.isfinite(values).all(1, keepdims=True)
    values = np.where(finite, values, 0.0)
    largest = np.maximum(np.abs(values).max(1, initial=0.0, keepdims=True), 1e-300)
    share = values / largest  # squares of it neither overflow nor vanish
    norm = np.maximum(np.sqrt((share * share).sum(1, keepdims=True)), 1e-300)
    return np.asarray(share * np.minimum(largest, most / norm), np.float64)


def contribute(
    privacy: Gaussian,
    updates: Float64,
    factor: Float64,
    loss: Float64 | None = None,
    loss_factor: Float64 | None = None,
) -> Float64:
    """Return the contributions `[client, numbers]`.

    Args:
        updates: `w_k - w`, a row for each client
        factor: `a_k e_k c_k` of each, from 0 to 1
        loss: F_k(w) of each, where F(w) is released with the sum
        loss_factor: `a_k i_k` of each, then
    """
    most = privacy.clip if loss is None else privacy.model_part
    factor = np.clip(np.nan_to_num(factor), 0.0, 1.0)
    given = clip_rows(updates, most) * factor[:, None]
    if loss is None or loss_factor is None:
        return given
    bound = privacy.most_loss
    share = np.clip(np.nan_to_num(loss, nan=0.0, posinf=bound, neginf=0.0), 0.0, bound) / bound
    slot = privacy.loss_share * most * np.clip(np.nan_to_num(loss_factor), 0.0, 1.0) * share
    return np.concatenate([given, slot[:, None]], 1)


def read_loss(privacy: Gaussian, number: float, weight: float) -> float:
    """Return the mean loss that the last place of a released sum means, of clients whose public
    factors `a_k i_k` sum to `weight`."""
    return number * privacy.most_loss / (privacy.loss_share * privacy.model_part * weight)
