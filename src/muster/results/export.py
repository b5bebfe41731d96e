"""Export of a trained model for use without muster: state_dict, TorchScript or ONNX.

    model.pt     the weights alone, a state_dict: `torch.load(path, weights_only=True)`
    model.ts     TorchScript: `torch.jit.load(path)(rows)`
    model.onnx   ONNX, by the extra `onnx`

The last two contain everything after reading: filling in missing values, the one-hot columns of
categories, the scale, the model, and the meaning of its outputs. So their answers are those of
`run.predict`. They take the columns of a table as numbers: a category as the index of its level,
NaN for a missing value; images as bytes; texts as tokens. Turning text into tokens, and names of
levels into their indices, stays outside the graph.

Next to each is a file of the same name and `.json`: the columns in their order, levels, scale,
labels, names of the answers.
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
from .model import ModelRecipe
from .predict import interpret, name_answers

if TYPE_CHECKING:
    from torch import Tensor

onnx = lazy_module("torch.onnx")

STATE, SCRIPT, ONNX = ".pt", ".ts", ".onnx"
ENDINGS = (STATE, SCRIPT, ONNX)
FEW, MORE = 3, 5  # rows with which a graph is traced, and with which it is checked
ROWS, ANSWERS = "rows", "answers"  # names of the input and the output
NEAR = 1e-6  # how far a graph's answers may be from the module's


def check_export_path(path: str | Path) -> Path:
    """Return the path of an export, or raise an error where its ending is not a known format."""
    file = Path(path).expanduser()
    if file.suffix not in ENDINGS:
        raise MusterError(
            f"export: '{path}'; its ending says the format: {STATE} (a state_dict), {SCRIPT} "
            f"(TorchScript), {ONNX}"
        )
    return file


def export(module: nn.Module, recipe: ModelRecipe, path: str | Path) -> Path:
    """Write a trained module, and next to it a description of its rows and answers."""
    where = check_export_path(path)
    where.parent.mkdir(parents=True, exist_ok=True)
    whole = build_exportable(module, recipe)
    rows = make_rows(recipe.inputs, FEW)
    try:
        with torch.no_grad():
            width = int(whole(rows).shape[1])
    except Exception as error:
        raise MusterError(f"export: the model cannot take its rows ({first_line(error)})") from None
    with atomic_file(where) as new:
        if where.suffix == STATE:
            torch.save(module.state_dict(), buffer := io.BytesIO())
            new.write_bytes(buffer.getvalue())
        elif where.suffix == SCRIPT:
            # Through memory: torch's own writer ends the process where the disk is full.
            new.write_bytes(trace(whole, recipe.inputs).save_to_buffer())
        else:
            write_onnx(whole, rows, new)
    card = {"about": describe(recipe, rows, width, where.suffix), "model": recipe.table()}
    write(where.with_name(f"{where.name}.json"), json.dumps(card, indent=1))
    return where


def describe(recipe: ModelRecipe, rows: Tensor, width: int, ending: str) -> dict[str, Any]:
    """Describe the input and the output of an export."""
    inputs = recipe.inputs
    if ending == STATE:
        return {
            "takes": "prepared rows (see prepare, scale) of the shape in inputs",
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
    columns = list(name_answers(recipe, width))
    return {"takes": taken, "gives": {"name": ANSWERS, "dtype": "float64", "columns": columns}}


def build_exportable(module: nn.Module, recipe: ModelRecipe) -> nn.Module:
    """Return the module with preparation and interpretation: from columns as numbers to answers."""
    inputs, task = recipe.inputs, recipe.get_task()
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
                x = prepare(made, x)
            elif scale is not None:
                x = ((x.double() - self.mean) / self.std).float()
            elif inputs.columns is not None and x.is_floating_point():
                x = x.float()  # as tables are read
            z = self.module(features(x, dtype))
            return interpret(task, inputs.classes, z.double())

    return FromColumns().eval().requires_grad_(False)


def prepare(made: TableEncoder, x: Tensor) -> Tensor:
    """Prepare rows as `TableEncoder` does, in torch."""
    columns: list[Tensor] = []
    lacking = torch.isnan(x)
    for j, name in enumerate(made.columns):
        lacks, column = lacking[:, j], x[:, j]
        # Where nothing may be missing, missing values stay NaN: see `TableEncoder`.
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


def make_rows(inputs: Inputs, n: int) -> Tensor:
    """Draw rows of the form the graph takes."""
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


def trace(whole: nn.Module, inputs: Inputs) -> Any:
    """Return the module as TorchScript, compared with the module itself on other rows."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")  # torch calls tracing deprecated; TorchScript needs it
        try:
            graph: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
                whole, make_rows(inputs, FEW), check_trace=False
            )
            rows = make_rows(inputs, MORE)
            same = torch.allclose(graph(rows), whole(rows), NEAR, NEAR, equal_nan=True)
        except Exception as error:
            raise MusterError(
                f"export: torch cannot trace this model ({first_line(error)}); export its weights "
                f"({STATE})"
            ) from None
    if not same:
        raise MusterError(
            "export: traced on some rows, the model answers otherwise on others (its forward "
            f"depends on their number or values); export its weights ({STATE})"
        )
    for warning in caught:
        if warning.category.__name__ == "TracerWarning":
            why = str(warning.message).splitlines()[0]
            message = f"export: compare its answers with run.predict; torch warns: {why}"
            warnings.warn(message, MusterWarning, stacklevel=2)
            break
    return graph


@contextmanager
def silence(name: str) -> Iterator[None]:
    """Let a logger log nothing but errors."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def write_onnx(whole: nn.Module, rows: Tensor, path: Path) -> None:
    """Write the module as ONNX, for any number of rows."""
    try:
        with warnings.catch_warnings(), silence("torch.onnx"):
            warnings.simplefilter("ignore")  # torch's exporter warns about its own parts
            onnx.export(
                whole,
                (rows,),
                str(path),
                input_names=[ROWS],
                output_names=[ANSWERS],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except ModuleNotFoundError as error:
        raise MusterError(
            f"onnx: {error.name} is not installed; it needs: pip install 'muster-fl[onnx]'"
        ) from None
    except Exception as error:
        raise MusterError(
            f"export: torch cannot write this model as ONNX ({first_line(error)}); export it as "
            f"{SCRIPT} or {STATE}"
        ) from None
