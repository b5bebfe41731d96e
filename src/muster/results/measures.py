"""The measures (metrics) of a run: every number that rates a model, or counts what a round took.

`compute_measures` computes them from the clients' views of a model; the tables, the figure's panels
and axes, and the configuration's key `measures` read the same entries. So a new measure is one
entry:

    from muster.results.measures import Measure, register

    register(Measure(
        "worst_accuracy", "test accuracy of the client worst off", short="worst", share=True,
        of=lambda population, view: None if view.test is None else float(view.test.accuracy.min()),
    ))

From then on `run.rounds["worst_accuracy"]` exists and `--measures loss,worst_accuracy` prints and
draws it. The modules that a package names under the entry point group `muster.parts` are imported
when a name is not known, so its measures are found like its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType

import numpy as np

from ..base.arrays import Float64
from ..base.errors import MusterError, unknown_name
from ..base.registry import load_packages
from ..federation import ClientGroup, Population
from ..protocol import Appraisal, Evaluation
from ..tasks.scores import SCORES, Score, get_score

MeasureFunction = Callable[[Population, Evaluation], float | None]
PerClient = Callable[[Evaluation], Float64 | None]


@dataclass(frozen=True)
class Measure:
    """One number for each round.

    Attributes:
        name: its column in `run.rounds`
        title: its title in a figure
        short: the head of its column in a table; without one, the name in words
        share: True if it lies between 0 and 1
        of: computes the number from all clients' view of the model; None where this federation has
            none. A measure without `of` is counted by the round itself
        scale: the factor by which tables and figures multiply it (bytes are shown as kB)
        compared: True if a comparison's table has it by default
        panel: True if the figure has a panel of it by default
        otherwise: the measure that replaces it in a comparison, for methods that do not have it
        score: the score it is of; only runs whose task reports that score have it
        lower: True if less is better
        held_out: for a measure of training rows, the nearest measure of held-out rows; required
            there, as intervals distinguish the two by it
        counts: True if it is a number of clients
        signed: True if it is a difference, which may be below 0
        whose: the clients it is of: those in the "objective", that take part ("seen"), or "unseen"
    """

    name: str
    title: str
    short: str = ""
    share: bool = False
    of: MeasureFunction | None = None
    scale: float = 1.0
    compared: bool = False
    panel: bool = False
    otherwise: str = ""
    score: str = ""
    lower: bool = False
    held_out: str = ""
    counts: bool = False
    signed: bool = False
    whose: ClientGroup = "all"

    @property
    def difference(self) -> Measure:
        """The difference of two such numbers."""
        return replace(self, share=False, counts=False, signed=True)

    @property
    def is_held_out(self) -> bool:
        """True if it is of held-out rows: neither of training rows, nor a count of the round."""
        return self.of is not None and not self.held_out

    @property
    def head(self) -> str:
        """The head of its column in a table."""
        return self.short or self.name.replace("_", " ")


def weighted_mean(
    weights: Callable[[Population], Float64],
    each: Callable[[Evaluation], Appraisal | None],
    what: str,
) -> MeasureFunction:
    """Return the measure `sum_k weight_k v_k` of the clients' losses or scores (`what`), over those
    that gave one; NaN when none did. The weights sum to 1, or are all 0: then there is no such
    client, and no measure."""

    def compute(population: Population, view: Evaluation) -> float | None:
        appraisal, w = each(view), weights(population)
        if not w.any():
            return None
        if appraisal is None:
            return float("nan")
        return weigh(w, getattr(appraisal, what))

    return compute


def weigh(w: Float64, values: Float64) -> float:
    """Return `sum_k w_k v_k` over the clients that have a value; NaN when none has."""
    known = ~np.isnan(values)
    if known.all():
        return float(w @ values)
    w = w[known]
    return float(w @ values[known] / w.sum()) if w.sum() > 0 else float("nan")


def on_objective(each: Callable[[Evaluation], Appraisal | None], what: str) -> MeasureFunction:
    """Return the measure on the objective: `sum_k a_k p_k v_k` (eq. 5)."""
    return weighted_mean(lambda population: population.objective, each, what)


def on_others(each: Callable[[Evaluation], Appraisal | None], what: str) -> MeasureFunction:
    """Return the measure on the other clients that take part, by their share of the data."""
    return weighted_mean(lambda population: population.others, each, what)


def if_available(
    each: Callable[[Evaluation], Appraisal | None], value: MeasureFunction
) -> MeasureFunction:
    """Return a measure that is None where the clients' view does not have what it is of."""
    return lambda population, view: None if each(view) is None else value(population, view)


def mean(values: Float64) -> float:
    """Return the mean over clients that have a value; NaN when none has."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def over_clients(measure: Measure, each: PerClient) -> tuple[Measure, Measure]:
    """Return a measure in which each client counts the same, over those that take part; and its
    twin `_unseen`, over those that only evaluate, where there are any."""

    def seen_mean(population: Population, view: Evaluation) -> float | None:
        values = each(view)
        return None if values is None else mean(values[~population.unseen])

    def unseen_mean(population: Population, view: Evaluation) -> float | None:
        values, unseen = each(view), population.unseen
        return None if values is None or not unseen.any() else mean(values[unseen])

    twin = replace(
        measure,
        name=f"{measure.name}_unseen",
        title=f"{measure.title}, unseen clients",
        short=f"{measure.head} unseen",
        held_out=measure.held_out and f"{measure.held_out}_unseen",
        of=unseen_mean,
        panel=False,
        whose="unseen",
    )
    return replace(measure, of=seen_mean, whose="seen"), twin


train = attrgetter("train")
test = attrgetter("test")
own = attrgetter("own")
own_test = attrgetter("own_test")

TABLE = (
    Measure(
        "loss", "priority training loss", compared=True, panel=True, lower=True,
        held_out="test_loss", whose="objective", of=on_objective(train, "loss"),
    ),
    Measure(
        "train_accuracy", "priority training accuracy", share=True, held_out="test_accuracy",
        whose="objective", of=on_objective(train, "score"),
    ),
    Measure(
        "test_loss", "priority test loss", lower=True, whose="objective",
        of=on_objective(test, "loss"),
    ),
    Measure(
        "test_accuracy", "priority test accuracy", "test acc", True, compared=True, panel=True,
        whose="objective", of=on_objective(test, "score"),
    ),
    # FedALIGN, Fig. 4: the model on clients outside the objective.
    Measure(
        "others_loss", "the others' training loss", lower=True, held_out="others_test_accuracy",
        whose="seen", of=on_others(train, "loss"),
    ),
    Measure(
        "others_test_accuracy", "the others' test accuracy", "others test acc", True,
        whose="seen", of=on_others(test, "score"),
    ),
    # MaxFL, Table 1.
    *over_clients(
        Measure("mean_test_accuracy", "mean test accuracy of the clients", share=True),
        lambda view: None if view.test is None else view.test.score,
    ),
    # Of the clients' own models. Where a method has none, they use the global one, and a comparison
    # compares a personalised method with that.
    Measure(
        "own_loss", "training loss of the model each uses", compared=True, otherwise="loss",
        lower=True, held_out="own_test_accuracy", whose="objective",
        of=if_available(own, on_objective(own, "loss")),
    ),
    Measure(
        "own_test_accuracy", "test accuracy of the model each uses", "own test acc", True,
        compared=True, otherwise="test_accuracy",
        whose="objective", of=if_available(own_test, on_objective(own_test, "score")),
    ),
    Measure(
        "own_others_test_accuracy", "others' test accuracy of the model each uses",
        "own others test acc", True, otherwise="others_test_accuracy",
        whose="seen", of=if_available(own_test, on_others(own_test, "score")),
    ),
    over_clients(
        Measure(
            "own_mean_test_accuracy", "mean test accuracy of the model each uses", share=True,
            otherwise="mean_test_accuracy",
        ),
        lambda view: None if view.own_test is None else view.own_test.score,
    )[0],  # clients that only evaluate never train an own model
    # Section 1 of the FedALIGN paper: their loss is below `evaluate.compute_useful_thresholds`.
    Measure(
        "fairness", "share of clients the model is useful to", share=True,
        held_out="mean_test_accuracy", of=lambda population, view: mean(view.useful),
    ),
    # F_k(w) < rho_k (MaxFL eq. 1).
    *over_clients(
        Measure(
            "gm_appeal", "share of clients the model appeals to", "appeal", True,
            compared=True, panel=True, held_out="gm_appeal_test",
        ),
        lambda view: view.meets,
    ),
    # On held-out rows: below their own model's loss there.
    *over_clients(
        Measure("gm_appeal_test", "appeal on held-out rows", share=True),
        lambda view: view.meets_test,
    ),
    # Each uses the model if it appeals, else its own.
    *over_clients(
        Measure("preferred_accuracy", "test accuracy of the preferred model", share=True),
        lambda view: view.preferred,
    ),
    # After `tuned_steps` local steps of each client (MaxFL, Table 4).
    *over_clients(
        Measure(
            "gm_appeal_tuned", "appeal after local tuning", "appeal tuned", True, compared=True,
            held_out="tuned_test_accuracy",
        ),
        lambda view: view.meets_tuned,
    ),
    *over_clients(
        Measure(
            "tuned_test_accuracy", "mean test accuracy after local tuning", share=True,
            compared=True,
        ),
        lambda view: view.tuned,
    ),
    Measure(
        "priority_tuned_test_accuracy",
        "priority test accuracy after local tuning", "tuned test acc", True, whose="objective",
        of=lambda population, view: (
            None if view.tuned is None else weigh(population.objective, view.tuned)
        ),
    ),
    # Counted by the round itself.
    Measure("pool", "clients that may be asked", counts=True),
    Measure("left", "clients that left", counts=True),
    Measure("returned", "clients that returned", counts=True),
    Measure("asked", "clients asked", counts=True),
    Measure("joined", "clients that trained", counts=True),
    Measure("silent", "clients silent by choice", counts=True),
    Measure("failed", "clients that gave no answer", counts=True),
    Measure("refused", "replies refused", counts=True),
    Measure("admitted", "replies admitted", counts=True),
    Measure("admitted_nonpriority", "others admitted", "others admitted", panel=True, counts=True),
    Measure("skipped", "rounds that moved nothing", share=True),
    Measure("helped", "rounds whose model was the helped one", share=True),
    Measure("eps", "eps_t"),
    Measure("reference_loss", "F(w) as broadcast"),
    Measure("theta", "theta_t, the priority clients' share of the step", share=True),
    Measure("steps", "local steps of all clients"),
    Measure("bytes_up", "upload, kB", "upload kB", scale=1e-3),
    Measure("bytes_down", "download, kB", "download kB", scale=1e-3),
    Measure("seconds", "seconds"),
)  # fmt: skip

SCORED = "accuracy"  # the score whose measures the table has; those of other scores follow them


def for_score(measure: Measure, score: Score) -> Measure:
    """Return the same measure of another score. A score that is not a mean over rows is computed on
    each client's rows and averaged over clients: the title then ends with `POOLED`."""
    if score.name == SCORED:
        return replace(measure, score=SCORED)
    short = measure.short.replace(SCORED, "acc").replace("acc", score.head)
    return replace(
        measure,
        name=measure.name.replace(SCORED, score.name),
        title=measure.title.replace(SCORED, score.title) + (POOLED if score.pooled else ""),
        short=short,
        share=score.share,
        otherwise=measure.otherwise.replace(SCORED, score.name),
        held_out=measure.held_out.replace(SCORED, score.name),
        score=score.name,
        lower=not score.higher,
    )


POOLED = ", mean of the clients'"


def expand_scores(measures: Iterable[Measure], scores: Iterable[Score]) -> Iterator[Measure]:
    """Yield measures, with each measure of a score replaced by one for every score."""
    for measure in measures:
        if SCORED in measure.name:
            yield from (for_score(measure, score) for score in scores)
        else:
            yield measure


_known: dict[str, Measure] = {m.name: m for m in expand_scores(TABLE, SCORES.values())}
MEASURES: Mapping[str, Measure] = MappingProxyType(_known)


def add_score(score: str) -> None:
    """Add the measures of a score, that of the user's own task for example."""
    if f"test_{score}" not in _known:
        of_score = [m for m in TABLE if SCORED in m.name]
        _known.update({m.name: m for m in expand_scores(of_score, [get_score(score)])})


def register(*measures: Measure) -> None:
    """Add measures to the table; for one over clients, `register(*over_clients(...))`."""
    for measure in measures:
        before = _known.get(measure.name)
        if measure.name == "round" or (before and _home(before) != _home(measure)):
            raise MusterError(
                f"measure '{measure.name}': there is one already; choose another name"
            )
        _known[measure.name] = measure


def _home(measure: Measure) -> tuple[str, str]:
    return measure.title, getattr(measure.of, "__module__", "")


def compute_measures(population: Population, view: Evaluation) -> dict[str, float]:
    """Return a row's measures of a model, from all clients' view of it. Clients without a value
    are left out."""
    for score in (view.score_name, *view.train.more):
        add_score(score)
    views = {score: view.with_score(score) for score in (view.score_name, *view.train.more)}
    found: dict[str, float] = {}
    for m in MEASURES.values():
        scored = views.get(m.score) if m.score else view
        value = None if m.of is None or scored is None else m.of(population, scored)
        if value is not None:
            found[m.name] = value
    return found


def lead_with_held_out(measures: Iterable[Measure]) -> tuple[Measure, ...]:
    """Return measures with those of held-out rows first, then those of training rows, then counts.

    >>> [m.name for m in lead_with_held_out(find_measures("silent, loss, test_accuracy"))]
    ['test_accuracy', 'loss', 'silent']
    """
    return tuple(sorted(measures, key=lambda m: (m.of is None, not m.is_held_out)))


def find_measures(names: str | Iterable[str], kind: str = "measure") -> tuple[Measure, ...]:
    """Return measures by name, in the order given: a list, or text with commas between. An unknown
    one is an error that calls it a `kind`.

    >>> [measure.head for measure in find_measures("loss, test_accuracy")]
    ['loss', 'test acc']
    """
    words = [word.strip() for word in names.split(",")] if isinstance(names, str) else list(names)
    found = []
    for word in dict.fromkeys(words):
        if word not in MEASURES:
            load_packages()
        if word not in MEASURES:
            raise unknown_name(kind, str(word), MEASURES)
        found.append(MEASURES[word])
    return tuple(found)
