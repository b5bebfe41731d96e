"""Results of an experiment: the small file from which claims are judged and figures drawn.

`ID.parquet` has one row per panel, swept cell, method, seed and round (for long runs, some of the
rounds); `ID.toml` holds the provenance of each panel. Panels are independent: one that is run again
replaces its earlier results and leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from ...base import durable
from ...base.lazy import pl
from ...base.schema import Table
from ...base.untrusted_files import plain_name, read_frame, read_toml
from ...results.store import reading
from ...study.grid import format_value
from ...study.tuning_result import Tuning, describe_edges
from ..theory import study
from .paper_experiment import PaperExperiment, Size, find_experiment

# The keys of a tuning's candidate beside its settings.
CANDIDATE_KEYS = {
    "method",
    "candidate",
    "tied",
    "chosen",
    "measure",
    "seeds",
    "scores",
    "mean",
    "half",
}


@dataclass(frozen=True)
class Provenance:
    """The origin of the results of a panel, or of a study of the theory.

    Attributes:
        digest: digest of a panel's settings, or of a study's code
        seconds: seconds of work of all its runs and tunings, whenever they were run
        data: for a panel: rows per client, and a note on its data
        tuning: the candidates of its tuning with their scores
    """

    version: str
    size: Size
    seconds: float
    digest: str = ""
    data: str = ""
    tuning: list[Table] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Results:
    """The results of an experiment.

    Attributes:
        frame: one row per panel, swept cell, method, seed and round
        keys: the swept keys
        provenance: the origin of each panel and study
        missing: the panels that could not be run, each with the command that would
        studies: the frame of each study of the theory
        earlier: the experiments it uses whose results are of an earlier version of their file
    """

    frame: pl.DataFrame
    keys: list[str] = field(default_factory=list)
    provenance: dict[str, Provenance] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    studies: dict[str, pl.DataFrame] = field(default_factory=dict)
    earlier: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Seconds of work, all panels and studies together."""
        return sum(made.seconds for made in self.provenance.values())

    def outdated_parts(self, experiment: PaperExperiment) -> list[str]:
        """Return the panels that were run by an earlier version of the experiment's file, and the
        studies whose code has changed."""

        def current_digest(name: str, size: Size) -> str:
            if name in experiment.studies:
                return study.digest(name)
            return experiment.panel(name, size).digest

        known = (*experiment.panel_tables, *experiment.studies)
        return [
            name
            for name, made in self.provenance.items()
            if name in known and current_digest(name, made.size) != made.digest
        ]


def stack(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames; columns that some do not have are null there."""
    some = [frame for frame in frames if frame.width]
    return pl.concat(some, how="diagonal_relaxed") if some else pl.DataFrame()


def merge_results(old: Results | None, new: Results, experiment: PaperExperiment) -> Results:
    """Replace earlier results by those of the panels that were run now; panels that the experiment
    no longer has are dropped."""
    if old is None:
        return new
    before = old.frame
    if before.width:
        before = before.filter(~pl.col("panel").is_in(list(new.provenance)))
    both = {**old.provenance, **new.provenance}
    # In the order of the experiment, whichever was run first.
    made = {
        name: both[name] for name in (*experiment.panel_tables, *experiment.studies) if name in both
    }
    frame = stack([before, new.frame])
    if frame.width:
        frame = frame.filter(pl.col("panel").is_in(list(made)))
        places = {name: at for at, name in enumerate(made)}
        frame = frame.sort(pl.col("panel").replace_strict(places), maintain_order=True)
        frame = frame.select(c for c in frame.columns if frame[c].null_count() < len(frame))
    return Results(
        frame,
        [key for key in dict.fromkeys((*old.keys, *new.keys)) if key in frame.columns],
        made,
        {name: how for name, how in (old.missing | new.missing).items() if name not in made},
        {name: (old.studies | new.studies)[name] for name in experiment.studies if name in made},
    )


def save(results: Results, folder: Path, id: str) -> Path:
    """Save results as `ID.parquet` and `ID.toml`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{id}.parquet"
    with durable.atomic_file(path) as new:
        results.frame.write_parquet(new, compression="zstd")
    for name, frame in results.studies.items():
        with durable.atomic_file(folder / f"{id}-{name}.parquet") as new:
            frame.write_parquet(new, compression="zstd")
    about: dict[str, Any] = {
        "keys": results.keys,
        "studies": list(results.studies),
        "missing": results.missing,
        "made": {name: asdict(made) for name, made in results.provenance.items()},
    }
    durable.write(path.with_suffix(".toml"), tomli_w.dumps(about))
    return path


def load(folder: Path, id: str) -> Results | None:
    """Load saved results, or None. Files of a version that did not separate panels count as none:
    they are made again from their runs."""
    path = folder / f"{id}.parquet"
    if not path.exists():
        return None
    with reading(path):
        about = read_toml(path.with_suffix(".toml"))
        if "made" not in about:
            return None
        studies = {
            name: read_frame(folder / plain_name(f"{id}-{name}.parquet"))
            for name in about["studies"]
        }
        made = {name: Provenance(**one) for name, one in about["made"].items()}
        return Results(read_frame(path), about["keys"], made, about["missing"], studies)


def load_results(experiment: PaperExperiment, folder: Path) -> Results | None:
    """Load an experiment's results with those it uses; None where there are none at all."""
    used = {id: found for id in experiment.uses if (found := load(folder, id)) is not None}
    own = load(folder, experiment.id)
    if own is None and not used:
        return None
    nothing = Results(pl.DataFrame())
    mine = nothing if own is None else merge_results(own, nothing, experiment)
    every = [*used.values(), mine]
    frame = stack(
        [*(separate_panels(r.frame, experiment, id) for id, r in used.items()), mine.frame]
    )
    return Results(
        frame,
        list(dict.fromkeys(key for r in every for key in r.keys)),
        mine.provenance,
        mine.missing,
        {name: frame for r in every for name, frame in r.studies.items()},
        [id for id, r in used.items() if r.outdated_parts(find_experiment(id))],
    )


def separate_panels(frame: pl.DataFrame, experiment: PaperExperiment, id: str) -> pl.DataFrame:
    """Rename the panels of a used experiment that share a name with this one's to `ID/panel`."""
    if not frame.width:
        return frame
    names = {name: f"{id}/{name}" for name in experiment.panel_tables}
    return frame.with_columns(pl.col("panel").replace(names))


def record_tuning(tuning: Tuning) -> list[Table]:
    """Return every candidate: its settings, measure, seeds, scores and their mean."""
    found: list[Table] = []
    for row in tuning.summary().iter_rows(named=True):
        of = (pl.col("method") == row["method"]) & (pl.col("candidate") == row["candidate"])
        mine = tuning.frame.filter(of)
        scores = mine["score"].cast(pl.Float64).fill_null(float("nan")).to_list()
        each = {"measure": tuning.measure, "seeds": mine["seed"].to_list(), "scores": scores}
        found.append({k: v for k, v in (row | each).items() if v is not None})
    return found


def describe_tuning(rows: Sequence[Table]) -> str:
    """Describe a panel's grid, the choice, and choices at an edge of the grid; empty where nothing
    was tuned.

    >>> lr = [{"method": "A", "local.lr": v, "chosen": v == 0.1} for v in (0.05, 0.1, 0.2)]
    >>> describe_tuning(lr)
    ', tuned (local.lr of 0.05, 0.1, 0.2: A 0.1)'
    >>> describe_tuning([row | {"measure": "test_accuracy", "seeds": [7, 8]} for row in lr])
    ', tuned (local.lr of 0.05, 0.1, 0.2 on seeds 7, 8 by test_accuracy: A 0.1)'
    >>> describe_tuning(lr[:2])
    ', tuned (local.lr of 0.05, 0.1: A 0.1; local.lr = 0.1 is the largest tried (A))'
    """
    if not rows:
        return ""
    keys = list(dict.fromkeys(key for row in rows for key in row if key not in CANDIDATE_KEYS))

    def list_values(key: str) -> str:
        return ", ".join(dict.fromkeys(format_value(row[key]) for row in rows if key in row))

    def describe_choice(row: Table) -> str:
        own: list[Any] = [format_value(row[key]) for key in keys if key in row]
        return f"{row['method']} {' / '.join(own) or 'as it is'}"

    grid = "; ".join(f"{key} of {list_values(key)}" for key in keys)
    first = rows[0]
    seeds = first.get("seeds")
    if isinstance(seeds, list):
        grid += f" on seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    if "measure" in first:
        grid += f" by {first['measure']}"
    chosen = ", ".join(describe_choice(row) for row in rows if row["chosen"])
    parts = "; ".join([f"{grid}: {chosen}", *describe_edges(rows, keys)])
    return f", tuned ({parts})"
