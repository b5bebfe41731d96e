"""Advice in a folder: `advice.json`, and the runs behind it, which are a comparison.

A real federation keeps each of its trainings in `trainings`, so that it can go on after a stop.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base import durable
from ..base.untrusted_files import read_json
from ..report.advice_content import Advice
from ..results import store
from .comparison import get_run_folder, is_comparison, load_comparison, write_marker

RESULT = "advice.json"
TRAININGS = "trainings"
COMPARED = "comparison"  # key of advice that runs gave which were done for themselves


def is_advice(folder: Path) -> bool:
    """Return True if a folder holds advice that was asked for by itself."""
    return (folder / RESULT).is_file() and COMPARED not in read_table(folder)


def read_table(folder: Path) -> dict[str, Any]:
    """Read the file of advice."""
    with store.reading(folder / RESULT):
        table = read_json(folder / RESULT)
        if not isinstance(table, dict):
            raise ValueError("no table")
        return table


def get_training_folder(folder: Path, label: str, seed: int) -> Path:
    """Return the folder of one training of a real federation."""
    return get_run_folder(folder / TRAININGS, label, seed)


def save_advice(advice: Advice, folder: Path) -> None:
    """Save advice with its runs to a folder."""
    seeds = [run.seed for run in next(iter(advice.runs.values()))]
    write_marker(folder, {}, labels=[*advice.runs], seeds=seeds)
    for label, runs in advice.runs.items():
        for run in runs:
            store.save(run, get_run_folder(folder, label, run.seed))
    write_table(advice, folder)


def write_table(advice: Advice, folder: Path, **more: Any) -> None:
    """Write the file of advice."""
    text = json.dumps({**advice.table, **more}, indent=1, allow_nan=False)
    durable.write(folder / RESULT, f"{text}\n")


def load_advice(folder: Path) -> Advice:
    """Read advice with its runs from a folder."""
    with store.reading(folder / RESULT):
        found = Advice.from_table(read_table(folder))
    runs = load_comparison(folder).runs if is_comparison(folder) else {}
    return replace(found, runs=runs)
