"""Results and checkpoints on disk: parquet tables, safetensors weights, never pickle.

Everything goes through `muster.durable`, so that a killed process leaves either the old files or
the new ones.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tomli_w
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file as save_tensors

from ..durable import whole_folder
from ..errors import MusterError, first_line
from ..params import Memory
from ..protocol import State
from .ledger import Ledger
from .result import Run

FRAMES = ("rounds", "clients", "moves", "attackers", "final")
MARKER = "run.toml"  # a folder that has it holds a run, complete


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
        "config": run.config,
    }
    with whole_folder(folder, marker=MARKER) as new:
        for name in FRAMES:
            getattr(run, name).write_parquet(new / f"{name}.parquet")
        save_file(
            {name: np.require(a, requirements="C") for name, a in run.weights.items()},
            new / "weights.safetensors",
        )
        (new / MARKER).write_text(tomli_w.dumps(meta))
    return folder


def is_run(folder: Path) -> bool:
    """Whether a folder holds a saved run."""
    return (folder / MARKER).exists()


def load(folder: str | Path) -> Run:
    """Read a saved run back."""
    folder = Path(folder)
    if not is_run(folder):
        inside = sorted(p.parent.name for p in folder.glob(f"*/{MARKER}"))
        hint = f"it holds the runs {', '.join(inside)}" if inside else "give a folder of results"
        raise MusterError(f"{folder}: no run here ({hint})")
    with readable(folder):
        meta = tomllib.loads((folder / MARKER).read_text())
        frames: dict[str, Any] = {n: pl.read_parquet(folder / f"{n}.parquet") for n in FRAMES}
        weights = load_file(folder / "weights.safetensors")
    return Run(weights=weights, **frames, **meta)


def save_checkpoint(folder: Path, state: State, ledger: Ledger, identity: dict[str, str]) -> None:
    """Save the state after a round; older checkpoints go once this one is complete."""
    name = f"round-{state.round:08d}"
    if (folder / name).exists():
        return  # the same state: a run goes the same way every time
    tensors = {f"model/{k}": t for k, t in state.model.items()}
    tensors["present/"] = torch.from_numpy(state.present)
    for side, memory in (("server", state.server), ("clients", state.clients)):
        for part, table in memory.items():
            tensors |= {f"{side}/{part}/{k}": t for k, t in table.items()}
    with whole_folder(folder / name) as new:
        save_tensors({k: t.cpu().contiguous() for k, t in tensors.items()}, new / "s.safetensors")
        for table_name, frame in ledger.frames().items():
            frame.write_parquet(new / f"{table_name}.parquet")
        (new / "identity.json").write_text(json.dumps(identity))
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
        raise MusterError(
            f"{place}: cannot be read ({first_line(error)}); remove it to start again"
        ) from None


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
    for place in sorted(Path(folder).glob(f"*-seed*/{MARKER}"), key=_by_seed):
        label = place.parent.name.rpartition("-seed")[0]
        runs.setdefault(label, []).append(load(place.parent))
    if not runs:
        raise MusterError(f"{folder}: no comparison here; give a folder such as runs/demo")
    return runs


def _by_seed(place: Path) -> tuple[str, int]:
    label, _, seed = place.parent.name.rpartition("-seed")
    return label, int(seed)
