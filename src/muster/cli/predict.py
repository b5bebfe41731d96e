"""`muster predict RUN FILE`: what a run's model makes of new rows, as a table or a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from ..durable import replacing
from ..errors import MusterError, plural
from ..registry import from_path
from ..run import store
from ..run.trained import score
from ..study.comparison import is_comparison
from .console import say

FORMATS = (".csv", ".parquet")


def predict(words: argparse.Namespace, console: Console) -> int:
    """`muster predict RUN FILE [--client NAME] [--out FILE]`."""
    if words.run is None or words.file is None:
        raise MusterError("predict: give a run and a file: muster predict runs/NAME new.csv")
    out = None if words.out is None else Path(words.out)
    if out is not None and out.suffix not in FORMATS:
        raise MusterError(f"--out: '{out}'; its ending says the format: {', '.join(FORMATS)}")
    folder = Path(words.run)
    if is_comparison(folder) and not store.is_run(folder):
        first = next((p.parent for p in sorted(folder.glob(f"*/{store.MARKER}"))), None)
        such = "" if first is None else f", such as {first}"
        raise MusterError(f"{folder}: holds a comparison; give one of its runs{such}")
    run = store.load(folder)
    build = None if words.model is None else from_path(words.model, "--model")
    said = run.predict(words.file, words.client, build, words.scale)
    if out is None:
        sys.stdout.write(said.write_csv())
        aside = Console(stderr=True)  # the score is no row
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as new:
            said.write_csv(new) if out.suffix == ".csv" else said.write_parquet(new)
        aside = console
        say(aside, f"predictions: {out} ({plural(len(said), 'row')})")
    if (known := score(said)) is not None:
        say(aside, ", ".join(f"{name} {value:.4f}" for name, value in known.items()))
    return 0
