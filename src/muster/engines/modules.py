"""The user's modules in the engines: their stacked forms, and probes of what a module does.

The same layer of many clients is one batched operation. `stackable` reads an `nn.Sequential`
(nested ones too) into a list of stacked layers, or says which layer has no stacked form.
Activations are `[client, batch, ...]`, parameters `[client, *shape]`. Other modules (attention,
GroupNorm, residual blocks, the user's own) are mapped over the client axis by torch.func
(`VmapModule`); `find_obstacle` returns why one cannot, or should not, be mapped: the mapped form is
compared with the module itself on a few rows first.

Probes try a copy of a module on a few rows. One that writes into its rows (`ReLU(inplace=True)`
first) gets copies, so that data stays unchanged. One that looks across rows (`x - x.mean(0)`) gets
the rows of one client at a time, and never padding.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

from ..base import params
from ..base.arrays import Int64
from ..base.errors import first_line
from ..base.lazy import functional, nn, torch
from ..base.params import Params
from ..federation import Federation
from ..federation.ragged_rows import features
from .compute import fork_rng

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

    def drop(self, h: Tensor, p: float, counts: Int64) -> Tensor:
        """`h` with about a share p of it set to 0 and the rest made up for it. `counts` is how many
        rows of each client count; padding is set to 0. Drawn on the processor, for any device."""
        if p == 0.0:
            return h
        mask = torch.zeros(h.shape, dtype=h.dtype)
        for own, generator, n in zip(mask, self.generators, counts, strict=False):
            if p < 1.0:
                noise = torch.empty(own[:n].shape, dtype=h.dtype)
                own[:n] = noise.bernoulli_(1.0 - p, generator=generator).div_(1.0 - p)
        return h * mask.to(h.device)


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


MOST = 2**20  # trained parameters up to which mapping pays: larger ones keep a process busy alone


class VmapModule:
    """The stacked form of a module: outputs `[K, B, ...]` of K models on their own inputs."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        self._build = build
        self._own = threading.local()  # a call puts weights into the module: one for each thread

    def __call__(self, stack: Params, x: Tensor, training: bool) -> Tensor:
        module: nn.Module | None = getattr(self._own, "module", None)
        if module is None:
            module = self._own.module = _padding(self._build())
        module.train(training)

        def one(weights: Params, rows: Tensor) -> Tensor:
            outputs: Tensor = torch.func.functional_call(module, weights, (rows,))
            return outputs

        outputs: Tensor = torch.func.vmap(one)(stack, x)
        return outputs


def find_obstacle(module: nn.Module, example: Tensor, forced: bool = False) -> str:
    """Return why a module is not mapped over clients; "" if it is. `forced`: only if it cannot
    be."""
    for name, m in module.named_modules():
        kind = f"{type(m).__name__}{f' ({name})' if name else ''}"
        rate = m.p if isinstance(m, nn.modules.dropout._DropoutNd) else getattr(m, "dropout", 0.0)
        if isinstance(rate, (int, float)) and rate > 0:
            return f"{kind} draws numbers for each client by itself"
        if isinstance(m, nn.RNNBase):
            return f"{kind} has no stacked form"
        if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.scale_grad_by_freq:
            return f"{kind} counts the tokens of a batch"
        if isinstance(m, nn.modules.conv._ConvNd) and not forced:
            return f"{kind} is faster one client at a time"
    kept = params.get_params(module, torch.float64, torch.device("cpu"))
    moving = params.trainable_names(module)
    statistics = [name for name in kept if name not in moving]
    if statistics:
        return f"{statistics[0]} is a statistic that a training pass changes"
    size = sum(p.numel() for p in module.parameters() if p.requires_grad)
    if size > MOST and not forced:
        return f"{size} parameters train, which is enough work for a process"
    return _try_vmap(module, example)


def _try_vmap(module: nn.Module, example: Tensor) -> str:
    """Return what is wrong with a module mapped over two clients; "" if nothing is."""
    kind = type(module).__name__
    twin = deepcopy(module).double()
    mapped = VmapModule(lambda: deepcopy(twin))
    start = params.get_params(twin, torch.float64, torch.device("cpu"))
    stack = {n: torch.stack([t, 1.25 * t + 0.01]) for n, t in start.items()}
    x = example.double() if example.is_floating_point() else example
    x = torch.stack([x, x.flip(0)])

    def one_by_one(weights: Params) -> Tensor:
        own = [{n: t[k] for n, t in weights.items()} for k in range(2)]
        call = torch.func.functional_call
        return torch.stack([call(twin, own[k], (x[k].clone(),)) for k in range(2)])

    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("error")
            for training in (True, False):
                twin.train(training)
                together, slope = _differentiate(
                    partial(mapped, x=x.clone(), training=training), stack
                )
                alone, steep = _differentiate(one_by_one, stack)
                if not nearly_equal(together, alone):
                    return f"{kind} gives other numbers when it is mapped"
                if not all(map(nearly_equal, slope, steep)):
                    return f"{kind} has other gradients when it is mapped"
                if mixes_rows(twin, x[0], training):
                    return f"{kind} looks across the rows of a batch, which padding would change"
    except Warning:  # torch would take one client after another, and says so
        return f"{kind} has operations that torch.func does not map"
    except Exception as error:
        return f"{kind} cannot be mapped over clients ({first_line(error)[:80]})"
    return ""


def _differentiate(
    forward: Callable[[Params], Tensor], stack: Params
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return a module's outputs, and the gradient of their sum with different weights."""
    leaves = {n: t.clone().requires_grad_() for n, t in stack.items()}
    z = forward(leaves)
    counts = torch.linspace(0.5, 1.5, z.numel(), dtype=z.dtype).view(z.shape)
    total = (z * counts).sum()
    return z.detach(), torch.autograd.grad(total, [*leaves.values()], materialize_grads=True)


def _padding(module: nn.Module) -> nn.Module:
    """Return the module with embeddings that leave the padding token's vector alone when they are
    mapped: torch.func forgets `padding_idx`."""

    def hook(embedding: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        padding = inputs[0].eq(embedding.padding_idx)  # type: ignore[arg-type]
        return torch.where(padding.unsqueeze(-1), z.detach(), z)

    for m in module.modules():
        if isinstance(m, nn.Embedding) and m.padding_idx is not None:
            m.register_forward_hook(hook)
    return module


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

    return _try(module, rows.device, look)


@dataclass(frozen=True)
class LayerSizes:
    """Numbers that a module computes for a row.

    Attributes:
        kept: of all layers together, as a gradient needs them
        at_once: of the largest layer, its input and output
        largest: of the largest input or output
    """

    kept: int
    at_once: int
    largest: int


def measure_layers(module: nn.Module, rows: Tensor) -> LayerSizes:
    """Measure a module's layers on a few rows. The rows themselves do not count."""
    pairs: list[tuple[int, int]] = []

    def count(t: object) -> int:
        new = isinstance(t, torch.Tensor) and t.data_ptr() != rows.data_ptr()
        return t.numel() // len(rows) if new else 0  # type: ignore[attr-defined]

    def note(layer: nn.Module, given: tuple[object, ...], out: object) -> None:
        pairs.append((sum(map(count, given)), count(out)))

    def look(twin: nn.Module) -> bool:
        for layer in twin.modules():
            if next(layer.children(), None) is None:
                layer.register_forward_hook(note)
        twin.eval()(rows)
        return True

    _try(module, rows.device, look)
    return LayerSizes(
        sum(out for _, out in pairs),
        max((given + out for given, out in pairs), default=0),
        max((max(pair) for pair in pairs), default=0),
    )


def measure_saved(module: nn.Module, rows: Tensor, dtype: torch.dtype) -> float:
    """Return the bytes that a module of this dtype keeps of a row for its gradient, by autograd's
    own account on a few rows; 0 if it fails on them. Neither they nor the module itself count."""
    kept: dict[int, Tensor] = {}

    def note(t: Tensor) -> None:
        kept[t.untyped_storage().data_ptr()] = t  # held, so that no other tensor takes its place

    def look(twin: nn.Module) -> bool:
        x = rows.to(dtype) if rows.is_floating_point() else rows
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            twin.to(dtype).train()(x)
        for t in (x, *twin.state_dict().values()):
            kept.pop(t.untyped_storage().data_ptr(), None)
        return True

    if not _try(module, rows.device, look):
        return 0.0
    return sum(t.untyped_storage().nbytes() for t in kept.values()) / len(rows)


def mixes_rows(module: nn.Module, rows: Tensor, training: bool = False) -> bool:
    """Return True if a module's output for a row depends on the rows next to it."""

    def look(twin: nn.Module) -> bool:
        twin.train(training)
        fewer = max(1, len(rows) - 2)
        return not nearly_equal(twin(rows[:fewer].clone()), twin(rows.clone())[:fewer])

    return _try(module, rows.device, look)


def draws_numbers(module: nn.Module, rows: Tensor) -> bool:
    """Return True if a module's output in training depends on numbers that it draws."""

    def look(twin: nn.Module) -> bool:
        twin.train()
        torch.manual_seed(1)
        return not torch.equal(twin(rows.clone()), twin(rows.clone()))

    return _try(module, rows.device, look)


def _try(module: nn.Module, device: torch.device, look: Callable[[nn.Module], bool]) -> bool:
    """Return the result of a probe of a copy of a module; False if it fails, which shows later."""
    try:
        with torch.no_grad(), fork_rng(device):
            return look(deepcopy(module))
    except Exception:
        return False
