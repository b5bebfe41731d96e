"""What was asked, and the answer: who wins, by how much, how sure, at what cost.

Methods are held against the one with the best mean, seed by seed. A method wins by a measure where
the 95 % interval of its paired difference to every other one excludes 0; where an interval covers
0, the answer says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base.errors import plural
from ...base.lazy import pl
from ...results.measures import Measure
from ..ascii import sentence
from ..figure import title_of
from ..intervals import Interval, at, covered
from ..tables import baseline, notes, warnings_of
from .content import Story
from .markup import Section, paragraph, say, table

NOBODY = "no clear winner"
HEADLINES = 2  # measures in the first sentence
FEW = 3  # methods that a headline has room for


@dataclass(frozen=True)
class Standing:
    """How the methods stand by one measure after a round.

    Attributes:
        best: the method with the best mean, and `mean` its interval
        ahead: of every other method: by how much the best one is ahead, seed by seed
    """

    measure: Measure
    title: str
    round: int
    best: str
    mean: Interval
    ahead: dict[str, Interval]

    @property
    def beaten(self) -> list[str]:
        """Those it is clearly ahead of."""
        return [label for label, gap in self.ahead.items() if gap.excludes_zero]

    @property
    def open(self) -> list[str]:
        """Those it may be behind of, for all these seeds say."""
        return [label for label in self.ahead if label not in self.beaten]

    @property
    def paired(self) -> bool:
        """Whether there are seeds enough for an interval."""
        return not np.isnan(self.mean.half)

    def sentence(self) -> str:
        """Who is ahead, by how much, how sure."""
        low, m = self.measure.lower, self.measure
        word = "lower" if low else "higher"
        value = f"{'lowest' if low else 'highest'} {self.title} after round {self.round}"
        head = f"{self.best} has the {value}: {shown(self.mean, m)}."
        if not self.paired:
            gaps = ", ".join(f"{_amount(g, m)} against {o}" for o, g in self.ahead.items())
            return f"{head} {gaps[:1].upper()}{gaps[1:]}; one seed says nothing about chance."
        if all(gap.mean == 0 for gap in self.ahead.values()):
            return f"All methods have the same {self.title} after round {self.round}: {shown(self.mean, m)}."  # noqa: E501
        same = [o for o in self.open if self.ahead[o].mean == 0]
        sure = [f"than {o} by {_amount(self.ahead[o], m)}" for o in self.beaten]
        doubtful = [o for o in self.open if o not in same]
        not_sure = [f"than {o} ({_amount(self.ahead[o], m)})" for o in doubtful]
        said = [f"clearly {word} {', '.join(sure)}"] if sure else []
        if not_sure:
            covers = "the interval covers 0" if len(not_sure) == 1 else "the intervals cover 0"
            said.append(f"not clearly {word} {', '.join(not_sure)}: {covers}")
        said += [f"the same as that of {_listed(same)}"] if same else []
        return f"{head} Seed by seed it is {'; '.join(said)}."

    def headline(self) -> str:
        """The same in a few words."""
        what = f"on {self.title}"
        if not self.paired:
            return f"{self.best} is ahead {what}, on one seed"
        if not self.open:
            return f"{self.best} wins {what}"
        if self.beaten:
            return (
                f"{self.best} is ahead {what}: clearly of {_listed(self.beaten)}, not clearly of "
                f"{_listed(self.open)}"
            )
        return f"{NOBODY} {what}"


def _listed(labels: list[str]) -> str:
    """Methods by name, as long as there are few.

    >>> _listed(["a", "b"]), _listed(["a", "b", "c", "d"])
    ('a and b', '4 others')
    """
    return " and ".join(labels) if len(labels) <= FEW else f"{len(labels)} others"


def shown(value: Interval, measure: Measure) -> str:
    """A mean with its interval, as a table shows it."""
    mean, half = value.mean * measure.scale, value.half * measure.scale
    return f"{mean:.3f}" if np.isnan(half) else f"{mean:.3f} ± {half:.3f}"


def _amount(gap: Interval, measure: Measure) -> str:
    return shown(Interval(abs(gap.mean), gap.half), measure)


def standings(story: Story) -> list[Standing]:
    """How the methods stand by each measure after the last of the rounds, where all took it."""
    found, t = [], story.rounds[-1]
    for measure in story.compared:
        values = {
            label: np.array([at(run, measure.name, t) for run in mine])
            for label, mine in story.runs.items()
        }
        if not all(np.isfinite(v).all() for v in values.values()):
            continue
        sign = -1.0 if measure.lower else 1.0
        best = max(values, key=lambda label: sign * float(values[label].mean()))
        ahead = {
            label: story.interval(sign * (values[best] - v), measure)
            for label, v in values.items()
            if label != best
        }
        title = title_of(measure, story.everyone)
        mean = story.interval(values[best], measure)
        found.append(Standing(measure, title, t, best, mean, ahead))
    return found


def cost(story: Story, best: str) -> str:
    """What the best one uploads, against the others."""
    sent = {
        label: float(np.mean([run.rounds["bytes_up"].sum() for run in mine])) / 1e6
        for label, mine in story.runs.items()
    }
    own = sent.pop(best)
    against = [_against(own, other, label) for label, other in sent.items()]
    return f"What it takes: {best} uploads {own:.1f} MB in a run, {', '.join(against)}."


def _against(own: float, other: float, label: str) -> str:
    """What one uploads, against another.

    >>> _against(6.0, 4.8, "a"), _against(6.0, 0.0, "b"), _against(6.0, 0.5, "c")
    ('25% more than a (4.8 MB)', 'b next to nothing', '12 times as much as c (0.5 MB)')
    """
    if other < own / 100:
        return f"{label} next to nothing"
    ratio = own / other if other else 1.0
    if ratio >= 3:
        return f"{ratio:.0f} times as much as {label} ({other:.1f} MB)"
    if f"{abs(ratio - 1):.0%}" == "0%":
        return f"as much as {label}"
    return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'} than {label} ({other:.1f} MB)"


def asked(story: Story) -> str:
    """What was run."""
    run = story.every[0]
    seen = run.final.filter(~pl.col("unseen")) if len(run.final) else run.final
    who = plural(len(seen), "client")
    if len(seen) and not story.everyone:
        who += f", {int(seen['priority'].sum())} of them priority clients"
    if len(run.final) > len(seen):
        who += f", and {len(run.final) - len(seen)} unseen that only judge"
    what = plural(len(story.runs), "method") if len(story.runs) > 1 else story.labels[0]
    seeds = plural(len(story.seeds), "seed") if len(story.seeds) > 1 else f"seed {story.seeds[0]}"
    data = f" on {', '.join(story.data)}" if story.data else ""
    end = "" if story.complete else " It is not finished: what is here is what there is so far."
    return f"{what}{data}: {who}, {plural(story.last, 'round')}, {seeds}.{end}"


def alone(story: Story) -> str:
    """What one run came to, with nothing to hold it against but a guess."""
    run = story.every[0]

    def end(m: Measure) -> str:
        values = np.array([at(r, m.name, story.last) for r in story.every])
        return shown(story.interval(values, m), m)

    ends = [
        f"{title_of(m, story.everyone)} {end(m)}"
        for m in story.compared
        if np.isfinite(at(run, m.name, story.last))
    ]
    guess = run.facts.get("majority_test_accuracy")
    held = "" if guess is None else f" Always answering the most frequent class: {guess:.3f}."
    said = ", ".join(ends) or "nothing was measured"
    return f"After round {story.last}: {said}.{held} There is no other method to compare it with."


def answers(story: Story) -> list[str]:
    """The answer, the first sentence of which says it in few words."""
    if len(story.runs) == 1:
        return [alone(story)]
    stand = standings(story)
    if not stand:
        return ["Nothing that all methods measured can be compared."]
    head = "; ".join(s.headline() for s in stand[:HEADLINES])
    if head.startswith(NOBODY):  # a method's name stays as it is
        head = f"{head[:1].upper()}{head[1:]}"
    return [f"{head}.", *(s.sentence() for s in stand), cost(story, stand[0].best)]


def section(story: Story) -> Section:
    """What was asked and the answer, the numbers behind it, and what is to be said of them."""
    head, *rest = answers(story)
    pairs = "Each interval is for its pair of methods by itself." if len(story.runs) > 2 else ""
    if len(story.seeds) > 1 and any(
        gap.half == 0 and gap.mean != 0 for s in standings(story) for gap in s.ahead.values()
    ):
        pairs += " Where ± is 0 all seeds gave the same difference, which says little about chance."
    parts = [
        paragraph(asked(story), kind="asked"),
        paragraph(head, kind="answer"),
        *(paragraph(sentence) for sentence in rest),
        *(f'<p class="attention">{say(line)}</p>' for line in warnings_of(story.runs)),
        numbers_table(story),
        paragraph(
            pairs,
            *map(sentence, [*covered(story.runs), *baseline(story.every), *notes(story.every)]),
        ),
    ]
    return Section("answer", "What was asked, and the answer", "\n".join(parts))


def numbers_table(story: Story) -> str:
    """Means with intervals, methods down and measures across."""
    first, *more = story.compared or (None,)
    if first is None:
        return ""
    wanted = [(t, first) for t in story.rounds] + [(story.rounds[-1], m) for m in more]
    rows = []
    for label in story.labels:
        mine = story.summary.filter(pl.col("method") == label)
        cells = []
        for t, m in wanted:
            row = mine.filter(pl.col("round") == t, pl.col("measure") == m.name).row(0, named=True)
            half = float("nan") if row["half"] is None else row["half"]
            cells.append(None if row["mean"] is None else shown(Interval(row["mean"], half), m))
        rows.append([label, *cells])
    head = ["method", *(f"{m.head} @{t}" for t, m in wanted)]
    over = plural(len(story.seeds), "seed")
    return table("summary", head, rows, f"mean ± 95 % interval, {over}")
