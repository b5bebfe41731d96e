"""Several inputs as one row, for modules whose `forward` takes more than one tensor.

    both = muster.models.MultiInput({"tokens": (12,), "numbers": (3,)}, whole=("tokens",))
    x = both.rows(tokens=tokens, numbers=numbers)   # one array: the data of a client
    model = both.model(Net())                       # forward(tokens, numbers)

Data stays one array everywhere (files, engines, the wire), and the module takes it apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.errors import MusterError, nearest
from ..base.lazy import nn, torch

if TYPE_CHECKING:
    from torch import Tensor

EXACT = 2**24  # whole numbers up to here are themselves in float32


@dataclass(frozen=True)
class MultiInput:
    """Inputs end to end in one row of numbers, each flat.

    Attributes:
        shapes: of one row of each input, in the order in which `forward` takes them
        whole: inputs that are whole numbers (tokens): the module gets them as int64
    """

    shapes: Mapping[str, tuple[int, ...]]
    whole: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.shapes:
            raise MusterError("inputs: none; give the shape of a row of each, by name")
        for name in self.whole:
            if name not in self.shapes:
                raise MusterError(f"whole: '{name}' is no input; {nearest(name, self.shapes)}")

    @property
    def width(self) -> int:
        """Numbers in one row of all inputs."""
        return sum(map(math.prod, self.shapes.values()))

    def rows(self, **inputs: ArrayLike) -> NDArray[Any]:
        """Return all inputs of some rows as one array, float32 unless one of them has float64."""
        if set(inputs) != set(self.shapes):
            raise MusterError(f"inputs: {sorted(inputs)}; give {', '.join(self.shapes)}")
        arrays = {name: np.asarray(inputs[name]) for name in self.shapes}
        count = len(next(iter(arrays.values())))
        for name, array in arrays.items():
            if array.shape != (count, *self.shapes[name]):
                raise MusterError(
                    f"{name}: shape {array.shape}; it must be {(count, *self.shapes[name])}"
                )
            small = array.dtype.kind in "iub" and array.min(initial=0) >= -EXACT
            if name in self.whole and not (small and array.max(initial=0) <= EXACT):
                raise MusterError(
                    f"{name}: {array.dtype} with values beyond whole numbers of up to {EXACT}; "
                    "give tokens"
                )
        exact = any(array.dtype == np.float64 for array in arrays.values())
        flat = [array.reshape(count, -1) for array in arrays.values()]
        return np.concatenate(flat, axis=1, dtype=np.float64 if exact else np.float32)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the inputs in rows that hold all of them."""
        if x.shape[-1] != self.width:
            raise MusterError(
                f"inputs: rows of {x.shape[-1]} numbers; its inputs have {self.width}"
            )
        pieces = torch.split(x, [math.prod(shape) for shape in self.shapes.values()], dim=-1)
        return tuple(
            piece.reshape(*x.shape[:-1], *shape).to(torch.int64 if name in self.whole else x.dtype)
            for piece, (name, shape) in zip(pieces, self.shapes.items(), strict=True)
        )

    def model(self, module: nn.Module) -> nn.Module:
        """Return a copy of a module that takes such rows, and hands each input to its `forward`."""
        twin = deepcopy(module)
        twin.register_forward_pre_hook(self._hand_over)
        return twin

    def _hand_over(self, module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor, ...]:
        return self.split(given[0])


Joined = MultiInput  # the earlier name
