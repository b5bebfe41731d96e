"""The result in words: which method wins, by how much, how certain, at what cost.

Methods are compared with the one with the best mean, seed by seed. A method wins by a measure if
the 95 % interval of its paired difference to every other one excludes 0; where an interval covers
0, the text states that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...base.errors import plural
from ...base.lazy import pl
from ...base.memory import format_bytes
from ...results.measures import Measure
from ..figure import panel_title
from ..intervals import Interval, coverage_notes, describe_scope, value_at
from ..tables import baseline_notes, data_notes, epsilon_notes, list_warnings
from ..text_format import join_words, sentence
from .content import Content
from .markup import Section, paragraph, table

NOBODY = "no clear winner"
HEADLINES = 2  # measures in the first sentence
FEW = 3  # most methods that are listed by name


@dataclass(frozen=True)
class Ranking:
    """The best method by one measure after a round, and its lead over the others.

    Attributes:
        best: the method with the best mean
        mean: the interval of that mean
        lead: for every other method, by how much the best one is ahead, seed by seed
    """

    measure: Measure
    title: str
    round: int
    best: str
    mean: Interval
    lead: dict[str, Interval]

    @property
    def clear(self) -> list[str]:
        """The methods that the best one clearly beats."""
        return [label for label, gap in self.lead.items() if gap.excludes_zero]

    @property
    def unclear(self) -> list[str]:
        """The methods that may be as good as the best one, on these seeds."""
        return [label for label in self.lead if label not in self.clear]

    @property
    def has_intervals(self) -> bool:
        """True if there are enough seeds for intervals."""
        return not np.isnan(self.mean.half)

    def sentence(self) -> str:
        """Describe which method is ahead, by how much, how certain."""
        low, m = self.measure.lower, self.measure
        word = "lower" if low else "higher"
        mean = format_interval(self.mean, m)
        value = f"{'lowest' if low else 'highest'} {self.title} after round {self.round}"
        head = f"{self.best} has the {value}: {mean}."
        if not self.has_intervals:
            gaps = ", ".join(f"{_format_lead(g, m)} against {o}" for o, g in self.lead.items())
            return f"{head} {gaps[:1].upper()}{gaps[1:]}; one seed says nothing about chance."
        if all(gap.mean == 0 for gap in self.lead.values()):
            return f"All methods have the same {self.title} after round {self.round}: {mean}."
        same = [o for o in self.unclear if self.lead[o].mean == 0]
        clear = [f"than {o} by {_format_lead(self.lead[o], m)}" for o in self.clear]
        unclear = [
            f"than {o} ({_format_lead(self.lead[o], m)})" for o in self.unclear if o not in same
        ]
        parts = [f"clearly {word} {', '.join(clear)}"] if clear else []
        if unclear:
            covers = "the interval covers 0" if len(unclear) == 1 else "the intervals cover 0"
            parts.append(f"not clearly {word} {', '.join(unclear)}: {covers}")
        parts += [f"the same as that of {_join_labels(same)}"] if same else []
        return f"{head} Seed by seed it is {'; '.join(parts)}."

    def headline(self, titles: Sequence[str] = ()) -> str:
        """Describe the same in a few words, of several measures where they agree."""
        what = f"on {join_words(titles or [self.title])}"
        if not self.has_intervals:
            return f"{self.best} is ahead {what}, on one seed"
        if not self.unclear:
            return f"{self.best} wins {what}"
        if self.clear:
            return (
                f"{self.best} is ahead {what}: clearly of {_join_labels(self.clear)}, not clearly "
                f"of {_join_labels(self.unclear)}"
            )
        return f"{NOBODY} {what}"


def _join_labels(labels: list[str]) -> str:
    """Return methods by name, or their number if there are many.

    >>> _join_labels(["a", "b"]), _join_labels(["a", "b", "c", "d"])
    ('a and b', '4 others')
    """
    return join_words(labels) if len(labels) <= FEW else f"{len(labels)} others"


def format_interval(value: Interval, measure: Measure) -> str:
    """Format a mean with its interval, in the units of tables."""
    mean, half = value.mean * measure.scale, value.half * measure.scale
    return f"{mean:.3f}" if np.isnan(half) else f"{mean:.3f} ± {half:.3f}"


def _format_lead(gap: Interval, measure: Measure) -> str:
    return format_interval(Interval(abs(gap.mean), gap.half), measure)


def rank_methods(content: Content) -> list[Ranking]:
    """Return the ranking by each measure that all runs have, after the last round shown."""
    found, t = [], content.rounds[-1]
    for measure in content.compared_measures:
        values = {
            label: np.array([value_at(run, measure.name, t) for run in mine])
            for label, mine in content.runs.items()
        }
        if not all(np.isfinite(v).all() for v in values.values()):
            continue
        sign = -1.0 if measure.lower else 1.0
        best = max(values, key=lambda label: sign * float(values[label].mean()))
        lead = {
            label: content.interval(sign * (values[best] - v), measure)
            for label, v in values.items()
            if label != best
        }
        title = panel_title(measure, content.all_priority)
        mean = content.interval(values[best], measure)
        found.append(Ranking(measure, title, t, best, mean, lead))
    return found


def describe_cost(content: Content, best: str) -> str:
    """Describe the upload of the best method, compared with the others."""
    sent = {
        label: float(np.mean([run.rounds["bytes_up"].sum() for run in mine]))
        for label, mine in content.runs.items()
    }
    own = sent.pop(best)
    if not own:
        most = max(sent, key=lambda label: sent[label])
        rest = f"; {most} {format_bytes(sent[most])}" if sent[most] else ""
        return f"Cost: {best} uploads nothing{rest}."
    others = [_compare_uploads(own, other, label) for label, other in sent.items()]
    return f"Cost: {best} uploads {format_bytes(own)} in a run, {', '.join(others)}."


def _compare_uploads(own: float, other: float, label: str) -> str:
    """Compare the upload of one method with another's.

    >>> [_compare_uploads(6e6, size, "a") for size in (4.8e6, 0.0, 5e5)]
    ['25% more than a (4.8 MB)', 'a next to nothing', '12 times as much as a (500.0 kB)']
    """
    if other < own / 100:
        return f"{label} next to nothing"
    ratio = own / other if other else 1.0
    if ratio >= 3:
        return f"{ratio:.0f} times as much as {label} ({format_bytes(other)})"
    if f"{abs(ratio - 1):.0%}" == "0%":
        return f"as much as {label}"
    more = "more" if ratio > 1 else "less"
    return f"{abs(ratio - 1):.0%} {more} than {label} ({format_bytes(other)})"


def describe_setup(content: Content) -> str:
    """Describe what was run: methods, data, clients, rounds and seeds."""
    run = content.all_runs[0]
    seen = run.final.filter(~pl.col("unseen")) if len(run.final) else run.final
    who = plural(len(seen), "client")
    if len(seen) and not content.all_priority:
        who += f", {int(seen['priority'].sum())} of them priority clients"
    if len(run.final) > len(seen):
        who += f", and {len(run.final) - len(seen)} unseen ones that only evaluate"
    what = plural(len(content.runs), "method") if len(content.runs) > 1 else content.labels[0]
    n = len(content.seeds)
    seeds = plural(n, "seed") if n > 1 else f"seed {content.seeds[0]}"
    data = f" on {', '.join(content.data)}" if content.data else ""
    end = "" if content.complete else " It is not finished: these are the results so far."
    return f"{what}{data}: {who}, {plural(content.last, 'round')}, {seeds}.{end}"


def describe_single_method(content: Content) -> str:
    """Describe the results of a single method, next to the most frequent class."""
    run = content.all_runs[0]

    def end(m: Measure) -> str:
        values = np.array([value_at(r, m.name, content.last) for r in content.all_runs])
        return format_interval(content.interval(values, m), m)

    ends = [
        f"{panel_title(m, content.all_priority)} {end(m)}"
        for m in content.compared_measures
        if np.isfinite(value_at(run, m.name, content.last))
    ]
    guess = run.facts.get("majority_test_accuracy")
    baseline = "" if guess is None else f" Always answering the most frequent class: {guess:.3f}."
    results = ", ".join(ends) or "nothing was measured"
    return (
        f"After round {content.last}: {results}.{baseline} "
        "There is no other method to compare it with."
    )


def describe_results(content: Content) -> list[str]:
    """Return the result in sentences; the first is a headline."""
    if len(content.runs) == 1:
        return [describe_single_method(content)]
    rankings = rank_methods(content)
    if not rankings:
        return ["There is no measure that all methods have: nothing can be compared."]
    # Training loss is no headline where held-out rows say something: the lowest may be overfitted.
    leading = [r for r in rankings if r.measure.is_held_out] or rankings
    agree: dict[str, list[Ranking]] = {}
    for ranking in leading[:HEADLINES]:
        agree.setdefault(ranking.headline(["..."]), []).append(ranking)
    head = "; ".join(same[0].headline([r.title for r in same]) for same in agree.values())
    if head.startswith(NOBODY):  # a method's name stays as it is
        head = f"{head[:1].upper()}{head[1:]}"
    sentences = [*describe_hundred(content), *(r.sentence() for r in rankings)]
    return [f"{head}.", *sentences, describe_cost(content, leading[0].best)]


def describe_hundred(content: Content) -> list[str]:
    """Return a sentence with the test rows of 100 that each method gets right, the best first;
    none where accuracy is not compared."""
    measure = next((m for m in content.compared_measures if m.name == "test_accuracy"), None)
    if measure is None:
        return []
    means = {
        label: float(np.mean([value_at(run, measure.name, content.rounds[-1]) for run in mine]))
        for label, mine in content.runs.items()
    }
    if not np.isfinite(list(means.values())).all():
        return []
    right: dict[str, list[str]] = {}
    for label in sorted(means, key=lambda label: -means[label]):
        right.setdefault(f"{100 * means[label]:.0f}", []).append(label)
    whose = "" if content.all_priority else " of the priority clients (the model is for them)"
    said = ", ".join(f"{join_words(labels)} {n}" for n, labels in right.items())
    return [f"Right on average, of 100 test rows{whose}: {said}."]


def render_headline(content: Content) -> Section:
    """Return the section: setup and result, the numbers behind them, and notes."""
    head, *rest = describe_results(content)
    pairs = "Each interval is for one pair of methods." if len(content.runs) > 2 else ""
    if len(content.seeds) > 1 and any(
        gap.half == 0 and gap.mean != 0 for r in rank_methods(content) for gap in r.lead.values()
    ):
        pairs += " Where ± is 0 all seeds gave the same difference, which says little about chance."
    notes = [*coverage_notes(content.runs), *baseline_notes(content.all_runs)]
    notes += epsilon_notes(content.runs)
    parts = [
        paragraph(describe_setup(content), kind="setup"),
        paragraph(head, kind="headline"),
        *(paragraph(sentence) for sentence in rest),
        *(paragraph(f"Warning: {w}", kind="attention") for w in list_warnings(content.runs)),
        summary_table(content),
        paragraph(pairs, *map(sentence, [*notes, *data_notes(content.all_runs)])),
    ]
    return Section("result", "Result", "\n".join(parts))


def summary_table(content: Content) -> str:
    """Return a table of the means with intervals, methods down and measures across."""
    first, *more = content.compared_measures or (None,)
    if first is None:
        return ""
    wanted = [(t, first) for t in content.rounds] + [(content.rounds[-1], m) for m in more]
    rows = []
    for label in content.labels:
        mine = content.summary.filter(pl.col("method") == label)
        cells = []
        for t, m in wanted:
            row = mine.filter(pl.col("round") == t, pl.col("measure") == m.name).row(0, named=True)
            mean, half = row["mean"], float("nan") if row["half"] is None else row["half"]
            cells.append(None if mean is None else format_interval(Interval(mean, half), m))
        rows.append([label, *cells])
    head = ["method", *(f"{m.head} @{t}" for t, m in wanted)]
    return table("summary", head, rows, f"mean ± 95 % interval, {describe_scope(content.runs)}")
