"""Models as named tensors. A *stack* of models is the same with a leading client axis.

The names are those of the module's own `state_dict`. Only what training changes travels and is
averaged: floating-point parameters that are not frozen, and floating-point buffers (BatchNorm's
running statistics are among them, its integer batch counter is not). Frozen parameters stay in the
module, one copy for all clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from copy import deepcopy as copy_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from .lazy import nn, torch

if TYPE_CHECKING:
    from torch import Tensor

Values = TypeVar("Values")

DTYPES = ("float32", "float64")

Params: TypeAlias = "dict[str, Tensor]"
State: TypeAlias = dict[
    str, Params
]  # of a client, the server or an optimizer: named parts, each a model or a stack of models


def get_dtype(name: str) -> torch.dtype:
    """Return one of `DTYPES` as a torch dtype."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def get_params(module: nn.Module, dtype: torch.dtype, device: torch.device) -> Params:
    """Return a copy of the module's floating-point state that training changes; a tensor with two
    names comes once."""
    seen: set[int] = set()
    state: Params = {}
    still = frozen_params(module)
    for name, t in module.state_dict().items():
        if not t.is_floating_point() or name in still or (t.numel() and t.data_ptr() in seen):
            continue
        seen.add(t.data_ptr())
        state[name] = t.detach().to(device=device, dtype=dtype, copy=True).contiguous()
    return state


def reorder(named: Mapping[str, Values], names: Iterable[str]) -> dict[str, Values]:
    """Return it in the order of these names, a module's own; other names come last.

    Norms are summed and noise is drawn in the order of a model's tensors, which files and messages
    do not keep: whatever is read back goes through here.
    """
    return {name: named[name] for name in names if name in named} | dict(named)


def to_state_dict(module: nn.Module, model: Params) -> dict[str, NDArray[Any]]:
    """Return the state_dict of a copy of the module with this model, as numpy arrays."""
    twin = copy_module(module).to(next(iter(model.values())).dtype)
    state = twin.state_dict()
    with torch.no_grad():
        for name, t in model.items():
            state[name].copy_(t)
    return {name: t.detach().cpu().numpy().copy() for name, t in twin.state_dict().items()}


def signature(module: nn.Module, example: Tensor) -> str:
    """Return a digest that distinguishes modules with parameters of the same names and shapes: of
    the layers, and of the outputs for an example with parameters set to fixed numbers."""
    twin = copy_module(module).double().eval()
    with torch.no_grad():
        for i, t in enumerate(t for t in twin.state_dict().values() if t.is_floating_point()):
            numbers = torch.linspace(0.1, 1.0, max(1, t.numel()), dtype=torch.float64)
            # Positive, as variances must be; of different sizes, so that no two layers agree.
            t.copy_((numbers[: t.numel()] / (3.0 + i) / max(1.0, t.numel() ** 0.5)).view(t.shape))
        x = example.double() if example.is_floating_point() else example
        x = x.double() / 255 if x.dtype == torch.uint8 else x
        try:
            outputs = [f"{v:.5e}" for v in twin(x).flatten()[:20].tolist()]
        except Exception:  # a module that runs only in its own dtype: use its layers
            outputs = []
    text = f"{type(module).__module__}.{module!r} {outputs}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def frozen_params(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that training does not change, under every name they have."""
    named = module.named_parameters(remove_duplicate=False)
    return {name: p.detach() for name, p in named if not p.requires_grad}


def frozen_digest(module: nn.Module) -> str:
    """Return a digest of the frozen parameters; "" where there are none. They are not sent, so
    everyone must have the same."""
    digest = hashlib.sha256()
    for name, t in sorted(frozen_params(module).items()):
        digest.update(name.encode() + t.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16] if frozen_params(module) else ""


def trainable_names(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the parameters that training changes by gradient."""
    return tuple(name for name, p in module.named_parameters() if p.requires_grad)


def group_by_layer(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of parameters by layer, the module that holds them.

    >>> group_by_layer(("0.weight", "0.bias", "2.weight"))
    {'0': ('0.weight', '0.bias'), '2': ('2.weight',)}
    """
    layers: dict[str, tuple[str, ...]] = {}
    for name in names:
        layer = name.rpartition(".")[0]
        layers[layer] = (*layers.get(layer, ()), name)
    return layers


def expand(model: Params, n: int) -> Params:
    """Return n copies of one model, stacked."""
    return {name: t.expand(n, *t.shape).clone() for name, t in model.items()}


def copy(stack: Params) -> Params:
    """Return a copy that may be changed in place."""
    return {name: t.clone() for name, t in stack.items()}


def select(stack: Params, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Params:
    """Return some rows of a stack."""
    at = torch.from_numpy(np.flatnonzero(rows) if rows.dtype == np.bool_ else rows)
    for t in stack.values():
        at = at.to(t.device)  # all are on one device: a copy for the first
    return {name: t[at] for name, t in stack.items()}


def mean(stack: Params, weight: NDArray[np.float64]) -> Params:
    """Return `sum_k weight_k w_k / sum_k weight_k`."""
    share = torch.from_numpy(weight / weight.sum())
    shares = {t.dtype: share.to(t) for t in {t.dtype: t for t in stack.values()}.values()}
    return {name: torch.tensordot(shares[t.dtype], t, dims=1) for name, t in stack.items()}


class Buffers:
    """A snapshot of a module's buffers, to be restored: also integer counters and others that are
    not sent."""

    def __init__(self, module: nn.Module) -> None:
        self._saved = [
            (owner, name, t, t.clone())
            for owner in module.modules()
            for name, t in owner._buffers.items()
            if t is not None
        ]

    def restore(self) -> None:
        """Restore every buffer: the same tensor with the same numbers."""
        for owner, name, t, value in self._saved:
            owner._buffers[name] = t.copy_(value)


def as_rows(t: Tensor) -> Tensor:
    """Return a stacked tensor as one row for each client; a single number is a row of one."""
    return t.flatten(1) if t.dim() > 1 else t.unsqueeze(1)


def broadcast_clients(each: Tensor, stack: Tensor) -> Tensor:
    """Return a number for each client in a shape that broadcasts with a stack."""
    return each.view(-1, *(1,) * (stack.dim() - 1))


def within_bound(stack: Params, most: float) -> NDArray[np.bool_]:
    """Return True for models of a stack whose numbers are finite and at most this large."""
    ends = [end for t in stack.values() if t.numel() for end in torch.aminmax(t)]
    found = torch.stack(ends).tolist() if ends else []  # a device is waited for once
    if all(-most <= end <= most for end in found):  # False for NaN
        return np.ones(len(next(iter(stack.values()))), np.bool_)
    checks = [as_rows(t.abs() <= most).all(1) for t in stack.values()]
    return np.asarray(torch.stack(checks).all(0).cpu().numpy())


def nbytes(model: Mapping[str, Tensor]) -> int:
    """Return the bytes of a model on the wire."""
    return sum(t.numel() * t.element_size() for t in model.values())
