"""Stacked forms of common layers: the same layer of many clients as one batched operation.

`stackable` reads an `nn.Sequential` (nested ones too) into a list of stacked layers, or says
which layer has no stacked form. Activations are `[client, batch, ...]`, parameters
`[client, *shape]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from ..base.lazy import functional, nn, torch
from ..base.params import Params

if TYPE_CHECKING:
    from torch import Tensor

Apply: TypeAlias = "Callable[[Params, Tensor], Tensor]"


@cache
def elementwise() -> tuple[type[nn.Module], ...]:
    """Layers that work on each number alone, and so on a stack as they are."""
    return (
        nn.ReLU,
        nn.Tanh,
        nn.Sigmoid,
        nn.GELU,
        nn.SiLU,
        nn.LeakyReLU,
        nn.ELU,
        nn.Softplus,
        nn.Identity,
    )


@dataclass(frozen=True)
class Layer:
    """One layer: the module it came from, its name in the state_dict, and its stacked form."""

    module: nn.Module
    prefix: str
    apply: Apply


class DropoutDraws:
    """The numbers that Dropout draws: each client's from its own generator, exactly as torch draws
    them when the client trains alone."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def drop(self, h: Tensor, p: float, counts: Sequence[int]) -> Tensor:
        """`h` with about a share p of it set to 0 and the rest made up for it. `counts` is how many
        rows of each client count; padding is set to 0."""
        if p == 0.0:
            return h
        mask = torch.zeros_like(h)
        for own, generator, n in zip(mask, self.generators, counts, strict=False):
            if p < 1.0:
                noise = torch.empty(own[:n].shape, dtype=h.dtype)
                own[:n] = noise.bernoulli_(1.0 - p, generator=generator).div_(1.0 - p)
        return h * mask


def has_dropout(layers: list[Layer]) -> bool:
    """Return True if some layer draws numbers in training."""
    return any(type(layer.module) is nn.Dropout for layer in layers)


def _linear(module: nn.Linear, prefix: str) -> Apply:
    def apply(p: Params, h: Tensor) -> Tensor:
        w, inner = p[prefix + "weight"], h.flatten(1, -2)
        z = torch.bmm(inner, w.transpose(1, 2))
        if module.bias is not None:
            z = z + p[prefix + "bias"].unsqueeze(1)
        return z.view(*h.shape[:-1], w.shape[1])

    return apply


def _layer_norm(module: nn.LayerNorm, prefix: str) -> Apply:
    def apply(p: Params, h: Tensor) -> Tensor:
        z = functional.layer_norm(h, module.normalized_shape, eps=module.eps)
        gap = (1,) * (h.dim() - 1 - len(module.normalized_shape))
        for name, combine in (("weight", torch.mul), ("bias", torch.add)):
            t = p.get(prefix + name)
            if t is not None:
                z = combine(z, t.view(t.shape[0], *gap, *t.shape[1:]))
        return z

    return apply


def _embedding(module: nn.Embedding, prefix: str) -> Apply:
    def apply(p: Params, h: Tensor) -> Tensor:
        w = p[prefix + "weight"]
        who = torch.arange(len(w), device=w.device).view(-1, *(1,) * (h.dim() - 1))
        vectors = w[who, h]
        if module.padding_idx is None:
            return vectors
        # The padding token's vector does not train.
        return torch.where((h == module.padding_idx).unsqueeze(-1), vectors.detach(), vectors)

    return apply


def _leaf(module: nn.Module, prefix: str) -> Apply | None:
    """Return the stacked form of one layer; None if it has none."""
    kind = type(module)
    if isinstance(module, nn.Linear) and kind is nn.Linear:
        return _linear(module, prefix)
    if isinstance(module, nn.LayerNorm) and kind is nn.LayerNorm:
        return _layer_norm(module, prefix)
    if kind is nn.Embedding and module.max_norm is None and not module.scale_grad_by_freq:
        return _embedding(module, prefix)
    if kind is nn.Dropout:
        return lambda p, h: h  # in training `DropoutDraws` stands in for it
    if kind is nn.Flatten and module.start_dim == 1 and module.end_dim == -1:
        return lambda p, h: h.flatten(2)
    if kind in elementwise():
        return lambda p, h: module(h)
    return None


def stackable(module: nn.Module, prefix: str = "") -> list[Layer] | str:
    """Return the stacked layers of a module, or the name of the first part that has no stacked
    form."""
    if module._forward_hooks or module._forward_pre_hooks:
        return f"{type(module).__name__} with a hook"  # which may do anything to what passes
    if type(module) is nn.Sequential:
        layers: list[Layer] = []
        # Not named_children, which leaves out a layer that appears a second time.
        for name, child in module._modules.items():
            if child is None:
                continue
            found = stackable(child, f"{prefix}{name}.")
            if isinstance(found, str):
                return found
            layers += found
        owned = [id(p) for layer in layers for p in layer.module.parameters()]
        return "a parameter used twice" if len(set(owned)) < len(owned) else layers
    apply = _leaf(module, prefix)
    return type(module).__name__ if apply is None else [Layer(module, prefix, apply)]
