"""A run's model put to use: `muster predict RUN FILE`, what it makes of new rows, and
`muster export RUN --to FILE`, the model for use elsewhere."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal

from ..base.durable import atomic_file
from ..base.errors import MusterError, plural, printable
from ..base.registry import import_object
from ..base.schema import build
from ..results import store
from ..results.export import check_export_path
from ..results.run import Run
from ..study.comparison import is_comparison
from .console import Terminal, say

FORMATS = (".csv", ".parquet")


def predict(words: argparse.Namespace, console: Console) -> int:
    """`muster predict RUN FILE [--client NAME] [--out FILE]`."""
    if words.run is None or words.file is None:
        raise MusterError("predict: give a run and a file: muster predict runs/NAME new.csv")
    out = None if words.out is None else Path(words.out)
    if out is not None and out.suffix not in FORMATS:
        raise MusterError(f"--out: '{out}'; its ending says the format: {', '.join(FORMATS)}")
    run = one_run(words.run)
    said, known = run.predict_and_score(
        words.file, words.client, code(words, run), words.scale, words.tokenizer
    )
    if out is None:
        text = said.write_csv()
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        aside: Console = Terminal(stderr=True)  # the score is no row
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(out) as new:
            said.write_csv(new) if out.suffix == ".csv" else said.write_parquet(new)
        aside = console
        say(aside, f"predictions: {out} ({plural(len(said), 'row')})")
    if known is not None:
        say(aside, ", ".join(f"{name} {value:.4f}" for name, value in known.items()))
    return 0


def export(words: argparse.Namespace, console: Console) -> int:
    """`muster export RUN --to FILE [--client NAME]`."""
    if words.run is None or words.to is None:
        raise MusterError("export: give a run and a file: muster export runs/NAME --to model.ts")
    out = check_export_path(words.to)
    run = one_run(words.run)
    run.export(out, words.client, code(words, run), words.scale)
    say(
        console, f"model: {out} ({decimal(out.stat().st_size)}); its columns and labels: {out}.json"
    )
    return 0


def one_run(place: str) -> Run:
    """The run in a folder."""
    folder = Path(place)
    if is_comparison(folder) and not store.is_run(folder):
        first = next((p.parent for p in sorted(folder.glob(f"*/{store.MARKER}"))), None)
        such = "" if first is None else f", such as {first}"
        raise MusterError(f"{folder}: holds a comparison; give one of its runs{such}")
    return store.load(folder)


def code(words: argparse.Namespace, run: Run) -> Callable[..., Any] | None:
    """The function that builds the module, where that is code of the user's, with the settings it
    had: what --model names or, where the folder is trusted, what the run names."""
    path, recipe = words.model, run.recipe
    if path is None and words.trust_code and recipe is not None and recipe.model is None:
        path = recipe.called
    if path is None:
        return None
    made, table = import_object(path, "--model"), dict(run.config.get("model", {}))
    same = table.pop("name", None) == path
    return partial(build, made, table, "model") if same and table else made
