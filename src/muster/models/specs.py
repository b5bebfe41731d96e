"""Models by name: specs that become an `nn.Module` once the federation's shapes are known.

`simulate` takes any `nn.Module` as well; the parameters it arrives with are the starting point.
A spec draws its starting parameters from the run's seed.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ..base import rng
from ..base.checks import check_whole
from ..base.errors import MusterError, first_line
from ..base.lazy import lazy_module, nn, torch
from ..base.memory import require_memory
from ..base.params import Buffers
from ..base.registry import kinds, part
from ..federation import RowShape, RowSpec
from ..federation.ragged_rows import features
from ..tasks.classification import Multiclass
from ..tasks.task import Task, target_size

if TYPE_CHECKING:
    from torch import Tensor

    from . import bag
else:
    bag = lazy_module("muster.models.bag")

NUMBER = 4  # bytes of a parameter as modules are built


@runtime_checkable
class Spec(Protocol):
    """A model that is built once the shapes of the data are known."""

    def build(self, of: RowSpec, seed: int) -> nn.Module:
        """Return the module for these rows, with starting parameters drawn from the seed."""
        ...


def _width(of: RowSpec) -> int:
    return int(np.prod(of.shape))


def _outputs(of: RowSpec) -> int:
    if not of.classes:
        raise MusterError(
            "model: the task does not say how many outputs it needs; give an nn.Module"
        )
    return of.classes


def _tokens(of: RowSpec) -> bool:
    return of.example().dtype == torch.int64


def _mlp(sizes: tuple[int, ...]) -> nn.Sequential:
    pairs = list(zip(sizes, sizes[1:], strict=False))
    numbers = sum((a + 1) * b for a, b in pairs)
    require_memory(f"layers of {sizes[1:]}", NUMBER * numbers, "give narrower ones (model.hidden)")
    layers: list[nn.Module] = [nn.Flatten()]
    for i, (a, b) in enumerate(pairs):
        layers += [nn.Linear(a, b)] if i == 0 else [nn.ReLU(), nn.Linear(a, b)]
    return nn.Sequential(*layers)


@part(Spec, "softmax")
@dataclass(frozen=True)
class Softmax:
    """Softmax (multinomial logistic) regression, from w = 0."""

    def build(self, of: RowSpec, seed: int) -> nn.Module:
        model = _mlp((_width(of), _outputs(of)))
        for p in model.parameters():
            nn.init.zeros_(p)
        return model


@part(Spec, "linear")
@dataclass(frozen=True)
class Linear(Softmax):
    """A linear model, from w = 0: linear, logistic, Poisson or Cox regression, by the task."""


@part(Spec, "mlp")
@dataclass(frozen=True)
class MLP:
    """Fully connected layers with ReLU between them."""

    hidden: tuple[int, ...] = (200, 200)

    def __post_init__(self) -> None:
        if any(h < 1 for h in self.hidden):
            raise MusterError(f"model hidden: {list(self.hidden)}; layer widths are 1 and above")

    def build(self, of: RowSpec, seed: int) -> nn.Module:
        with _SeededInit(seed):
            return _mlp((_width(of), *self.hidden, _outputs(of)))


@part(Spec, "cnn")
@dataclass(frozen=True)
class CNN:
    """The CIFAR-10 network: two 5x5 convolutions (32, 64), then 512 and 128, BatchNorm and ReLU
    after each, Kaiming start. The paper prints only "512x128"; the rest is a reading.

    Attributes:
        image: the shape of a row as an image, channels first; default: as the data says
    """

    image: tuple[int, ...] | None = None

    def build(self, of: RowSpec, seed: int) -> nn.Module:
        shape = self.image or of.image or of.shape
        if len(shape) != 3 or np.prod(shape) != _width(of) or shape[1] % 4 or shape[2] % 4:
            as_image = "" if shape == of.shape else f" and are to be images of shape {shape}"
            raise MusterError(
                f"model cnn: rows have shape {of.shape}{as_image}; it needs images (channels, "
                "height, width) with height and width divisible by 4: name the shape with "
                "model.image = [1, 28, 28] where rows lie flat, or take --model mlp"
            )
        stand = [] if shape == of.shape else [nn.Unflatten(1, shape)]
        flat = 64 * (shape[1] // 4) * (shape[2] // 4)
        require_memory(
            f"layers for images of {shape}",
            NUMBER * (25 * 32 * shape[0] + 512 * flat),
            "resize them",
        )
        with _SeededInit(seed):
            model = nn.Sequential(
                *stand,
                *_conv(shape[0], 32),
                *_conv(32, 64),
                nn.Flatten(),
                *_dense(flat, 512),
                *_dense(512, 128),
                nn.Linear(128, _outputs(of)),
            )
            for m in model.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)):
                    nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        return model


@part(Spec, "bag")
@dataclass(frozen=True)
class Bag:
    """Texts as bags of tokens: the mean of the tokens' vectors, then a linear layer.

    Attributes:
        vocabulary: how many tokens there are
        width: of a token's vector
        pad: the token that short texts are filled up with, which does not count; default: the
            data's, or else 0
    """

    vocabulary: int = 10_000
    width: int = 32
    pad: int | None = None

    def __post_init__(self) -> None:
        check_whole("model.vocabulary", self.vocabulary)
        check_whole("model.width", self.width)
        check_whole("model.pad", self.pad or 0, 0, self.vocabulary - 1)

    def build(self, of: RowSpec, seed: int) -> nn.Module:
        if not _tokens(of) or len(of.shape) != 1:
            raise MusterError(
                "model bag: it takes texts, as rows of tokens (whole numbers); these rows are "
                f"{of.example().dtype} of shape {of.shape}"
            )
        if of.pad is not None and self.pad not in (None, of.pad):
            raise MusterError(
                f"model.pad: {self.pad}, and the data's texts are filled up with {of.pad}; leave "
                "it out"
            )
        pad = (of.pad or 0) if self.pad is None else self.pad
        size = NUMBER * self.vocabulary * self.width
        require_memory(
            f"the vectors of {self.vocabulary} tokens", size, "lower model.vocabulary or width"
        )
        with _SeededInit(seed):
            return nn.Sequential(
                bag.MeanOfTokens(self.vocabulary, self.width, pad),
                nn.Linear(self.width, _outputs(of)),
            )


def _conv(a: int, b: int) -> list[nn.Module]:
    return [nn.Conv2d(a, b, 5, padding=2), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]


def _dense(a: int, b: int) -> list[nn.Module]:
    return [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]


class _SeededInit:
    """Draw a module's starting parameters from the key (seed, "model")."""

    def __init__(self, seed: int) -> None:
        self.key = rng.torch_seed(rng.keys(seed, "model"))
        self.fork = torch.random.fork_rng(devices=[])

    def __enter__(self) -> None:
        self.fork.__enter__()
        rng.seed_torch(self.key)

    def __exit__(self, *error: object) -> None:
        self.fork.__exit__(None, None, None)


def as_module(
    model: nn.Module | Spec, of: RowSpec, seed: int, task: Task = Multiclass()
) -> nn.Module:
    """Return the module to train, checked against the rows and labels it has to fit."""
    outputs = task.outputs(target_size(of))
    if isinstance(model, type):
        name = model.__name__
        raise MusterError(f"model: the class {name}; give an instance: {name}()")
    if isinstance(model, Spec) and not isinstance(model, nn.Module):
        model = model.build(
            of
            if outputs == of.classes
            else RowShape(of.shape, outputs, of.image, of.target, _tokens(of), of.pad),
            seed,
        )
    if not isinstance(model, nn.Module):
        raise MusterError(
            f"model: {type(model).__name__}; give an nn.Module or one of muster.models"
        )
    for name, t in model.state_dict(keep_vars=True).items():
        if nn.parameter.is_lazy(t):
            raise MusterError(
                f"model: {name} has no shape yet (a lazy layer); run a batch through the model "
                "first, or give the layer its sizes"
            )
    if not any(p.requires_grad for p in model.parameters()):
        raise MusterError("model: it has no trainable parameters")
    for name, t in model.state_dict().items():
        if t.is_floating_point() and not bool(torch.isfinite(t).all()):
            raise MusterError(f"model: parameter {name} holds nan or inf before training")
    _probe(model, of, outputs, task)
    return model


def _largest(row: Tensor) -> str:
    return "" if row.is_floating_point() else f" with tokens up to {int(row.max())}"


def _twice(module: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return a module's outputs for the same rows twice: in training from the same seed and
    buffers, as each client has them; in evaluation as it is, where nothing may be drawn or kept."""
    buffers = Buffers(module)

    def once() -> Tensor:
        if module.training:
            rng.seed_torch(0, rows.device.type)
            buffers.restore()
        z: Tensor = module(rows.clone())
        return z

    return once(), once()


def _refuse_memory(z: Tensor, again: Tensor, what: str) -> None:
    if not torch.equal(z.nan_to_num(), again.nan_to_num()):
        raise MusterError(
            f"model: {what}: it keeps something from batch to batch, or draws numbers out of "
            "training or not from torch; let forward depend on its rows alone"
        )


def _probe(model: nn.Module, of: RowSpec, outputs: int, task: Task) -> None:
    """Refuse a model that does not take these rows, keeps state between batches, or has the wrong
    outputs."""
    first = next((p for p in model.parameters()), torch.zeros(1))
    row = features(of.example(), first.dtype).to(first.device)
    rows = torch.cat([row, row])  # BatchNorm's statistics need two
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            twin = deepcopy(model)  # what it keeps of a call stays out of the user's own
            z, again = _twice(twin.eval(), rows)
            if isinstance(z, torch.Tensor):
                _refuse_memory(z, again, "the same row twice gives different outputs")
                trained = _twice(twin.train(), rows)
                _refuse_memory(*trained, "in training the same rows twice give different outputs")
    except MusterError:
        raise
    except Exception as error:
        raise MusterError(
            f"model: it cannot take rows of shape {of.shape}{_largest(row)}: {first_line(error)}"
        ) from None
    if not isinstance(z, torch.Tensor):
        raise MusterError(
            f"model: it gives {type(z).__name__}, not a tensor of outputs; wrap it in a module "
            "that returns the one that the loss is of"
        )
    places = of.target if getattr(task, "axes", 1) == 2 else ()
    wider = outputs == of.classes
    fits = z.dim() == 2 + len(places) and z.shape[:-1] == (2, *places)
    fits = fits and (z.shape[-1] >= outputs if wider or not outputs else z.shape[-1] == outputs)
    if not fits:
        why = f"labels go from 0 to {of.classes - 1}" if wider else f"by its task ({task!r})"
        shape = ", ".join(map(str, (2, *places, outputs or "outputs")))
        raise MusterError(
            f"model: its output for two rows has shape {tuple(z.shape)}; {why}, so it must be "
            f"({shape})" + (" or wider" if wider else "")
        )


MODELS = kinds(Spec)
