"""Results of any kind, read back from their folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..base.errors import MusterError
from ..results import store
from ..results.run import Run
from ..run.progress import CHECKPOINTS, read_log
from .comparison import Comparison, gathered, is_comparison, load_comparison
from .sweep_result import Sweep, is_sweep, load_sweep


def load(folder: str | Path) -> Run | Comparison | Sweep:
    """Read results back: the run, the comparison or the sweep that a folder holds."""
    folder = Path(folder)
    if is_sweep(folder):
        return load_sweep(folder)
    alone = store.is_run(folder) or not is_comparison(folder)
    return store.load(folder) if alone else load_comparison(folder)


def together(folders: Iterable[str | Path]) -> Comparison:
    """The runs of several folders as one comparison, on the seeds that all of them have. A method
    whose label another folder has too is called by its folder as well."""
    found: dict[tuple[str, int], Run] = {}
    labels: dict[str, None] = {}
    places = [Path(folder) for folder in folders]
    for i, folder in enumerate(places):
        if folder.resolve() in (place.resolve() for place in places[:i]):
            raise MusterError(f"{folder}: given twice; give it once")
        here = load(folder)
        if isinstance(here, Sweep):
            raise MusterError(f"{folder}: a sweep; give it alone, or one of its cells")
        runs = {here.label: [here]} if isinstance(here, Run) else here.runs
        for label, mine in runs.items():
            name = f"{label} ({folder.name})" if label in labels else label
            name = f"{label} ({folder})" if name in labels else name
            labels[name] = None
            found |= {(name, run.seed): run for run in mine}
    refuse_other_data(found)
    every = sorted({seed for _, seed in found})
    both = gathered(found, labels, every)
    if not both.seeds:
        raise MusterError(
            "these runs have no seed in common, so they cannot be compared; give them one by one"
        )
    return both


def refuse_other_data(found: Mapping[tuple[str, int], Run]) -> None:
    """Runs on other data cannot be compared seed by seed: refuse them, and say what differs. What
    was run from Python does not say what data it had."""
    told = [(name, rows_of(run.config)) for (name, _), run in found.items() if "data" in run.config]
    for name, data in told[1:]:
        label, first = told[0]
        keys = [k for k in first if k in data and first[k] != data[k]]
        keys = ["name"] if "name" in keys else keys
        if keys:
            differs = ", ".join(f"{k} {first.get(k)} and {data.get(k)}" for k in keys)
            raise MusterError(
                f"{label} and {name} ran on different data ({differs}) and cannot be compared seed "
                "by seed; give them one by one, or compare such settings with muster sweep"
            )


def rows_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration says of its rows; of files, where they are whatever they are called."""
    data = {**config["data"], "left_out": config.get("left_out", 0.0)}
    return {**data, "path": str(Path(data["path"]).resolve())} if "path" in data else data


def holds(folder: Path) -> str:
    """What a folder of results holds, finished or not: a run, a comparison, a sweep or a
    federation; "" for none of them."""
    if is_sweep(folder):
        return "sweep"
    if is_comparison(folder):
        return "comparison"
    done = store.is_run(folder)
    about = store.read_marker(folder) if done else read_log(folder)[0]
    if (folder / "logs").exists() or about.get("engine") == "flower":
        return "federation"
    return "run" if done or (folder / CHECKPOINTS).exists() else ""


def goes_on(folder: Path) -> str:
    """The command that goes on with what a folder holds."""
    command = {"comparison": "compare", "sweep": "sweep", "federation": "federate --local N"}
    return f"muster {command.get(holds(folder), 'run')} --resume {folder}"
