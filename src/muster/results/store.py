"""Results on disk: parquet tables, safetensors weights, their checksums, never pickle.

Everything goes through `muster.base.durable`, so that a killed process leaves either the old files
or the new ones.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from ..base.durable import atomic_folder
from ..base.errors import MusterError, first_line
from ..base.lazy import pl
from ..base.params import reorder
from ..base.untrusted_files import (
    TENSORS,
    NotRegular,
    descriptor_path,
    open_file,
    plain_name,
    read_frame,
    read_json,
    read_toml,
)
from .model import Own, Recipe
from .run import Run
from .validation import ROWS, check_marks, check_recipe, check_tables

FRAMES = ("rounds", "clients", "moves", "attackers", "final")
MARKER = "run.toml"  # a folder that has it holds a run, complete
RECIPE = "model.json"  # columns, scale, labels, what was built: see `trained.Recipe`
HOLDINGS = "holdings.parquet"  # the rows of each class that every client has
OWN = "own.safetensors"  # the models clients keep for themselves, and whose they are
NUMBERED = re.compile("round-[0-9]{8,18}")  # a checkpoint
WHOSE = "clients"  # their numbers, next to models/NAME


def save(run: Run, folder: str | Path) -> Path:
    """Write a run's tables, weights and configuration to a folder, whole or not at all.

    What else the folder holds (checkpoints, a figure) stays; a run that is there is replaced.
    """
    folder = Path(folder)
    meta = {
        "method": run.method,
        "seed": run.seed,
        "engine": run.engine,
        "complete": run.complete,
        "note": run.note,
        "names": list(run.weights),
        "facts": run.facts,
        "config": run.config,
    }
    for stale in (*folder.glob("figure.*"), *folder.glob("report.html")):
        stale.unlink()  # drawn of what was here before
    with writable(folder), atomic_folder(folder, marker=MARKER) as new:
        for name in FRAMES:
            getattr(run, name).write_parquet(new / f"{name}.parquet")
        save_file(
            {name: np.require(a, requirements="C") for name, a in run.weights.items()},
            new / "weights.safetensors",
        )
        if run.recipe is not None:
            (new / RECIPE).write_text(json.dumps(run.recipe.table(), indent=1))
        if len(run.holdings):
            run.holdings.write_parquet(new / HOLDINGS)
        if run.own is not None:
            models = {
                f"models/{name}": np.require(a, requirements="C")
                for name, a in run.own.models.items()
            }
            save_file({WHOSE: run.own.clients, **models}, new / OWN)
        sums = {file.name: digest(file) for file in sorted(new.iterdir())}
        (new / MARKER).write_text(tomli_w.dumps({**meta, "sums": sums}))
    return folder


def digest(file: Path) -> str:
    """The sha256 of a file's bytes."""
    with open_file(file, TENSORS) as bytes_of:
        return hashlib.file_digest(bytes_of, "sha256").hexdigest()


def tensors(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file."""
    with open_file(file, TENSORS) as held:
        return load_file(descriptor_path(held, file))


def is_run(folder: Path) -> bool:
    """Whether a folder holds a saved run."""
    return (folder / MARKER).exists()


def marked(folder: Path) -> dict[str, Any]:
    """What the marker of a run says: its method, engine, configuration and facts, and the checksums
    of its files."""
    with readable(folder):
        marks = read_toml(folder / MARKER)
        check_marks(marks)
    return marks


def load(folder: str | Path) -> Run:
    """Read a saved run back."""
    folder = Path(folder)
    if not is_run(folder):
        inside = sorted(p.parent.name for p in folder.glob(f"*/{MARKER}"))
        hint = f"it holds the runs {', '.join(inside)}" if inside else "give a folder of results"
        raise MusterError(f"{folder}: no run here ({hint})")
    meta = marked(folder)
    with readable(folder):
        sums = meta.pop("sums", {})
        for name, expected in sums.items():
            if digest(folder / plain_name(name)) != expected:
                raise ValueError(f"{name} is not what was written")
        frames: dict[str, Any] = {
            name: read_frame(folder / f"{name}.parquet", most=ROWS.get(name, 10**9))
            for name in FRAMES
        }
        names = meta.pop("names", [])  # none in runs saved by earlier versions
        weights = reorder(tensors(folder / "weights.safetensors"), names)
        # What belongs to the run is what its marker lists: a folder may hold an older run's files.
        recipe = own = None
        if RECIPE in sums:
            check_recipe(table := read_json(folder / RECIPE))
            recipe = Recipe.of_table(table)
        if HOLDINGS in sums:
            frames["holdings"] = read_frame(folder / HOLDINGS, most=ROWS["holdings"])
        if OWN in sums:
            saved = tensors(folder / OWN)
            whose = saved.pop(WHOSE)
            models = {n.removeprefix("models/"): a for n, a in saved.items()}
            own = Own(whose, reorder(models, names))
            if any(a.ndim < 1 or len(a) != whose.size for a in (whose, *saved.values())):
                raise ValueError(f"{OWN}: not a model for each of {whose.size} clients")
        check_tables(frames)
    return Run(weights=weights, **frames, **meta, own=own, recipe=recipe)


@contextmanager
def readable(place: Path) -> Iterator[None]:
    """Files that were damaged after they were written are one clear line."""
    try:
        yield
    except NotRegular:
        raise
    except (
        OSError, ValueError, KeyError, TypeError, SafetensorError, pl.exceptions.PolarsError
    ) as error:  # fmt: skip
        raise MusterError(
            f"{place}: cannot be read ({first_line(error)}); remove it to start again"
        ) from None


@contextmanager
def writable(place: Path) -> Iterator[None]:
    """A full disk, or a folder that may not be written, is one clear line."""
    try:
        yield
    except (OSError, SafetensorError, pl.exceptions.PolarsError) as error:
        raise MusterError(
            f"{place}: cannot be written ({first_line(error)}); make room, then go on with what "
            "was saved before"
        ) from None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the oldest first."""
    return sorted(p for p in folder.glob("round-*") if NUMBERED.fullmatch(p.name) and p.is_dir())


def round_of(checkpoint: Path) -> int:
    """After which round a checkpoint was saved."""
    return int(checkpoint.name.removeprefix("round-"))


def checkpointed(folder: Path) -> int:
    """How many rounds the last checkpoint in a folder holds; 0 without one."""
    found = checkpoints(folder)
    return round_of(found[-1]) if found else 0


def drop_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a run whose results are saved."""
    shutil.rmtree(folder, ignore_errors=True)


def load_runs(folder: str | Path) -> dict[str, list[Run]]:
    """Every saved run of a comparison, by method label in the order of seeds."""
    runs: dict[str, list[Run]] = {}
    found = Path(folder).glob(f"*-seed*/{MARKER}")
    numbered = (p for p in found if p.parent.name.rpartition("-seed")[2].isdecimal())
    for place in sorted(numbered, key=_by_seed):
        label = place.parent.name.rpartition("-seed")[0]
        runs.setdefault(label, []).append(load(place.parent))
    if not runs:
        raise MusterError(f"{folder}: no comparison here; give a folder such as runs/demo")
    return runs


def _by_seed(place: Path) -> tuple[str, int]:
    label, _, seed = place.parent.name.rpartition("-seed")
    return label, int(seed)
