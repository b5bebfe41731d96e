"""Run folders: save and load a run as parquet tables, safetensors weights and checksums; no pickle.

Everything is written by `muster.base.durable`, so that a killed process leaves either the old files
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
from .model import ClientModels, ModelRecipe
from .run import Run
from .validation import ROWS, check_marker, check_recipe, check_tables

FRAMES = ("rounds", "clients", "moves", "attackers", "final")
MARKER = "run.toml"  # written last: a folder that has it contains a saved run
RECIPE = "model.json"  # columns, scale, labels, model spec: see `model.ModelRecipe`
HOLDINGS = "holdings.parquet"  # the rows of each class that every client has
OWN = "own.safetensors"  # the clients' own models, and their clients
CHECKPOINT = re.compile("round-[0-9]{8,18}")  # the name of a checkpoint's folder
WHOSE = "clients"  # the clients' numbers, next to models/NAME


def save(run: Run, folder: str | Path) -> Path:
    """Write a run's tables, weights and configuration to a folder, whole or not at all.

    Other files of the folder (checkpoints, say) stay; a run that is there is replaced.
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
        stale.unlink()  # drawn from the run that is replaced
    with writing(folder), atomic_folder(folder, marker=MARKER) as new:
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
    """Return the sha256 of a file's bytes."""
    with open_file(file, TENSORS) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_tensors(file: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a safetensors file."""
    with open_file(file, TENSORS) as stream:
        return load_file(descriptor_path(stream, file))


def is_run(folder: Path) -> bool:
    """Return True if a folder contains a saved run."""
    return (folder / MARKER).exists()


def read_marker(folder: Path) -> dict[str, Any]:
    """Read the marker of a run: its method, engine, configuration, facts, and the checksums of its
    files."""
    with reading(folder):
        marker = read_toml(folder / MARKER)
        check_marker(marker)
    return marker


def load(folder: str | Path) -> Run:
    """Read a saved run."""
    folder = Path(folder)
    if not is_run(folder):
        inside = sorted(p.parent.name for p in folder.glob(f"*/{MARKER}"))
        hint = f"it holds the runs {', '.join(inside)}" if inside else "give a folder of results"
        raise MusterError(f"{folder}: no run here ({hint})")
    meta = read_marker(folder)
    with reading(folder):
        sums = meta.pop("sums", {})
        for name, expected in sums.items():
            if digest(folder / plain_name(name)) != expected:
                raise ValueError(f"{name} is not what was written")
        frames: dict[str, Any] = {
            name: read_frame(folder / f"{name}.parquet", most=ROWS.get(name, 10**9))
            for name in FRAMES
        }
        names = meta.pop("names", [])  # none in runs saved by earlier versions
        weights = reorder(read_tensors(folder / "weights.safetensors"), names)
        # The run's files are those its marker lists: a folder may also have those of an older run.
        recipe = own = None
        if RECIPE in sums:
            check_recipe(table := read_json(folder / RECIPE))
            recipe = ModelRecipe.from_table(table)
        if HOLDINGS in sums:
            frames["holdings"] = read_frame(folder / HOLDINGS, most=ROWS["holdings"])
        if OWN in sums:
            saved = read_tensors(folder / OWN)
            whose = saved.pop(WHOSE)
            models = {n.removeprefix("models/"): a for n, a in saved.items()}
            own = ClientModels(whose, reorder(models, names))
            if any(a.ndim < 1 or len(a) != whose.size for a in (whose, *saved.values())):
                raise ValueError(f"{OWN}: not a model for each of {whose.size} clients")
        check_tables(frames)
    return Run(weights=weights, **frames, **meta, own=own, recipe=recipe)


@contextmanager
def reading(place: Path) -> Iterator[None]:
    """Turn the errors of damaged files into one MusterError that names the place."""
    polars = pl.exceptions.PolarsError
    try:
        yield
    except NotRegular:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, polars) as error:
        raise MusterError(
            f"{place}: cannot be read ({first_line(error)}): damaged, changed, or of another "
            "version; restore it from a copy, or run it again in another folder"
        ) from None


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn the errors of a full disk or a read-only folder into one MusterError."""
    try:
        yield
    except (OSError, SafetensorError, pl.exceptions.PolarsError) as error:
        raise MusterError(
            f"{place}: cannot be written ({first_line(error)}); make room, then resume with what "
            "was saved before"
        ) from None


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the oldest first."""
    return sorted(p for p in folder.glob("round-*") if CHECKPOINT.fullmatch(p.name) and p.is_dir())


def get_round(checkpoint: Path) -> int:
    """Return the round after which a checkpoint was saved."""
    return int(checkpoint.name.removeprefix("round-"))


def get_last_checkpoint_round(folder: Path) -> int:
    """Return the round of the last checkpoint in a folder; 0 without one."""
    found = list_checkpoints(folder)
    return get_round(found[-1]) if found else 0


def delete_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a run whose results are saved."""
    shutil.rmtree(folder, ignore_errors=True)


def load_runs(folder: str | Path) -> dict[str, list[Run]]:
    """Read every saved run of a comparison, by method label in the order of seeds."""
    runs: dict[str, list[Run]] = {}
    found = Path(folder).glob(f"*-seed*/{MARKER}")
    with_seed = (p for p in found if p.parent.name.rpartition("-seed")[2].isdecimal())
    for place in sorted(with_seed, key=_by_seed):
        label = place.parent.name.rpartition("-seed")[0]
        runs.setdefault(label, []).append(load(place.parent))
    if not runs:
        raise MusterError(f"{folder}: no comparison here; give a folder such as runs/demo")
    return runs


def _by_seed(place: Path) -> tuple[str, int]:
    label, _, seed = place.parent.name.rpartition("-seed")
    return label, int(seed)
