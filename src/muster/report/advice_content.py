"""The content of advice: for each client its verdict, and the numbers of every way to take part.

Here are the values, their JSON form, and the sentences in plain words; `html.advice` is the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..base.errors import format_row_points, plural, unknown_name
from ..base.memory import format_bytes
from ..results.run import Run
from ..tasks.scores import get_score
from .table_layout import Column, TerminalTable
from .text_format import join_words
from .way_content import WayContent, as_whole, finite

FEW = 5  # clients that are listed by name
CLEAR = {"gain": "Clearly better than alone", "harm": "clearly worse"}  # of a way, in words
SMALL_TEST = 50  # held-out rows below which the weight of a single one is stated


@dataclass(frozen=True)
class ClientContent:
    """The advice for one client.

    Attributes:
        verdict: join, help, stay out or cannot tell
        way: name of the way advised, or of the best one
        helps: names of clients that clearly gain by training with this one
        none: True if every way is shown to gain less than what counts
        thin: True if hardly any of its rows is outside its most frequent class
        rows: its training rows in a seed
        test_rows: its held-out rows in a seed
        seeds_needed: number of seeds that would tell
        rows_needed: number of rows that would tell
        alone: its numbers alone
        ways: those of every way, by name
    """

    name: str
    verdict: str
    way: str
    helps: tuple[str, ...]
    none: bool
    thin: bool
    rows: int
    test_rows: int
    seeds_needed: int | None
    rows_needed: int | None
    alone: WayContent
    ways: Mapping[str, WayContent]

    @property
    def best(self) -> WayContent | None:
        """The way advised, or else the best one."""
        return self.ways.get(self.way)

    @property
    def table(self) -> dict[str, Any]:
        """The values as JSON."""
        best = self.best
        gain = (math.nan,) * 3 if best is None or best.gain is None else best.gain
        return {
            "verdict": self.verdict,
            "gain": [finite(value) for value in gain],
            "way": self.way,
            "helps": list(self.helps),
            "rows": self.rows,
            "test_rows": self.test_rows,
            "seeds_needed": self.seeds_needed,
            "rows_needed": self.rows_needed,
            "none": self.none,
            "thin": self.thin,
            "why": self.sentence(),
            "alone": self.alone.table,
            "ways": {name: way.table for name, way in self.ways.items()},
        }

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> ClientContent:
        """Read the values from JSON."""
        return cls(
            name,
            str(table["verdict"]),
            str(table["way"]),
            tuple(str(other) for other in table["helps"]),
            bool(table["none"]),
            bool(table["thin"]),
            int(table["rows"]),
            int(table["test_rows"]),
            as_whole(table["seeds_needed"]),
            as_whole(table["rows_needed"]),
            WayContent.from_table("alone", table["alone"]),
            {way: WayContent.from_table(way, found) for way, found in table["ways"].items()},
        )

    def headline(self) -> str:
        """Return the verdict with the way or the clients it is about."""
        if self.verdict == "join":
            return f"join, {self.way}"
        if self.verdict == "help":
            return f"help {', '.join(self.helps)}"
        return self.verdict

    def sentence(self) -> str:
        """Return the reasons of the verdict in plain words."""
        parts = []
        best = self.best
        if self.verdict == "help" and (best is None or best.gain is None):
            parts.append(f"{join_words(self.helps)} clearly gains by training with it.")
        if self.thin:
            parts.append(
                "Nearly all of its rows are of one class, so that its loss says little about the "
                "others: it needs rows of those."
            )
        elif best is None or best.gain is None:
            held = plural(self.rows + self.test_rows, "row")
            parts.append(f"No way to take part could be measured: it has {held}.")
        elif self.verdict == "join":
            parts.append(
                f"Training {self.way} lowers its loss on rows it has not seen from "
                f"{self.alone.loss:.3f} alone to {best.loss:.3f}: {format_gain(best.gain)}."
            )
        elif self.verdict == "stay out":
            parts.append(
                "No way to take part gains it enough to count (best: "
                f"{self.way}, {format_gain(best.gain)} of its loss {self.alone.loss:.3f} alone)."
            )
        elif self.verdict == "help":
            known = "does not gain enough to count" if self.none else "is not shown to gain"
            parts.append(
                f"{join_words(self.helps)} clearly {'gain' if len(self.helps) > 1 else 'gains'} by "
                f"training with it; it {known} itself ({self.way}: {format_gain(best.gain)}): let "
                "others learn from its rows, and keep its own model."
            )
        else:
            parts.append(
                f"Training {self.way} looked best: {format_gain(best.gain)} of its loss "
                f"{self.alone.loss:.3f} alone, "
                + ("which is clear, but little." if best.clear else "which may be chance.")
            )
        harms = [way.name for way in self.ways.values() if way.clear == "harm"]
        if harms:
            parts.append(f"Clearly worse than alone: {join_words(harms)}.")
        if self.rows_needed is not None:
            parts.append(
                f"About {round_up(self.rows_needed):,} rows would tell, if this holds; it has "
                f"{self.rows + self.test_rows:,}."
            )
        elif self.seeds_needed is not None:
            parts.append(f"About {self.seeds_needed} seeds would tell, if this holds.")
        elif self.verdict == "cannot tell" and best is not None:
            parts.append("More rows of this kind would not tell.")
        if 0 < self.test_rows < SMALL_TEST:
            of = "points of accuracy" if "accuracy" in self.alone.scores else "% of its loss"
            parts.append(
                f"It is tested on {plural(self.test_rows, 'row')} a seed: one is "
                f"{format_row_points(self.test_rows)} {of}."
            )
        return " ".join(parts)

    def describe_hundred(self, classes: Sequence[str] = ()) -> str:
        """Return what comes out for 100 held-out rows, alone and by the way advised or best; empty
        where answers are not right or wrong. `classes` are the names of two."""
        ways = [way for way in (self.alone, self.best) if way is not None]
        right = [way.scores.get("accuracy", math.nan) for way in ways]
        if not all(map(math.isfinite, right)):
            return ""
        counts = [f"{format_percent(n)} {way.name}" for n, way in zip(right, ways, strict=True)]
        text = f"Right of 100 held-out rows: {', '.join(counts)}"
        outcomes = [way.outcomes for way in ways if way.outcomes is not None]
        if len(classes) == 2 and len(outcomes) == len(ways):
            shares = [
                (classes[1], [o.sensitivity for o in outcomes], "are found"),
                (classes[0], [o.specificity for o in outcomes], "recognised"),
            ]
            phrases = [
                f"{' and '.join(map(format_percent, found))} of 100 {of_class(name)} {verb}"
                for name, found, verb in shares
                if None not in found
            ]
            text += f"; {', '.join(phrases)}" if phrases else ""
        return f"{text} ({plural(self.test_rows, 'test row')} a seed)."


@dataclass(frozen=True)
class Advice:
    """Advice to every client of a federation.

    Attributes:
        clients: advice by name
        data: name of the data
        seeds: number of seeds
        rounds: rounds of a training
        steps: local steps of a training, the same alone
        note: what the intervals cover
        least: share of the loss alone that a gain must reach to count
        ways: names of the ways, in order
        method: the way that is advised most often; "" if nobody is to join
        remarks: what was left out, and why
        classes: names of the two classes, where there are two
        runs: runs of alone, everyone and MaxFL, for the researcher's part of the report
    """

    clients: Mapping[str, ClientContent]
    data: str
    seeds: int
    rounds: int
    steps: int
    note: str
    least: float
    ways: tuple[str, ...]
    method: str = ""
    remarks: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    runs: Mapping[str, Sequence[Run]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, name: str) -> ClientContent:
        if name not in self.clients:
            raise unknown_name("client", name, self.clients)
        return self.clients[name]

    @property
    def table(self) -> dict[str, Any]:
        """The advice as JSON."""
        return {
            "clients": {name: client.table for name, client in self.clients.items()},
            **self.setting,
        }

    @property
    def setting(self) -> dict[str, Any]:
        """The part that holds for all clients, as JSON."""
        return {
            "data": self.data,
            "method": self.method,
            "seeds": self.seeds,
            "rounds": self.rounds,
            "steps": self.steps,
            "least": self.least,
            "intervals": self.note,
            "remarks": list(self.remarks),
            "ways": list(self.ways),
            "classes": list(self.classes),
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Advice:
        """Read advice from JSON, without its runs."""
        clients = table["clients"].items()
        return cls(
            {name: ClientContent.from_table(name, found) for name, found in clients},
            str(table["data"]),
            int(table["seeds"]),
            int(table["rounds"]),
            int(table["steps"]),
            str(table["intervals"]),
            float(table["least"]),
            tuple(str(way) for way in table["ways"]),
            str(table["method"]),
            tuple(str(remark) for remark in table["remarks"]),
            tuple(str(label) for label in table["classes"]),
        )

    def count(self) -> dict[str, int]:
        """Return the number of clients with each verdict."""
        verdicts = [client.verdict for client in self.clients.values()]
        return {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}

    def summary(self) -> str:
        """Return the verdicts of all clients in a sentence."""
        names: dict[str, list[str]] = {}
        for client in self.clients.values():
            names.setdefault(client.headline(), []).append(client.name)
        lines = [f"{name_or_count(who)}: {headline}" for headline, who in names.items()]
        return f"{'; '.join(lines)}."

    def describe_method(self) -> str:
        """Return the advice to the owner: the way that is advised most often, who clearly gains and
        who loses by it, and its cost."""
        ways = {c.name: c.ways[self.method] for c in self.clients.values() if self.method in c.ways}
        if not ways:
            return "For the owner: nobody is advised to join in any way."
        found = {word: [n for n, way in ways.items() if way.clear == word] for word in CLEAR}
        said = [
            f"{verb}: {name_or_count(found[word])}" for word, verb in CLEAR.items() if found[word]
        ]
        up, down = (
            format_bytes(sum(sizes) / len(ways))
            for sizes in zip(*((w.bytes_up, w.bytes_down) for w in ways.values()), strict=True)
        )
        return (
            f"For the owner: the way advised most is {self.method}. {'; '.join(said)}. It takes "
            f"{plural(self.rounds, 'round')}, in which a client sends {up} and receives {down}."
        )

    def __rich__(self) -> RenderableType:
        clients = list(self.clients.values())
        head = [Column("client", [c.name for c in clients])]
        columns = [
            Column("verdict", [c.headline() for c in clients], left=True),
            Column("alone", [f"{c.alone.loss:.3f}" for c in clients]),
        ]
        columns += [
            Column(name, [format_way(c.ways.get(name)) for c in clients]) for name in self.ways
        ]
        title = "held-out loss alone, and its fall by each way (* : clear over the whole table)"
        lines = [f"{c.name}: {c.headline()}. {c.sentence()}" for c in clients]
        notes = [self.budget(), self.note, *self.remarks]
        table = TerminalTable(title, head, columns)
        head_lines = [*lines, self.describe_method(), ""]
        return Group(*map(Text, head_lines), table, *map(Text, notes))

    def budget(self) -> str:
        """Return the work of every way, alone included."""
        return f"every way: {plural(self.rounds, 'round')}, {self.steps} local steps; alone as many"

    def __repr__(self) -> str:
        counted = ", ".join(f"{n} {verdict}" for verdict, n in self.count().items())
        return f"Advice({self.data}: {counted}; {plural(self.seeds, 'seed')})"


def format_gain(gain: tuple[float, float, float]) -> str:
    """Format a gain with its interval.

    >>> format_gain((0.01, 0.04, 0.07))
    '+0.040 (+0.010 to +0.070)'
    """
    low, mean, high = gain
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def name_or_count(names: Sequence[str]) -> str:
    """Return clients by name, or their number if there are many."""
    return join_words(names) if len(names) <= FEW else f"{len(names)} clients"


def of_class(name: str) -> str:
    """Return the name of a class after a number of its rows.

    >>> of_class("ill"), of_class("1")
    ('ill', 'of class 1')
    """
    return f"of {name_class(name)}" if name.isdecimal() else name


def name_class(name: str) -> str:
    """Return the name of a class in a sentence."""
    return f"class {name}" if name.isdecimal() else name


def format_percent(share: float | None) -> str:
    """Format a share as a number of 100; a dash where there is none.

    >>> format_percent(0.756), format_percent(None)
    ('76', '-')
    """
    return "-" if share is None else f"{100 * share:.0f}"


def format_way(way: WayContent | None) -> str:
    """Format a way's gain for a cell; a star where it is clear."""
    if way is None or way.gain is None:
        return ""
    low, mean, high = way.gain
    return f"{mean:+.3f}±{(high - low) / 2:.3f}{'*' if way.clear else ' '}"


def round_up(n: int) -> int:
    """Round a number up to two digits.

    >>> round_up(1234), round_up(57)
    (1300, 57)
    """
    unit = int(10 ** max(0, len(str(n)) - 2))
    return -(-n // unit) * unit


def describe_score(name: str) -> str:
    """Return the name of a score in text."""
    return get_score(name).title
