"""Probes of a module: does it write into its rows, does it look across them?

A copy of the module is tried on a few rows. One that writes into its rows (`ReLU(inplace=True)`
first) gets copies, so that data stays unchanged. One that looks across rows (`x - x.mean(0)`) gets
the rows of one client at a time, and never padding.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING

from ..base.lazy import nn, torch
from ..federation import Federation
from ..federation.ragged_rows import features

if TYPE_CHECKING:
    from torch import Tensor

LOOK_AT = 4  # rows that a module is tried on


def examples(fed: Federation, dtype: torch.dtype) -> Tensor:
    """Return copies of a few rows as a module sees them. For tokens also rows that repeat one
    token: the smallest, which usually pads texts, and the largest."""
    x = features(fed.train.x[:LOOK_AT].clone(), dtype)
    if x.is_floating_point():
        return x
    return torch.cat([x, *(torch.full_like(x[:1], int(token)) for token in (x.min(), x.max()))])


def nearly_equal(a: Tensor, b: Tensor) -> bool:
    """Return True if two tensors agree except for the last digits."""
    hair = 1e-8 if a.dtype == torch.float64 else 1e-4
    return torch.allclose(a, b, atol=hair, rtol=hair, equal_nan=True)


def writes_rows(module: nn.Module, rows: Tensor) -> bool:
    """Return True if a module changes its input rows, in training or in evaluation."""

    def look(twin: nn.Module) -> bool:
        for training in (True, False):
            given = rows.clone()
            before = given._version
            twin.train(training)(given)
            if given._version != before:
                return True
        return False

    return _try(module, look)


def mixes_rows(module: nn.Module, rows: Tensor, training: bool = False) -> bool:
    """Return True if a module's output for a row depends on the rows next to it."""

    def look(twin: nn.Module) -> bool:
        twin.train(training)
        fewer = max(1, len(rows) - 2)
        return not nearly_equal(twin(rows[:fewer].clone()), twin(rows.clone())[:fewer])

    return _try(module, look)


def _try(module: nn.Module, look: Callable[[nn.Module], bool]) -> bool:
    """Return the result of a probe of a copy of a module; False if it fails, which shows later."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return look(deepcopy(module))
    except Exception:
        return False
