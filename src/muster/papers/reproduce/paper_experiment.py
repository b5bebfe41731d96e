"""A paper's experiment as a file: the panels to run, their sizes, and the claims about them.

`muster/papers/experiments/ID.toml` holds the settings that all panels of a figure (or columns of a
table) share, a table for each panel, and the claims. A panel is a configuration as for `muster
compare`, and may sweep some of its keys. A size overrides some settings: `small` fits a small
machine where the full size does not, `quick` takes about a minute. The results that the pages are
made from are in `experiments/results` of a checkout.

A claim compares two sides, each a method, a measure and a place (panel, swept values, rounds).
`findings` compares them cell by cell, `judge` gives the verdict on the claim as a whole.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from ...base.checks import check_one_of
from ...base.errors import MusterError, nearest
from ...base.lazy import pl
from ...base.schema import Table

Relation = Literal["above", "below", "about", "not below"]
RELATIONS = ("above", "below", "about", "not below")


@dataclass(frozen=True)
class PaperClaim:
    """A claim of a paper, in a form that runs can confirm or contradict.

    Attributes:
        says: the claim in our words
        where: its place in the paper
        left: a side: method, measure, rounds, and where in the sweep. `rounds` is a round, a range
            of them `[21, 60]`, or a range as shares of the run `[0.0, 0.5]`; a list of values of a
            place is a cell for each. `with` names a second measure: then the side is, seed by seed,
            the correlation of the two over all methods
        right: the other side; keys it leaves out are as on the left, `value` is a plain number, and
            "none" of a swept key means a panel that does not sweep it. A list of methods, or "*"
            for all others, is a cell for each
        relation: the claimed relation of the left to the right: above or below it, about it or
            not below it, both by a margin
        panels: the panels it is about; empty: all
        printed: the paper's numbers for it
    """

    id: str
    says: str
    where: str
    left: Table
    right: Table
    relation: Relation = "above"
    margin: float = 0.0
    panels: tuple[str, ...] = ()
    printed: str = ""

    @classmethod
    def of(cls, table: Table, panels: Sequence[str] = ()) -> PaperClaim:
        """Build a claim from its file's table; if it names no panels it is about these, unless a
        side names one."""
        known = {"id", "says", "where", "left", "right", "is", "margin", "panels", "printed"}
        for key in table:
            if key not in known:
                raise MusterError(f"claims: unknown key '{key}'; {nearest(key, sorted(known))}")
        for key in ("id", "says", "where", "left", "right"):
            if key not in table:
                raise MusterError(f"claims: '{table.get('id', '?')}' has no {key}")
        check_one_of("claims: is", table.get("is", "above"), RELATIONS)
        left = dict(table["left"])
        for key in ("measure",) if "with" in left else ("method", "measure"):
            if key not in left:
                raise MusterError(f"claims: '{table['id']}': left has no {key}")
        right = {**left, **table["right"]} if "value" not in table["right"] else table["right"]
        for side in (left, right):
            check_rounds(side.get("rounds"), table["id"])
        named = "panel" in left or "panel" in right
        return cls(
            table["id"],
            table["says"],
            table["where"],
            left,
            right,
            table.get("is", "above"),
            float(table.get("margin", 0.0)),
            tuple(table.get("panels", () if named else panels)),
            table.get("printed", ""),
        )

    def select_panels(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Select the results of the panels it is about."""
        if not self.panels or not frame.width:
            return frame
        return frame.filter(pl.col("panel").is_in(list(self.panels)))


def check_rounds(rounds: Any, id: str) -> None:
    """Refuse rounds that are no round, range of rounds, or range of shares of the run."""
    kinds = {type(r) for r in rounds} if isinstance(rounds, list) and len(rounds) == 2 else set()
    if not (rounds is None or type(rounds) is int or kinds in ({int}, {float})):
        raise MusterError(
            f"claims: '{id}': rounds = {rounds}; give a round, a range [21, 60], or shares of the "
            "run [0.0, 0.5]"
        )


def select_rounds(rounds: Any, measured: set[int], last: int) -> list[int]:
    """Select the measured rounds that a side is about.

    >>> select_rounds([0.0, 0.5], {5, 10, 20}, 20), select_rounds([5, 10], {5, 10, 20}, 20)
    ([5, 10], [5, 10])
    """
    if rounds is None:
        return [last]
    if not isinstance(rounds, list):
        return [r for r in measured if r == rounds]
    low, high = rounds
    if isinstance(low, float):
        return sorted(r for r in measured if low * last < r <= high * last)
    return sorted(r for r in measured if low <= r <= high)


Size = Literal["full", "small", "quick"]
SIZES: tuple[Size, ...] = ("full", "small", "quick")
TEXTS = ("id", "title", "paper", "where")
KEYS = {*TEXTS, "about", "uses", "common", "panels", "studies", "small", "quick", "keep", "notes"}
KEYS |= {"claims", "checks", "figures", "sure"}
FILES = files("muster.papers") / "experiments"
RESULTS = Path("experiments", "results")  # in a checkout
# The measures of every round that results keep, where the runs have them.
KEEP = ("loss", "test_accuracy", "fairness", "admitted_nonpriority")


@dataclass(frozen=True)
class Panel:
    """One panel of an experiment at one size.

    Attributes:
        config: as for `muster compare`
        over: the keys that are swept, with their values
        tune: the `[tune]` table of the tuning before the runs; empty: no tuning
        less: the settings that the size overrides
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
        """The digest of the settings that decide its runs. The number of seeds is not among them:
        results show it themselves."""
        config = {key: value for key, value in self.config.items() if key != "seeds"}
        matters = json.dumps([config, self.over, self.tune], sort_keys=True)
        return hashlib.sha256(matters.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Drawing:
    """One figure of an experiment.

    Attributes:
        measures: the measures drawn, one panel each
        x: the horizontal axis: "round", a swept key, "panel", "method", or another measure: then
            every method is a point
        y: a second swept key: then the paired difference to `against` is drawn as a map
        against: draw paired differences to this method, with zero as a line
        panels: the panels drawn; empty: all
        label: the label of x; by default the key's last word
    """

    measures: tuple[str, ...]
    x: str = "round"
    y: str = ""
    against: str = ""
    panels: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class PaperExperiment:
    """An experiment of a paper.

    Attributes:
        panel_tables: the settings of each panel beyond the common ones
        notes: our reading of what the paper leaves open, for the page
        checks: claims that must hold in every seed of every cell, however short the runs
        studies: names of the studies of the theory (`muster.papers.theory.study`) that it runs
        about: "paper", or "ours" for an experiment that the papers do not have
        uses: ids of the experiments whose results it includes; where it has a panel of the same
            name, theirs is called `ID/panel`
        sure: ids of a study's statements that must hold
    """

    id: str
    title: str
    paper: str
    where: str
    common: Table
    panel_tables: dict[str, Table]
    sizes: dict[str, Table]
    keep: tuple[str, ...]
    claims: tuple[PaperClaim, ...]
    checks: tuple[PaperClaim, ...]
    drawings: tuple[Drawing, ...]
    studies: tuple[str, ...] = ()
    about: str = ""
    uses: tuple[str, ...] = ()
    sure: tuple[str, ...] = ()
    notes: str = ""

    def panels(self, size: Size = "full", seeds: int | None = None) -> list[Panel]:
        """Return the panels at a size. A panel without a `small` form is run in full; one with
        `skip` is left out."""
        return [
            self.panel(name, size, seeds)
            for name in self.panel_tables
            if name not in self.skipped_panels(size)
        ]

    def skipped_panels(self, size: Size) -> list[str]:
        """Return the panels that a size leaves out: they need a bigger machine."""
        return [
            name for name, own in self.panel_tables.items() if own.get(size, {}).get("skip", False)
        ]

    def panel(self, name: str, size: Size, seeds: int | None = None) -> Panel:
        """Return one panel at a size."""
        own = {key: value for key, value in self.panel_tables[name].items() if key not in SIZES}
        table = merge_tables(self.common, own)
        less: Table = {}
        if size != "full":
            less = merge_tables(self.sizes.get(size, {}), self.panel_tables[name].get(size, {}))
        over = {**table.pop("sweep", {}), **less.get("sweep", {})}
        tune = merge_tables(table.pop("tune", {}), less.get("tune", {}))
        table = merge_tables(table, {k: v for k, v in less.items() if k not in ("sweep", "tune")})
        if seeds is not None:
            table["seeds"] = seeds
        return Panel(name, table, over, tune, less)


def merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """Override one table by another, key by key; a table that names another part replaces it.

    >>> merge_tables({"data": {"name": "synth", "noise": "low"}}, {"data": {"noise": "high"}})
    {'data': {'name': 'synth', 'noise': 'high'}}
    >>> merge_tables({"data": {"name": "synth", "noise": "low"}}, {"data": {"name": "digits"}})
    {'data': {'name': 'digits'}}
    """
    result = dict(below)
    for one, other in (("steps", "epochs"), ("epochs", "steps")):
        if one in above:  # local work is counted in one or the other
            result.pop(other, None)
    for key, value in above.items():
        under = result.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping) and is_same_part(under, value):
            result[key] = merge_tables(under, value)
        else:
            result[key] = dict(value) if isinstance(value, Mapping) else value
    return result


def is_same_part(below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    """True if a table refines the part that another names, and names no other."""
    return all(above.get(key, below.get(key)) == below.get(key) for key in ("name", "kind"))


def find_checkout() -> Path | None:
    """Return the checkout whose `experiments/results` are used: that of this file, or the current
    folder; None where there is none, as in an installed wheel."""
    for folder in (Path(__file__).parents[4], Path.cwd()):
        if (folder / RESULTS).is_dir():
            return folder
    return None


def require_checkout(option: str) -> Path:
    """Return the checkout that an option needs, or raise what to do."""
    if (found := find_checkout()) is None:
        raise MusterError(f"{option}: no {RESULTS} here; run it in a checkout of muster")
    return found


def list_experiments() -> dict[str, PaperExperiment]:
    """Return every experiment by its id, in the order of the papers."""
    found = [read_experiment(path) for path in FILES.iterdir() if path.name.endswith(".toml")]
    return {
        experiment.id: experiment
        for experiment in sorted(found, key=lambda p: (p.about == "ours", p.paper, sort_key(p.id)))
    }


def sort_key(id: str) -> tuple[str, int, str]:
    """Return a key that sorts fig2 before fig10."""
    word = id.rstrip("0123456789")
    return word, int(id[len(word) :] or 0), id


def find_experiment(id: str) -> PaperExperiment:
    """Return an experiment by its id."""
    known = list_experiments()
    if id not in known:
        raise MusterError(f"unknown experiment '{id}'; {nearest(id, list(known))}")
    return known[id]


def read_experiment(path: Traversable) -> PaperExperiment:
    """Read an experiment's file; a mistake in it is one line that names the file."""
    name = path.name.removesuffix(".toml")
    try:
        table = tomllib.loads(path.read_text())
        for key in table:
            if key not in KEYS:
                raise MusterError(f"unknown key '{key}'; {nearest(key, sorted(KEYS))}")
        for key in TEXTS:
            if not isinstance(table.get(key), str):
                raise MusterError(f"{key}: missing; give a text")
        if table["id"] != name:
            raise MusterError(
                f"id: '{table['id']}' in a file of another name; name it like the file"
            )
        check_one_of("paper", table["paper"], ("fedalign", "maxfl"))
        if not any(table.get(key) for key in ("panels", "studies", "uses")):
            raise MusterError("nothing to run; give panels, studies, or experiments it uses")
        own = list(table.get("panels", {}))
        ours = {"id": f"{name}-check", "where": "our own"}  # a check is a claim of our own
        experiment = PaperExperiment(
            table["id"],
            table["title"],
            table["paper"],
            table["where"],
            table.get("common", {}),
            table.get("panels", {}),
            {size: table.get(size, {}) for size in SIZES[1:]},
            tuple(table.get("keep", ())),
            tuple(PaperClaim.of(claim, own) for claim in table.get("claims", [])),
            tuple(PaperClaim.of(ours | check, own) for check in table.get("checks", [])),
            tuple(read_drawing(figure, own) for figure in table.get("figures", [])),
            tuple(table.get("studies", ())),
            table.get("about", "paper"),
            tuple(table.get("uses", ())),
            tuple(table.get("sure", ())),
            table.get("notes", ""),
        )
        for claim in (*experiment.claims, *experiment.checks):
            check_measured_rounds(experiment, claim)
        return experiment
    except tomllib.TOMLDecodeError as error:
        raise MusterError(f"{path.name}: not valid TOML: {error}") from None
    except MusterError as error:
        raise MusterError(f"{path.name}: {error}") from None


def check_measured_rounds(experiment: PaperExperiment, claim: PaperClaim) -> None:
    """Refuse a claim about rounds in which a panel of this experiment measures nothing."""
    for side in (claim.left, claim.right):
        rounds, named = side.get("rounds"), side.get("panel")
        names = claim.panels if named is None else named if isinstance(named, list) else [named]
        for name in (
            name for name in names if name in experiment.panel_tables and rounds is not None
        ):
            for size in ("full", "small"):
                config = experiment.panel(name, size).config
                last, every = config["rounds"], config.get("evaluate_every", 1)
                measured = {last, *range(every or last, last + 1, every or last)}
                if not select_rounds(rounds, measured, last):
                    raise MusterError(
                        f"claims: '{claim.id}': rounds = {rounds}, and {name} ({size}) measures "
                        f"every {every} of {last}"
                    )


def read_drawing(table: Table, panels: Sequence[str]) -> Drawing:
    """Read a figure of a file; if it names no panels it shows these."""
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
