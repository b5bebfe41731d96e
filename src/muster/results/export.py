"""A trained model for use elsewhere, without muster.

    model.pt     the weights alone, a state_dict: `torch.load(path, weights_only=True)`
    model.ts     TorchScript: `torch.jit.load(path)(rows)`
    model.onnx   ONNX, by the extra `onnx`

The last two hold all that comes after reading: filling in what is missing, the columns of 0 and 1
of categories, the scale, the model, and what its outputs mean. So their answers are those of
`run.predict`. They take the columns of a table as numbers: a category as the place of its level,
NaN where something is missing; images as bytes; texts as tokens. What only a reader can do stays
outside the graph: turning text into tokens, and names of levels into their places.

Next to each is a file of the same name and `.json`: the columns in their order, levels, scale,
labels, what the answers are called.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.durable import atomic_file, write
from ..base.errors import MusterError, MusterWarning, first_line
from ..base.lazy import lazy_module, nn, torch
from ..federation import Inputs, TableEncoder
from ..federation.inputs import PIXELS, WHOLE
from ..federation.ragged_rows import features
from .model import Recipe
from .predict import called, meant

if TYPE_CHECKING:
    from torch import Tensor

onnx = lazy_module("torch.onnx")

STATE, SCRIPT, ONNX = ".pt", ".ts", ".onnx"
ENDINGS = (STATE, SCRIPT, ONNX)
FEW, MORE = 3, 5  # rows by which a graph is traced, and by which it is checked
ROWS, ANSWERS = "rows", "answers"  # what goes in, and what comes out
NEAR = 1e-6  # how far a graph's answers may be from the module's own


def as_export(path: str | Path) -> Path:
    """Where an export goes; its ending says the format."""
    where = Path(path).expanduser()
    if where.suffix not in ENDINGS:
        raise MusterError(
            f"export: '{path}'; its ending says the format: {STATE} (a state_dict), {SCRIPT} "
            f"(TorchScript), {ONNX}"
        )
    return where


def export(module: nn.Module, recipe: Recipe, path: str | Path) -> Path:
    """Write a trained module, and next to it what there is to know of its rows and answers."""
    where = as_export(path)
    where.parent.mkdir(parents=True, exist_ok=True)
    whole = from_columns(module, recipe)
    rows = some_rows(recipe.inputs, FEW)
    try:
        with torch.no_grad():
            width = int(whole(rows).shape[1])
    except Exception as error:
        raise MusterError(f"export: the model cannot take its rows ({first_line(error)})") from None
    with atomic_file(where) as new:
        if where.suffix == STATE:
            torch.save(module.state_dict(), kept := io.BytesIO())
            new.write_bytes(kept.getvalue())
        elif where.suffix == SCRIPT:
            # By way of memory: torch's own writer ends the process where the disk is full.
            new.write_bytes(traced(whole, recipe.inputs).save_to_buffer())
        else:
            to_onnx(whole, rows, new)
    known = {"about": about(recipe, rows, width, where.suffix), "model": recipe.table()}
    write(where.with_name(f"{where.name}.json"), json.dumps(known, indent=1))
    return where


def about(recipe: Recipe, rows: Tensor, width: int, ending: str) -> dict[str, Any]:
    """What goes in and what comes out."""
    inputs = recipe.inputs
    if ending == STATE:
        return {
            "takes": "rows that are prepared (see prepare, scale) of the shape in inputs",
            "gives": f"{recipe.outputs or 'its'} outputs, before softmax and the like",
        }
    taken: dict[str, Any] = {
        "name": ROWS,
        "dtype": str(rows.dtype).removeprefix("torch."),
        "shape": ["rows", *rows.shape[1:]],
    }
    if inputs.text is not None:
        taken["text"] = inputs.text.to_dict()
    elif inputs.columns is not None:
        taken["columns"] = list(inputs.columns)
    if inputs.encoder is not None:
        taken["levels"] = {name: list(known) for name, known in inputs.encoder.levels.items()}
    columns = list(called(recipe, width))
    return {"takes": taken, "gives": {"name": ANSWERS, "dtype": "float64", "columns": columns}}


def from_columns(module: nn.Module, recipe: Recipe) -> nn.Module:
    """The module with what comes before and after it: from columns as numbers to answers."""
    inputs, task = recipe.inputs, recipe.known_task()
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    made, scale = inputs.encoder, inputs.scaler

    class FromColumns(nn.Module):
        mean: Tensor
        std: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            mean = () if scale is None else scale.mean
            std = () if scale is None else scale.std
            self.register_buffer("mean", torch.tensor(mean, dtype=torch.float64))
            self.register_buffer("std", torch.tensor(std, dtype=torch.float64))

        def forward(self, rows: Tensor) -> Tensor:
            x = rows
            if made is not None:
                x = prepared(made, x)
            elif scale is not None:
                x = ((x.double() - self.mean) / self.std).float()
            elif inputs.columns is not None and x.is_floating_point():
                x = x.float()  # as tables are read
            z = self.module(features(x, dtype))
            return meant(task, inputs.classes, z.double())

    return FromColumns().eval().requires_grad_(False)


def prepared(made: TableEncoder, x: Tensor) -> Tensor:
    """What `Preparation` does to rows, in torch."""
    columns: list[Tensor] = []
    lacking = torch.isnan(x)
    for j, name in enumerate(made.columns):
        lacks, column = lacking[:, j], x[:, j]
        # Where nothing may be missing, what is missing stays so: see `Preparation`.
        if name in made.levels:
            known = [(column == place).double() for place in range(len(made.levels[name]))]
            columns += known if made.fills else [torch.where(lacks, torch.nan, k) for k in known]
        else:
            for value in made.nothing.get(name, ()):
                lacks = lacks | (column == value)
            filled = torch.where(lacks, made.mean[j] if made.fills else torch.nan, column)
            columns.append((filled - made.mean[j]) / made.std[j] if made.std else filled)
        columns += [lacks.double()] if name in made.holes else []
    return torch.stack(columns, 1).float()


def some_rows(inputs: Inputs, n: int) -> Tensor:
    """Rows such as the graph takes, with numbers that could be anybody's."""
    draw = torch.Generator().manual_seed(n)
    made = inputs.encoder
    if inputs.kind == PIXELS and inputs.scaler is None:
        return torch.randint(0, 256, (n, *inputs.shape), generator=draw, dtype=torch.uint8)
    if inputs.kind == WHOLE:
        return torch.randint(0, 2, (n, *inputs.shape), generator=draw)
    if made is None:
        return torch.randn(n, *inputs.shape, generator=draw, dtype=torch.float64)
    x = torch.randn(n, len(made.columns), generator=draw, dtype=torch.float64)
    for j, name in enumerate(made.columns):
        levels = len(made.levels.get(name, ()))
        x[:, j] = torch.arange(n) % levels if levels else x[:, j] + made.mean[j]
        if name in made.holes:
            x[-1, j] = torch.nan
    return x


def traced(whole: nn.Module, inputs: Inputs) -> Any:
    """The module as TorchScript, held against the module itself on other rows."""
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")  # torch calls tracing deprecated; TorchScript needs it
        try:
            graph: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
                whole, some_rows(inputs, FEW), check_trace=False
            )
            rows = some_rows(inputs, MORE)
            same = torch.allclose(graph(rows), whole(rows), NEAR, NEAR, equal_nan=True)
        except Exception as error:
            raise MusterError(
                f"export: torch cannot trace this model ({first_line(error)}); export its weights "
                f"({STATE})"
            ) from None
    if not same:
        raise MusterError(
            "export: traced on some rows, the model answers otherwise on others (its forward goes "
            f"by how many rows there are, or by their values); export its weights ({STATE})"
        )
    for warning in said:
        if warning.category.__name__ == "TracerWarning":
            why = str(warning.message).splitlines()[0]
            message = f"export: hold its answers against run.predict; torch says: {why}"
            warnings.warn(message, MusterWarning, stacklevel=2)
            break
    return graph


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Without what a library logs short of errors."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def to_onnx(whole: nn.Module, rows: Tensor, path: Path) -> None:
    """The module as ONNX, for any number of rows."""
    try:
        with warnings.catch_warnings(), quiet("torch.onnx"):
            warnings.simplefilter("ignore")  # what torch's exporter says of its own parts
            onnx.export(
                whole, (rows,), str(path), input_names=[ROWS], output_names=[ANSWERS],
                dynamic_shapes=({0: torch.export.Dim("rows")},), dynamo=True, external_data=False,
                verbose=False,
            )  # fmt: skip
    except ModuleNotFoundError as error:
        raise MusterError(
            f"onnx: {error.name} is not installed; it needs: pip install 'muster-fl[onnx]'"
        ) from None
    except Exception as error:
        raise MusterError(
            f"export: torch cannot write this model as ONNX ({first_line(error)}); export it as "
            f"{SCRIPT} or {STATE}"
        ) from None
