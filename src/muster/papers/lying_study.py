"""The cost of one lying priority client to the honest ones, seed by seed.

Digits, two classes a client, 40 clients, of whom 5 or 20 are priority clients; one of these lies.
The liar's own rows do not count: that the model is useless to the liar is its own doing. Each
honest priority client is measured on all held-out rows of its classes, in its own mix of labels
(its own held-out rows are about eight), against the model that the honest ones train alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ..base.arrays import Bool, Float64
from ..base.lazy import pl, torch
from ..data.sets.scikit_learn import digits
from ..federation import Federation
from ..local import Local
from ..methods import Method, assist, fedalign, fedavg_priority, maxfl
from ..models.specs import Softmax
from ..parts.defences.robust import GeometricMedian
from ..parts.threats.attacks import Attack, LabelFlip, Liars, ScaleUpdate, draw_attackers
from ..parts.threats.collusion import IPM
from ..results.run import Run
from ..run.simulate import simulate
from ..run.solo import with_solo
from .trust_study import CLIENTS, LOCAL, ROUNDS, format_interval, points, without

ALONE = fedavg_priority()
RULES: dict[str, Method] = {
    "alone": ALONE,
    "alone, geometric median": replace(ALONE, step=GeometricMedian()),
    "fedalign, trust": fedalign(0.5, trust=True),
    "maxfl, trust": maxfl(trust=True),
    "assist, trust": assist(trust=True),
    "assist, crossfit, trust": assist("crossfit", trust=True),
}
LIES: dict[str, Attack | None] = {
    "nobody lies": None,
    "-3 x": ScaleUpdate(0.1, -3.0),
    "-1 x": ScaleUpdate(0.1, -1.0),
    "IPM": IPM(0.1),
    "other labels": LabelFlip(0.1),
}
WORST = ("nobody lies", "-3 x")
PRIORITY = (5, 20)
KEYS = ("priority", "rule", "lie", "seed")


@dataclass(frozen=True)
class LyingCell:
    """One run: how many priority clients, a rule, what the liar does, a seed."""

    priority: int
    rule: str
    lie: str
    seed: int


@cache
def make_federation(priority: int, seed: int) -> Federation:
    """Return digits, with the loss of each client's solo model as its requirement."""
    plain = digits(CLIENTS, priority, seed=seed)
    return with_solo(plain, Softmax(), 1, Local(steps=100, batch_size=32, lr=0.1), seed=seed)


def train(fed: Federation, method: Method, seed: int, attack: Attack | None = None) -> Run:
    """Run a method on a federation."""
    return simulate(fed, method, Softmax(), ROUNDS, LOCAL, seed, attack=attack, evaluate_every=0)


def accuracies(run: Run, fed: Federation, some: Bool) -> Float64:
    """Return the accuracy for some clients, on all held-out rows of their classes, by their mix."""
    assert fed.test is not None
    with torch.no_grad():
        answers = run.model()(fed.test.x.to(torch.float32)).argmax(-1)
    right, y = (answers == fed.test.y).numpy(), fed.test.y.numpy()
    by_class = np.array([right[y == c].mean() for c in range(fed.classes)])
    mixes = [
        np.bincount(fed.train.client(int(k))[1].numpy(), minlength=fed.classes)
        for k in np.flatnonzero(some)
    ]
    return np.array([mix @ by_class / mix.sum() for mix in mixes])


@cache
def train_without_liar(priority: int, seed: int) -> Float64:
    """Return the honest priority clients' accuracies where they train alone."""
    fed, honest = draw_honest(priority, seed)
    taking_part = without(fed, np.flatnonzero(fed.priority & ~honest))
    return accuracies(train(taking_part, ALONE, seed), fed, honest)


def draw_honest(priority: int, seed: int) -> tuple[Federation, Bool]:
    """Return the federation of a seed, and its priority clients but the one that may lie."""
    fed = make_federation(priority, seed)
    (liar,) = draw_attackers(fed, Liars(1 / CLIENTS, "priority"), seed)
    return fed, fed.priority & (np.arange(fed.n) != liar)


def run_cell(cell: LyingCell) -> dict[str, Any]:
    """Run one cell; return its row, with the mean and the worst change of the honest clients'
    accuracy, and the share of rounds in which the one that may lie did not count."""
    fed, honest = draw_honest(cell.priority, cell.seed)
    then = LIES[cell.lie]
    attack = None if then is None else Liars(1 / CLIENTS, "priority", then)
    run = train(fed, RULES[cell.rule], cell.seed, attack)
    change = accuracies(run, fed, honest) - train_without_liar(cell.priority, cell.seed)
    (liar,) = np.flatnonzero(fed.priority & ~honest)
    refused = 1 - float(run.clients.filter(pl.col("client") == liar)["admitted"].mean() or 0)  # type: ignore[arg-type]
    return {
        "priority": cell.priority,
        "rule": cell.rule,
        "lie": cell.lie,
        "seed": cell.seed,
        "mean": float(change.mean()),
        "worst": float(change.min()),
        "refused": refused,
    }


def list_cells(seeds: Iterable[int]) -> list[LyingCell]:
    """Return every run of the table, seed by seed: of twenty priority clients one lie alone, and of
    cross-fitted evidence, which takes longest, one with five."""
    return [
        LyingCell(priority, rule, lie, seed)
        for seed in seeds
        for priority in PRIORITY
        for rule in RULES
        for lie in LIES
        if (priority == PRIORITY[0] and "crossfit" not in rule)
        or (lie in WORST and (priority == PRIORITY[0] or "crossfit" not in rule))
    ]


def markdown(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the table: points of the honest against training alone without the liar, the mean over
    them and the worst of them, means over seeds."""
    places = [list(RULES), list(LIES)]

    def place(row: Mapping[str, Any]) -> tuple[int, ...]:
        return row["priority"], *(at.index(row[k]) for at, k in zip(places, KEYS[1:3], strict=True))

    frame = pl.DataFrame(sorted(rows, key=place))
    lines = [
        "| priority clients | rule | lie | honest ones, mean | the worst | liar refused | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for (priority, rule, lie), some in frame.group_by(*KEYS[:3], maintain_order=True):
        mean, worst = (format_interval(points(some[name])) for name in ("mean", "worst"))
        refused = 100 * some["refused"].to_numpy().mean()
        numbers = f"{mean} | {worst} | {refused:.0f} % | {len(some)}"
        lines.append(f"| {priority} | {rule} | {lie} | {numbers} |")
    return "\n".join(lines)
