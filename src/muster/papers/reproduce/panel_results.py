"""Results of an experiment: one small file that the claims are judged by and the figures drawn of.

`ID.parquet` has one row per panel, swept cell, method, seed and round (of long runs, some of the
rounds), `ID.toml` says what each panel was made with. Panels stand by themselves: one that is run
again takes the place of its earlier results and leaves the others as they are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from ...base import durable
from ...base.lazy import pl
from ...base.schema import Table
from ...base.untrusted_files import plain_name, read_frame, read_toml
from ...results.store import reading
from .plan import Plan, Size, find
from .theory_studies import digest


@dataclass(frozen=True)
class Made:
    """What the results of a panel, or of a study of the theory, were made with.

    Attributes:
        digest: of the panel's part of the experiment's file; of a study, of its code
        seconds: of work: of all its runs and tunings together, whenever they were run
        data: of a panel: how many rows a client has, and what is to be known of its data
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
    """What came out of an experiment.

    Attributes:
        frame: one row per panel, swept cell, method, seed and round
        keys: the swept keys
        made: what each panel and study was made with
        missing: the panels that could not be run, each with the command that would
        studies: the frame of each study of the theory
        earlier: which of the experiments it uses were run by an earlier version of their file
    """

    frame: pl.DataFrame
    keys: list[str] = field(default_factory=list)
    made: dict[str, Made] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    studies: dict[str, pl.DataFrame] = field(default_factory=dict)
    earlier: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Of work, all panels and studies together."""
        return sum(made.seconds for made in self.made.values())

    def outdated(self, plan: Plan) -> list[str]:
        """The panels that were run by an earlier version of the experiment's file, and the studies
        whose code has changed."""

        def now(name: str, made: Made) -> str:
            return digest(name) if name in plan.studies else plan.panel(name, made.size).digest

        known = (*plan.own, *plan.studies)
        return [
            name
            for name, made in self.made.items()
            if name in known and now(name, made) != made.digest
        ]


def stacked(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """One frame after another; what some do not have is null there."""
    some = [frame for frame in frames if frame.width]
    return pl.concat(some, how="diagonal_relaxed") if some else pl.DataFrame()


def renewed(old: Results | None, new: Results, plan: Plan) -> Results:
    """Results in which the panels that were run now take the place of the earlier ones; what the
    plan does not have any more is gone."""
    if old is None:
        return new
    before = old.frame
    if before.width:
        before = before.filter(~pl.col("panel").is_in(list(new.made)))
    both = {**old.made, **new.made}
    # In the order of the plan, whichever was run first.
    made = {name: both[name] for name in (*plan.own, *plan.studies) if name in both}
    frame = stacked([before, new.frame])
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
        {name: (old.studies | new.studies)[name] for name in plan.studies if name in made},
    )


def save(results: Results, folder: Path, id: str) -> Path:
    """Keep results as `ID.parquet` and `ID.toml`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{id}.parquet"
    with durable.atomic_file(path) as new:
        results.frame.write_parquet(new, compression="zstd")
    for name, frame in results.studies.items():
        with durable.atomic_file(folder / f"{id}-{name}.parquet") as new:
            frame.write_parquet(new, compression="zstd")
    told: dict[str, Any] = {
        "keys": results.keys,
        "studies": list(results.studies),
        "missing": results.missing,
        "made": {name: asdict(made) for name, made in results.made.items()},
    }
    durable.write(path.with_suffix(".toml"), tomli_w.dumps(told))
    return path


def load(folder: Path, id: str) -> Results | None:
    """Results that were kept, or None; what a version that kept no panels apart wrote is made again
    from its runs."""
    path = folder / f"{id}.parquet"
    if not path.exists():
        return None
    with reading(path):
        told = read_toml(path.with_suffix(".toml"))
        if "made" not in told:
            return None
        studies = {
            name: read_frame(folder / plain_name(f"{id}-{name}.parquet"))
            for name in told["studies"]
        }
        made = {name: Made(**one) for name, one in told["made"].items()}
        return Results(read_frame(path), told["keys"], made, told["missing"], studies)


def together(plan: Plan, folder: Path) -> Results | None:
    """An experiment's results with those it uses; None where there are none at all."""
    used = {id: found for id in plan.uses if (found := load(folder, id)) is not None}
    own = load(folder, plan.id)
    if own is None and not used:
        return None
    nothing = Results(pl.DataFrame())
    mine = nothing if own is None else renewed(own, nothing, plan)
    every = [*used.values(), mine]
    frame = stacked([*(apart(r.frame, plan, id) for id, r in used.items()), mine.frame])
    return Results(
        frame,
        list(dict.fromkeys(key for r in every for key in r.keys)),
        mine.made,
        mine.missing,
        {name: studied for r in every for name, studied in r.studies.items()},
        [id for id, r in used.items() if r.outdated(find(id))],
    )


def apart(frame: pl.DataFrame, plan: Plan, id: str) -> pl.DataFrame:
    """The results of an experiment that a plan uses, panels of a name that it has too by `ID/`."""
    if not frame.width:
        return frame
    names = {name: f"{id}/{name}" for name in plan.own}
    return frame.with_columns(pl.col("panel").replace(names))
