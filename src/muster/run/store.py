"""Results and checkpoints on disk: parquet tables, safetensors weights, never pickle.

Everything is written beside its place and then moved there, so that a killed process leaves
either the old files or the new ones. Nothing is ever overwritten: a second run of the same name
gets a number.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import tomli_w
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file as save_tensors

from ..errors import MusterError
from ..params import Memory
from ..protocol import State
from .ledger import Ledger

if TYPE_CHECKING:
    from .result import Run

FRAMES = ("rounds", "clients", "moves", "attackers", "final")


def fresh(folder: Path) -> Path:
    """This folder, or the first of `folder-2`, `folder-3`, ... that does not exist yet."""
    candidate, i = folder, 2
    while candidate.exists():
        candidate, i = folder.with_name(f"{folder.name}-{i}"), i + 1
    return candidate


def save(run: Run, folder: str | Path) -> Path:
    """Write a run's tables, weights and configuration to a folder, whole or not at all."""
    folder = Path(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in FRAMES:
        getattr(run, name).write_parquet(partial / f"{name}.parquet")
    save_file(
        {name: np.require(a, requirements="C") for name, a in run.weights.items()},
        partial / "weights.safetensors",
    )
    meta = {
        "method": run.method,
        "seed": run.seed,
        "engine": run.engine,
        "complete": run.complete,
        "note": run.note,
        "config": run.config,
    }
    (partial / "run.toml").write_text(tomli_w.dumps(meta))
    if folder.exists():
        # A run's own folder may already hold its checkpoints: keep whatever is there.
        # run.toml, by which a run is known to be there, comes last.
        for item in sorted(partial.iterdir(), key=lambda p: p.name == "run.toml"):
            os.replace(item, folder / item.name)
        partial.rmdir()
    else:
        os.replace(partial, folder)
    return folder


def load(folder: str | Path) -> Run:
    """Read a saved run back."""
    import tomllib

    from .result import Run

    folder = Path(folder)
    if not (folder / "run.toml").exists():
        inside = sorted(p.parent.name for p in folder.glob("*/run.toml"))
        hint = f"it holds the runs {', '.join(inside)}" if inside else "give a folder of results"
        raise MusterError(f"{folder}: no run here ({hint})")
    with readable(folder):
        meta = tomllib.loads((folder / "run.toml").read_text())
        frames: dict[str, Any] = {n: pl.read_parquet(folder / f"{n}.parquet") for n in FRAMES}
        weights = load_file(folder / "weights.safetensors")
    return Run(weights=weights, **frames, **meta)


def save_checkpoint(folder: Path, state: State, ledger: Ledger, identity: dict[str, str]) -> None:
    """Save the state after a round; older checkpoints go once this one is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"round-{state.round:08d}"
    if (folder / name).exists():
        return  # the same state: a run goes the same way every time
    partial = folder / f".{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    tensors = {f"model/{k}": t for k, t in state.model.items()}
    tensors["present/"] = torch.from_numpy(state.present)
    for side, memory in (("server", state.server), ("clients", state.clients)):
        for part, table in memory.items():
            tensors |= {f"{side}/{part}/{k}": t for k, t in table.items()}
    save_tensors({k: t.cpu().contiguous() for k, t in tensors.items()}, partial / "s.safetensors")
    for table_name, frame in ledger.frames().items():
        frame.write_parquet(partial / f"{table_name}.parquet")
    (partial / "identity.json").write_text(json.dumps(identity))
    os.replace(partial, folder / name)
    for old in folder.glob("round-*"):
        if old.name != name:
            shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(
    folder: Path, identity: dict[str, str], device: torch.device
) -> tuple[State, Ledger] | None:
    """The last complete checkpoint, or None. Refuses one of another run."""
    found = sorted(folder.glob("round-*"))
    if not found:
        return None
    last = found[-1]
    with readable(last):
        saved = json.loads((last / "identity.json").read_text())
        tensors = load_tensors(last / "s.safetensors", device=str(device))
        frames = {p.stem: pl.read_parquet(p) for p in last.glob("*.parquet")}
    for key, value in identity.items():
        if saved.get(key) != value:
            raise MusterError(
                f"resume: the checkpoint in {folder} was made with {key}={saved.get(key)}, this "
                f"run has {key}={value}; resume with the same settings or use another folder"
            )
    state = State(int(last.name.split("-")[1]), {})
    for key, t in tensors.items():
        where, name = key.split("/", 1)
        if where == "model":
            state.model[name] = t
        elif where == "present":
            state.present = t.cpu().numpy()
        else:
            part, name = name.split("/", 1)
            memory: Memory = getattr(state, where)
            memory.setdefault(part, {})[name] = t
    return state, Ledger.from_frames(frames)


@contextmanager
def readable(place: Path) -> Iterator[None]:
    """Files that were damaged after they were written are one clear line."""
    try:
        yield
    except (OSError, ValueError, KeyError, SafetensorError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MusterError(f"{place}: cannot be read ({reason}); remove it to start anew") from None


def checkpointed(folder: Path) -> int:
    """How many rounds the last checkpoint in a folder holds; 0 without one."""
    found = sorted(folder.glob("round-*"))
    return int(found[-1].name.split("-")[1]) if found else 0


def drop_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a run whose results are saved."""
    shutil.rmtree(folder, ignore_errors=True)


def load_runs(folder: str | Path) -> dict[str, list[Run]]:
    """Every saved run of a comparison, by method label in the order of seeds."""
    runs: dict[str, list[Run]] = {}
    for place in sorted(Path(folder).glob("*-seed*/run.toml"), key=_by_seed):
        label = place.parent.name.rpartition("-seed")[0]
        runs.setdefault(label, []).append(load(place.parent))
    if not runs:
        raise MusterError(f"{folder}: no comparison here; give a folder such as runs/demo")
    return runs


def _by_seed(place: Path) -> tuple[str, int]:
    label, _, seed = place.parent.name.rpartition("-seed")
    return label, int(seed)
