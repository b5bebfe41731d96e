"""Warnings about a run, each with a suggested fix.

A run in which all clients left, every reply was refused, or the model never became better than a
guess ends like any other: with numbers. Each check here looks for one such problem and returns a
sentence, or "".
"""

from __future__ import annotations

import re
from typing import Any

from ..base.errors import plural
from ..base.lazy import pl
from ..parts.join import UNKNOWN

Facts = dict[str, Any]

LEAST_CLAIM = 1e-6  # up to which claims do not count
LEAST_ROUNDS = 10  # in which a band was applied: at first all losses are much the same
OUTSIDE = " too (high|low)$| outside the band$"  # reasons of those that a band leaves out

ADVICE = {  # by the beginning of a refusal's reason
    "malformed: not finite": "training diverged: lower local.lr, or scale the features",
    "impossible": "clients report what cannot be true: run.clients has their numbers",
    "malformed": "replies do not fit the model: run.clients has their clients",
}


def find_warnings(rounds: pl.DataFrame, clients: pl.DataFrame, facts: Facts) -> list[str]:
    """Return all warnings about a run, the most serious first."""
    if not len(rounds):
        return []
    found = (
        _check_pool(rounds),
        _check_refusals(rounds, clients),
        _check_participation(rounds),
        _check_failures(rounds),
        _check_reference(rounds, clients, facts),
        _check_band(rounds, clients, facts),
        _check_claims(clients, facts),
        _check_movement(facts),
        _check_loss(rounds, facts),
        _check_baselines(rounds, facts),
    )
    return [*(sentence for sentence in found if sentence), *facts.get("doubts", ())]


def strip_numbers(sentence: str) -> str:
    """Return the problem that a warning names, without the numbers in which runs differ.

    >>> strip_numbers("in 3 of 12 rounds nobody could join: no priority client was asked")
    'in # of # rounds nobody could join'
    >>> strip_numbers("in 5 of 9 rounds nobody could join")
    'in # of # rounds nobody could join'
    """
    return re.sub(r"\d[\d.e+-]*", "#", re.split(r"[:(]", sentence)[0]).strip()


def _last(rounds: pl.DataFrame, measure: str) -> float | None:
    taken = rounds[measure].drop_nulls() if measure in rounds.columns else pl.Series([])
    return float(taken[-1]) if len(taken) else None


def _last_in_use(rounds: pl.DataFrame, measure: str) -> float | None:
    """Return a measure of the models that clients use: their own, where the method has them."""
    own = f"own_{measure}"
    return _last(rounds, own if own in rounds.columns else measure)


def _check_pool(rounds: pl.DataFrame) -> str:
    """Warn if all clients left the pool, and stayed away."""
    if "pool" not in rounds.columns or rounds["pool"][-1] > 0 or not rounds["left"].sum():
        return ""
    since = int(rounds.filter(pl.col("pool") > 0)["round"].max() or 0) + 1  # type: ignore[arg-type]
    return (
        f"all clients had left by round {since}: the model meets no client's requirement, and the "
        f"{plural(len(rounds) - since + 1, 'round')} from there on moved nothing; let clients stay "
        "longer (participation.from_round), or ask less of the model (fewer steps in [requirement])"
    )


def _check_refusals(rounds: pl.DataFrame, clients: pl.DataFrame) -> str:
    """Warn about rounds in which clients trained and every reply was refused."""
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


def _check_participation(rounds: pl.DataFrame) -> str:
    """Warn about rounds in which no client joined, for other reasons than the above."""
    idle = rounds.filter(pl.col("skipped") & (pl.col("joined") == 0) & (pl.col("pool") > 0))
    if not len(idle):
        return ""
    return (
        f"{len(idle)} of {plural(len(rounds), 'round')} moved nothing: no client that was asked "
        "took part; ask more clients a round, or make sure that some of them are priority clients"
    )


def _check_failures(rounds: pl.DataFrame) -> str:
    """Warn if many requests got no reply."""
    asked, failed = int(rounds["asked"].sum()), int(rounds["failed"].sum())
    if not failed or failed < 0.2 * asked:
        return ""
    return f"{failed} of {asked} requests got no reply: run.clients has the clients and reasons"


def _check_reference(rounds: pl.DataFrame, clients: pl.DataFrame, facts: Facts) -> str:
    """Warn about rounds without F(w), in which no client could compare its own loss with it. A
    private run releases it with each sum, so that its first round never has one."""
    blind = clients.filter(pl.col("reason") == UNKNOWN)["round"].n_unique()
    if blind <= ("privacy" in facts):
        return ""
    why = (
        "no priority client that was asked has a measure of the model (one class has no AUC, rows "
        "without an event no loss); ask all of them, give them more rows, or take another criterion"
    )
    if "privacy" in facts:
        why = "no F(w) had been released yet; give a public one (privacy.loss)"
    return (
        f"in {blind} of {plural(len(rounds), 'round')} no client outside the objective could join: "
        f"{why}"
    )


def _check_band(rounds: pl.DataFrame, clients: pl.DataFrame, facts: Facts) -> str:
    """Warn if the band of FedALIGN made no difference: nobody or everybody was in it. An epsilon of
    0 or infinity says so itself, and one that was chosen by unseen rows is meant."""
    eps = dict(rounds.filter(pl.col("eps").is_not_null()).select("round", "eps").rows())
    outside = pl.col("reason").str.contains(OUTSIDE)
    judged = clients.filter(
        ~pl.col("priority"),
        pl.col("reason") != "objective",
        pl.col("joined") | outside,
        pl.col("round").is_in([*eps]),
    )
    applied, left_out = judged["round"].unique(), judged.filter(outside)
    values = sorted({eps[t] for t in applied})
    if "epsilon" in facts or len(applied) < LEAST_ROUNDS or values in ([0.0], [float("inf")]):
        return ""
    if 0 < len(left_out) < len(judged):
        return ""
    width = f"{values[0]:g}" + (f" to {values[-1]:g}" if len(values) > 1 else "")
    result = "nobody here: this is training without help"
    if not len(left_out):
        result = "everybody: this is FedAvg on all"
    return (
        f"epsilon {width} admits {result}; use --method assist, which needs no epsilon, or in a "
        "simulation --method.epsilon auto, which chooses one by unseen rows"
    )


def _check_claims(clients: pl.DataFrame, facts: Facts) -> str:
    """Warn if all claims are 0 because losses are far from the range of the sigmoid."""
    made, gap = clients["claim"].drop_nulls(), facts.get("requirement_gap")
    if gap is None or not len(made) or float(made.max()) > LEAST_CLAIM:  # type: ignore[arg-type]
        return ""
    return (
        f"every claim is 0, and with it every weight: F_k - rho_k is around {gap:.2g}, and "
        "sigmoid(F_k - rho_k) is made for losses around 1; scale the targets (to mean 0 and "
        "deviation 1)"
    )


def _check_movement(facts: Facts) -> str:
    """Warn if training changed nothing."""
    if facts.get("moved", True):
        return ""
    return "the model never moved from its starting point: it is what you started with"


def _check_loss(rounds: pl.DataFrame, facts: Facts) -> str:
    """Warn if the loss did not fall."""
    before, after = facts.get("start_loss"), _last_in_use(rounds, "loss")
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


def _check_baselines(rounds: pl.DataFrame, facts: Facts) -> str:
    """Warn if the model is no better than a constant prediction."""
    loss, guess = _last_in_use(rounds, "loss"), facts.get("constant_loss")
    if loss is not None and guess is not None and loss > guess + 1e-9 * abs(guess):
        classes = "majority_accuracy" in facts
        what = "answering with the labels' frequencies" if classes else "answering their mean"
        return (
            f"the model is worse than a constant prediction: loss {loss:.4g}, where {what} has "
            f"{guess:.4g}; train longer, or with another local.lr"
        )
    accuracy, most = _last_in_use(rounds, "test_accuracy"), facts.get("majority_test_accuracy")
    if accuracy is not None and most is not None and accuracy <= most + 1e-12:
        return (
            f"test accuracy {accuracy:.3f} is no better than always answering the most frequent "
            f"class ({most:.3f})"
        )
    return ""
