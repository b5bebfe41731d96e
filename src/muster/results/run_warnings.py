"""What a person must be told of a run before they believe its table, and what to do about it.

A run in which everybody left, every reply was refused, or the model never became better than a
guess ends like any other: with numbers. Each rule here looks for one such thing and says it in a
sentence.
"""

from __future__ import annotations

import re
from typing import Any

from ..base.errors import plural
from ..base.lazy import pl
from ..parts.join import UNKNOWN

Facts = dict[str, Any]

LEAST_CLAIM = 1e-6  # up to which claims do not count

ADVICE = {  # by what a refusal's reason begins with
    "malformed: not finite": "training diverged: lower local.lr, or scale the features",
    "impossible": "what clients report cannot be true: look at run.clients for who they are",
    "malformed": "what clients send does not fit the model: look at run.clients for who they are",
}


def concerns(rounds: pl.DataFrame, clients: pl.DataFrame, facts: Facts) -> list[str]:
    """Everything that is to be said of a run, the gravest first."""
    if not len(rounds):
        return []
    found = (
        _left(rounds),
        _refused(rounds, clients),
        _skipped(rounds),
        _failed(rounds),
        _unknown(rounds, clients),
        _claims(clients, facts),
        _never_moved(facts),
        _loss(rounds, facts),
        _guess(rounds, facts),
    )
    return [*(sentence for sentence in found if sentence), *facts.get("doubts", ())]


def gist(sentence: str) -> str:
    """What is wrong, without the numbers in which runs differ.

    >>> gist("in 3 of 12 rounds nobody could join: ..."), gist("in 5 of 9 rounds nobody could join")
    ('in # of # rounds nobody could join', 'in # of # rounds nobody could join')
    """
    return re.sub(r"\d[\d.e+-]*", "#", re.split(r"[:(]", sentence)[0]).strip()


def _last(rounds: pl.DataFrame, measure: str) -> float | None:
    taken = rounds[measure].drop_nulls() if measure in rounds.columns else pl.Series([])
    return float(taken[-1]) if len(taken) else None


def _judged(rounds: pl.DataFrame, measure: str) -> float | None:
    """A measure of what the method is for: of clients' own models, where it keeps them."""
    own = f"own_{measure}"
    return _last(rounds, own if own in rounds.columns else measure)


def _left(rounds: pl.DataFrame) -> str:
    """Everybody left the pool, and stayed away."""
    if "pool" not in rounds.columns or rounds["pool"][-1] > 0 or not rounds["left"].sum():
        return ""
    since = int(rounds.filter(pl.col("pool") > 0)["round"].max() or 0) + 1  # type: ignore[arg-type]
    return (
        f"everybody had left by round {since}: the model meets nobody's requirement, and the "
        f"{plural(len(rounds) - since + 1, 'round')} from there on moved nothing; let clients stay "
        "longer (participation.from_round), or ask less of the model (fewer steps in [requirement])"
    )


def _refused(rounds: pl.DataFrame, clients: pl.DataFrame) -> str:
    """Rounds in which clients trained and every reply was refused."""
    lost = rounds.filter((pl.col("joined") > 0) & (pl.col("admitted") == 0))
    if not len(lost):
        return ""
    why = clients.filter(
        pl.col("round").is_in(lost["round"].implode()), pl.col("joined"), ~pl.col("admitted")
    )
    reason, times = why["reason"].value_counts(sort=True).row(0)
    advice = next((a for start, a in ADVICE.items() if reason.startswith(start)), "")
    return (
        f"in {len(lost)} of {plural(len(rounds), 'round')} every reply was refused "
        f"({plural(times, 'time')} '{reason}')" + (f"; {advice}" if advice else "")
    )


def _skipped(rounds: pl.DataFrame) -> str:
    """Rounds in which nobody was there to move the model, for other reasons than the above."""
    idle = rounds.filter(pl.col("skipped") & (pl.col("joined") == 0) & (pl.col("pool") > 0))
    if not len(idle):
        return ""
    return (
        f"{len(idle)} of {plural(len(rounds), 'round')} moved nothing: nobody who was asked took "
        "part; ask more clients a round, or make sure that some of them are priority clients"
    )


def _failed(rounds: pl.DataFrame) -> str:
    """Clients that gave no answer."""
    asked, failed = int(rounds["asked"].sum()), int(rounds["failed"].sum())
    if not failed or failed < 0.2 * asked:
        return ""
    return f"{failed} of {asked} requests got no answer: run.clients says whose, and why"


def _unknown(rounds: pl.DataFrame, clients: pl.DataFrame) -> str:
    """Rounds in which nobody could tell whether the model suits it."""
    blind = clients.filter(pl.col("reason") == UNKNOWN)["round"].n_unique()
    if not blind:
        return ""
    return (
        f"in {blind} of {plural(len(rounds), 'round')} nobody outside the objective could join: no "
        "priority client who was asked has a measure of the model (one class has no AUC, rows "
        "without an event no loss); ask all of them, give them more rows, or take another criterion"
    )


def _claims(clients: pl.DataFrame, facts: Facts) -> str:
    """Claims that are 0 because losses are far from what they are made for."""
    made, gap = clients["claim"].drop_nulls(), facts.get("requirement_gap")
    if gap is None or not len(made) or float(made.max()) > LEAST_CLAIM:  # type: ignore[arg-type]
        return ""
    return (
        f"every claim is 0, and with it every weight: F_k - rho_k is around {gap:.2g}, and "
        "sigmoid(F_k - rho_k) is made for losses around 1; scale the targets (to mean 0 and "
        "deviation 1)"
    )


def _never_moved(facts: Facts) -> str:
    if facts.get("moved", True):
        return ""
    return "the model never moved from its starting point: it is what you started with"


def _loss(rounds: pl.DataFrame, facts: Facts) -> str:
    """A loss that did not fall."""
    before, after = facts.get("start_loss"), _judged(rounds, "loss")
    if before is None or not facts.get("moved", True):
        return ""
    if after is None:
        return "the loss cannot be measured any more (nan): training diverged; lower local.lr"
    if after < before:
        return ""
    return (
        f"the loss did not fall: {before:.4g} before the first round, {after:.4g} after the last; "
        "lower local.lr, or scale the features"
    )


def _guess(rounds: pl.DataFrame, facts: Facts) -> str:
    """A model that knows no more than how frequent the labels are."""
    loss, guess = _judged(rounds, "loss"), facts.get("constant_loss")
    if loss is not None and guess is not None and loss > guess + 1e-9 * abs(guess):
        classes = "majority_accuracy" in facts
        what = "answering with the labels' frequencies" if classes else "answering their mean"
        return (
            f"the model is worse than a constant prediction: loss {loss:.4g}, where {what} has "
            f"{guess:.4g}; train longer, or with another local.lr"
        )
    accuracy, most = _judged(rounds, "test_accuracy"), facts.get("majority_test_accuracy")
    if accuracy is not None and most is not None and accuracy <= most + 1e-12:
        return (
            f"test accuracy {accuracy:.3f} is no better than always answering the most frequent "
            f"class ({most:.3f})"
        )
    return ""
