"""`muster predict`: predictions of a run's model for new rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from ..base.durable import atomic_file
from ..base.errors import MusterError, plural, printable
from ..base.registry import import_object
from ..base.schema import build
from ..results import store
from ..results.run import Run
from ..study.comparison import is_comparison
from .arguments import CommandParser
from .console import Terminal, print_line
from .options import add_flags, add_trust_code

FORMATS = (".csv", ".parquet")
DESCRIPTION = """\
Predict new rows with a run's model.

FILE has the columns the model was trained on; they are scaled as the training rows were. Each row
of the output is a row's class by name and the probability of every class, printed or written to
--out. If FILE has the label column too, the score is printed. Of tables, the column `flags` names
values far from those of training rows.
"""


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("run", nargs="?", metavar="RUN", help="a folder, such as runs/hospitals")
    text = "new rows: .csv, .parquet, .npz; images, or a folder of them"
    parser.add_argument("file", nargs="?", metavar="FILE", help=text)
    add_flags(
        parser,
        ("--out", "FILE", "file of predictions (.csv, .parquet); default: printed as CSV"),
        ("--tokenizer", "MODULE:NAME", "tokenizer of texts, for a model that reads them"),
        ("--keep", "NAME,NAME", "columns of FILE to carry through, such as patient_id"),
        ("--unknown", "error|missing", "levels that no training row has; missing: flag the row"),
    )
    add_model_options(parser)


def add_model_options(parser: CommandParser) -> None:
    """Add the flags that choose a run's model, for `predict` and `export`."""
    add_trust_code(parser)
    add_flags(
        parser,
        ("--client", "NAME", "a client's own model, where the method trains them"),
        ("--model", "MODULE:NAME", "function that builds the module, if it is code of yours"),
        ("--scale", "FILE", "of a federation's run: the manifest with [mean] and [std], or none"),
    )


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.run is None or arguments.file is None:
        raise MusterError("predict: give a run and a file: muster predict runs/NAME new.csv")
    out = None if arguments.out is None else Path(arguments.out)
    if out is not None and out.suffix not in FORMATS:
        raise MusterError(f"--out: '{out}'; its ending says the format: {', '.join(FORMATS)}")
    run = load_run(arguments.run)
    predictions, scores = run.predict_and_score(
        arguments.file,
        arguments.client,
        load_code(arguments, run),
        arguments.scale,
        arguments.tokenizer,
        tuple(name.strip() for name in (arguments.keep or "").split(",") if name.strip()),
        arguments.unknown or "error",
    )
    if out is None:
        text = predictions.write_csv()
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        other: Console = Terminal(stderr=True)  # the score is not a row
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(out) as new:
            predictions.write_csv(new) if out.suffix == ".csv" else predictions.write_parquet(new)
        other = console
        print_line(other, f"predictions: {out} ({plural(len(predictions), 'row')})")
    if scores is not None:
        print_line(other, ", ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    return 0


def load_run(place: str) -> Run:
    """Return the run in a folder."""
    folder = Path(place)
    if is_comparison(folder) and not store.is_run(folder):
        first = next((p.parent for p in sorted(folder.glob(f"*/{store.MARKER}"))), None)
        such = "" if first is None else f", such as {first}"
        raise MusterError(f"{folder}: holds a comparison; give one of its runs{such}")
    return store.load(folder)


def load_code(arguments: argparse.Namespace, run: Run) -> Callable[..., Any] | None:
    """Return the function that builds the module, if it is code of the user's, with its settings:
    the one that --model names or, if the folder is trusted, the one that the run names."""
    path, recipe = arguments.model, run.recipe
    if path is None and arguments.trust_code and recipe is not None and recipe.model is None:
        path = recipe.called
    if path is None:
        return None
    function, table = import_object(path, "--model"), dict(run.config.get("model", {}))
    same = table.pop("name", None) == path
    return partial(build, function, table, "model") if same and table else function
