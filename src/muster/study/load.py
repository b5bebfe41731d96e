"""Results of any kind, read from their folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..base.errors import MusterError, command_line
from ..config.experiment import load_table
from ..results import store
from ..results.run import Run
from ..run.progress import CHECKPOINTS, read_log
from .comparison import Comparison, collect_comparison, is_comparison, load_comparison
from .sweep_result import Sweep, is_sweep, load_sweep
from .tune import MARKER as CHOSEN
from .units import CONFIG


def load(folder: str | Path) -> Run | Comparison | Sweep:
    """Read the run, comparison or sweep in a folder."""
    folder = Path(folder)
    if is_sweep(folder):
        return load_sweep(folder)
    if is_tuning(folder):
        raise MusterError(f"{folder}: {describe_tuning(folder)}")
    alone = store.is_run(folder) or not is_comparison(folder)
    return store.load(folder) if alone else load_comparison(folder)


def combine(folders: Iterable[str | Path]) -> Comparison:
    """Return the runs of several folders as one comparison, on the seeds that all have. A label
    that occurs twice gets the name of its folder."""
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
    both = collect_comparison(found, labels, every)
    if not both.seeds:
        raise MusterError(
            "these runs have no seed in common, so they cannot be compared; give them one by one"
        )
    return both


def refuse_other_data(found: Mapping[tuple[str, int], Run]) -> None:
    """Refuse runs on different data, which cannot be compared seed by seed. The data of runs from
    Python is not known."""
    known = [
        (name, get_data_settings(run.config))
        for (name, _), run in found.items()
        if "data" in run.config
    ]
    for name, data in known[1:]:
        label, first = known[0]
        keys = [k for k in first if k in data and first[k] != data[k]]
        keys = ["name"] if "name" in keys else keys
        if keys:
            differs = ", ".join(f"{k} {first.get(k)} and {data.get(k)}" for k in keys)
            raise MusterError(
                f"{label} and {name} ran on different data ({differs}) and cannot be compared seed "
                "by seed; give them one by one, or compare such settings with muster sweep"
            )


def get_data_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a configuration's data, with the full path of files."""
    data = {**config["data"], "left_out": config.get("left_out", 0.0)}
    return {**data, "path": str(Path(data["path"]).resolve())} if "path" in data else data


def find_kind(folder: Path) -> str:
    """Return the kind of results in a folder, finished or not: a run, a comparison, a sweep, a
    federation or a tuning; "" for none of them."""
    if is_sweep(folder):
        return "sweep"
    if is_comparison(folder):
        return "comparison"
    done = store.is_run(folder)
    about = store.read_marker(folder) if done else read_log(folder)[0]
    if (folder / "logs").exists() or about.get("engine") == "flower":
        return "federation"
    if done or (folder / CHECKPOINTS).exists():
        return "run"
    return "tuning" if is_tuning(folder) else ""


def is_tuning(folder: Path) -> bool:
    """Return True if a folder holds a tuning, finished or not."""
    config = folder / CONFIG
    if store.is_run(folder) or (folder / CHECKPOINTS).exists() or not config.exists():
        return False
    return "tune" in load_table(config, follow=False)


def describe_tuning(folder: Path) -> str:
    """Return what the folder of a tuning has, and the command for it."""
    if not (folder / CHOSEN).exists():
        return f"a tuning that is not done yet; continue with: {get_resume_command(folder)}"
    again = command_line("muster", "compare", folder / CHOSEN)
    return (
        f"a tuning; its scores are in tuning.parquet, and the chosen settings are run with: {again}"
    )


def get_resume_command(folder: Path) -> str:
    """Return the command that continues the results in a folder."""
    command = {
        "comparison": ["compare"],
        "sweep": ["sweep"],
        "tuning": ["tune"],
        "federation": ["federate", "--local", "N"],
    }
    return command_line("muster", *command.get(find_kind(folder), ["run"]), "--resume", folder)
