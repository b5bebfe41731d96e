"""What a module does with the rows it is given: write into them, or look across them.

Found out by trying a copy of it on a few rows. A module that writes into its rows
(`ReLU(inplace=True)` first) is given copies, so that data stays what it was. One that looks across
them (`x - x.mean(0)`) is shown the rows of one client at a time, and never padding.
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
    """A few rows as a module sees them, apart from the data. Of tokens there are also rows of one
    token over and over: the least, with which texts are mostly filled up, and another."""
    x = features(fed.train.x[:LOOK_AT].clone(), dtype)
    if x.is_floating_point():
        return x
    return torch.cat([x, *(torch.full_like(x[:1], int(token)) for token in (x.min(), x.max()))])


def nearly_equal(a: Tensor, b: Tensor) -> bool:
    """Whether two ways led to the same numbers, but for the last digits."""
    hair = 1e-8 if a.dtype == torch.float64 else 1e-4
    return torch.allclose(a, b, atol=hair, rtol=hair, equal_nan=True)


def writes_rows(module: nn.Module, rows: Tensor) -> bool:
    """Whether a module changes the rows it is given, in training or out of it."""

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
    """Whether what a module says of a row depends on the rows next to it."""

    def look(twin: nn.Module) -> bool:
        twin.train(training)
        fewer = max(1, len(rows) - 2)
        return not nearly_equal(twin(rows[:fewer].clone()), twin(rows.clone())[:fewer])

    return _try(module, look)


def _try(module: nn.Module, look: Callable[[nn.Module], bool]) -> bool:
    """Whether something is seen of a copy of a module; what it cannot do shows when it has to."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return look(deepcopy(module))
    except Exception:
        return False
