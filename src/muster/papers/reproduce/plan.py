"""An experiment of a paper as a file: what is run, at which sizes, and what is claimed of it.

`experiments/ID.toml` holds what every panel of the figure (or column of the table) has in common, a
table for each panel, and the claims. A panel is a configuration as for `muster compare`, and may
sweep some of its keys. Sizes are laid over it: `small` is what fits a small machine where the full
size does not, `quick` is a look that takes about a minute.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...base.checks import check_one_of
from ...base.errors import MusterError, nearest
from ...base.schema import Table
from .claims import Claim, within

Size = Literal["full", "small", "quick"]
SIZES: tuple[Size, ...] = ("full", "small", "quick")
KEYS = {"id", "title", "paper", "where", "about", "uses", "common", "panels", "studies", "small",
        "quick", "keep", "notes", "claims", "checks", "figures", "sure"}  # fmt: skip
# What the small file of results keeps of every round, where the runs have it.
KEEP = ("loss", "test_accuracy", "fairness", "admitted_nonpriority")


@dataclass(frozen=True)
class Panel:
    """One panel of an experiment at one size.

    Attributes:
        config: as for `muster compare`
        over: the keys that are swept, with their values
        tune: what is tuned before the runs that count: a `[tune]` table; empty: nothing
        less: what was laid over the full size
    """

    name: str
    config: Table
    over: dict[str, list[Any]] = field(default_factory=dict)
    tune: Table = field(default_factory=dict)
    less: Table = field(default_factory=dict)

    @property
    def data(self) -> str:
        """The name of its data set."""
        data = self.config.get("data", "synth")
        name = data if isinstance(data, str) else str(data["name"])
        split = "" if isinstance(data, str) else str(data.get("split", ""))
        return f"{name}_{split or 'balanced'}" if name == "emnist" else name

    @property
    def digest(self) -> str:
        """Of the settings that decide its runs: not of how many seeds there are, which results
        tell themselves."""
        config = {key: value for key, value in self.config.items() if key != "seeds"}
        matters = json.dumps([config, self.over, self.tune], sort_keys=True)
        return hashlib.sha256(matters.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Drawing:
    """One figure of an experiment.

    Attributes:
        measures: what is drawn, one panel each
        x: along what: "round", a swept key, "panel", "method", or another measure: then every
            method is a point
        y: a second swept key: then the paired difference to `against` is drawn as a map
        against: draw paired differences to this method, with zero as a line
        panels: of which panels; empty: all
        label: what is written along x; by default the key's last word
    """

    measures: tuple[str, ...]
    x: str = "round"
    y: str = ""
    against: str = ""
    panels: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Plan:
    """An experiment of a paper.

    Attributes:
        notes: what the paper does not print and is read here, for the page
        checks: what must be so in every seed of every cell, however short the runs
        studies: the studies of the theory (`muster.papers.theory.study`) that it runs, by their
            names
        about: "paper", or "ours" of what the papers do not have
        uses: experiments whose results it takes in, by their ids; where it has a panel of the same
            name, theirs is called `ID/panel`
        sure: of a study's statements those that must hold, by their ids
    """

    id: str
    title: str
    paper: str
    where: str
    common: Table
    own: dict[str, Table]
    sizes: dict[str, Table]
    keep: tuple[str, ...]
    claims: tuple[Claim, ...]
    checks: tuple[Claim, ...]
    drawings: tuple[Drawing, ...]
    studies: tuple[str, ...] = ()
    about: str = ""
    uses: tuple[str, ...] = ()
    sure: tuple[str, ...] = ()
    notes: str = ""

    def panels(self, size: Size = "full", seeds: int | None = None) -> list[Panel]:
        """The panels at a size. A panel that has no `small` form is small in full; one that says
        `skip` is left out."""
        return [
            self.panel(name, size, seeds) for name in self.own if name not in self.skipped(size)
        ]

    def skipped(self, size: Size) -> list[str]:
        """The panels that a size leaves out: they need a bigger machine."""
        return [name for name, own in self.own.items() if own.get(size, {}).get("skip", False)]

    def panel(self, name: str, size: Size, seeds: int | None = None) -> Panel:
        """One panel at a size."""
        own = {key: value for key, value in self.own[name].items() if key not in SIZES}
        table = laid(self.common, own)
        less: Table = {}
        if size != "full":
            less = laid(self.sizes.get(size, {}), self.own[name].get(size, {}))
        over = {**table.pop("sweep", {}), **less.get("sweep", {})}
        tune = laid(table.pop("tune", {}), less.get("tune", {}))
        table = laid(table, {k: v for k, v in less.items() if k not in ("sweep", "tune")})
        if seeds is not None:
            table["seeds"] = seeds
        return Panel(name, table, over, tune, less)


def laid(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """One table over another, table by table; one that names another part takes its place.

    >>> laid({"data": {"name": "synth", "noise": "low"}}, {"data": {"noise": "high"}})
    {'data': {'name': 'synth', 'noise': 'high'}}
    >>> laid({"data": {"name": "synth", "noise": "low"}}, {"data": {"name": "digits"}})
    {'data': {'name': 'digits'}}
    """
    result = dict(below)
    for one, other in (("steps", "epochs"), ("epochs", "steps")):
        if one in above:  # local work is counted in one or the other
            result.pop(other, None)
    for key, value in above.items():
        under = result.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping) and same_part(under, value):
            result[key] = laid(under, value)
        else:
            result[key] = dict(value) if isinstance(value, Mapping) else value
    return result


def same_part(below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    """Whether a table refines the part that another names, and names no other."""
    return all(above.get(key, below.get(key)) == below.get(key) for key in ("name", "kind"))


def home() -> Path:
    """The folder of the experiments' files: in a checkout, or where the package installed them."""
    checkout = Path(__file__).parents[4] / "experiments"
    installed = Path(sys.prefix) / "share" / "muster" / "experiments"
    for folder in (checkout, installed):
        if any(folder.glob("*.toml")):
            return folder
    raise MusterError(f"experiments: none in {checkout} or {installed}; install muster again")


def plans(folder: Path | None = None) -> dict[str, Plan]:
    """Every experiment by its id, in the order of the papers."""
    found = [read(path) for path in sorted((folder or home()).glob("*.toml"))]
    return {
        plan.id: plan
        for plan in sorted(found, key=lambda p: (p.about == "ours", p.paper, order(p.id)))
    }


def order(id: str) -> tuple[str, int, str]:
    """fig2 before fig10."""
    word = id.rstrip("0123456789")
    return word, int(id[len(word) :] or 0), id


def find(id: str, folder: Path | None = None) -> Plan:
    """An experiment by its id."""
    known = plans(folder)
    if id not in known:
        raise MusterError(f"unknown experiment '{id}'; {nearest(id, list(known))}")
    return known[id]


def read(path: Path) -> Plan:
    """Read an experiment's file; what is wrong with it is one line that names it."""
    try:
        table = tomllib.loads(path.read_text())
        for key in table:
            if key not in KEYS:
                raise MusterError(f"unknown key '{key}'; {nearest(key, sorted(KEYS))}")
        for key in ("id", "title", "paper", "where"):
            if not isinstance(table.get(key), str):
                raise MusterError(f"{key}: missing; give a text")
        if table["id"] != path.stem:
            raise MusterError(f"id: '{table['id']}' in a file of another name")
        check_one_of("paper", table["paper"], ("fedalign", "maxfl"))
        if not any(table.get(key) for key in ("panels", "studies", "uses")):
            raise MusterError("nothing to run; give panels, studies, or experiments it uses")
        own = list(table.get("panels", {}))
        plan = Plan(
            table["id"],
            table["title"],
            table["paper"],
            table["where"],
            table.get("common", {}),
            table.get("panels", {}),
            {size: table.get(size, {}) for size in SIZES[1:]},
            tuple(table.get("keep", ())),
            tuple(Claim.of(claim, own) for claim in table.get("claims", [])),
            tuple(Claim.of(as_check(check, path.stem), own) for check in table.get("checks", [])),
            tuple(drawing(figure, own) for figure in table.get("figures", [])),
            tuple(table.get("studies", ())),
            table.get("about", "paper"),
            tuple(table.get("uses", ())),
            tuple(table.get("sure", ())),
            table.get("notes", ""),
        )
        for claim in (*plan.claims, *plan.checks):
            check_measured(plan, claim)
        return plan
    except tomllib.TOMLDecodeError as error:
        raise MusterError(f"{path.name}: not valid TOML: {error}") from None
    except MusterError as error:
        raise MusterError(f"{path.name}: {error}") from None


def check_measured(plan: Plan, claim: Claim) -> None:
    """Refuse a claim about rounds in which a panel of this experiment measures nothing."""
    for side in (claim.left, claim.right):
        rounds, named = side.get("rounds"), side.get("panel")
        names = claim.panels if named is None else named if isinstance(named, list) else [named]
        for name in (name for name in names if name in plan.own and rounds is not None):
            for size in ("full", "small"):
                config = plan.panel(name, size).config
                last, every = config["rounds"], config.get("evaluate_every", 1)
                measured = {last, *range(every or last, last + 1, every or last)}
                if not within(rounds, measured, last):
                    raise MusterError(
                        f"claims: '{claim.id}': rounds = {rounds}, and {name} ({size}) measures "
                        f"every {every} of {last}"
                    )


def as_check(table: Table, id: str) -> Table:
    """A check as a claim of ours."""
    return {"id": f"{id}-check", "where": "our own", **table}


def drawing(table: Table, panels: Sequence[str]) -> Drawing:
    """A figure as its file says it; without panels of its own it shows these."""
    known = {"measures", "x", "y", "against", "panels", "label"}
    for key in table:
        if key not in known:
            raise MusterError(f"figures: unknown key '{key}'; {nearest(key, sorted(known))}")
    if "measures" not in table:
        raise MusterError("figures: no measures; give a list of them")
    if "y" in table and "against" not in table:
        raise MusterError("figures: y: a map is of differences; give against")
    lists = {"measures": tuple(table["measures"]), "panels": tuple(table.get("panels", panels))}
    return Drawing(**(table | lists))
