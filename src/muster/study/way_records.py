"""Records of an advice's runs: each way's losses and answers, seed by seed, as gains by unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..base.arrays import Bool, Float64, UInt64
from ..base.checks import check_whole
from ..base.errors import MusterError, plural
from ..base.lazy import pl, torch
from ..federation import Federation, Variation
from ..federation.ragged_rows import SharedRows
from ..federation.row_hashes import get_hashes
from ..report.advice_content import BINS, Outcomes
from ..results.predict import compute_outputs, interpret
from ..results.run import Run
from ..tasks.classification import Binary, Multiclass
from ..tasks.task import StandardTask, Task
from .advise import Trials

ALONE = "alone"
LEAST_SEEDS, LEAST_UNITS = 3, 3
LEAST_MINORITY = 5  # rows outside the most frequent class


@dataclass(frozen=True)
class RowAnswers:
    """A model's answers to the held-out rows of one client.

    Attributes:
        loss: loss of each row
        outcomes: counts, where there are two classes
    """

    loss: Float64
    outcomes: Outcomes | None


Ask = Callable[[Run, int], RowAnswers | None]


@dataclass(frozen=True)
class WayRecord:
    """One way's numbers in one seed, an entry for each client; NaN for those it is not open to.
    `answers` are those to single rows, where all seeds share them."""

    loss: Float64
    scores: dict[str, Float64]
    up: Float64
    down: Float64
    answers: dict[int, RowAnswers] = field(default_factory=dict)


@dataclass(frozen=True)
class SeedRecord:
    """All that one seed says.

    Attributes:
        ways: records by way, alone first
        row_hashes: hashes of each client's held-out rows; empty where units are seeds
        minority: rows of each client outside its most frequent class; empty without classes
        variation: the way seeds vary the data
        runs: those that are kept for the report
    """

    ways: dict[str, WayRecord]
    names: tuple[str, ...]
    train_rows: tuple[int, ...]
    test_rows: tuple[int, ...]
    row_hashes: tuple[UInt64, ...]
    minority: tuple[int, ...]
    variation: Variation
    runs: dict[str, Run]


def name_pair(name: str) -> str:
    """Return the name of the way with one other client."""
    return f"with {name}"


def has_same_rows(fed: Federation, task: Task) -> bool:
    """Return True if every seed divides the same rows of each client, and a row has a loss."""
    single = not isinstance(task, StandardTask) or task.averages_rows
    return fed.varies == "split" and single and not isinstance(fed.test, SharedRows)


def count_minority(fed: Federation) -> tuple[int, ...]:
    """Return each client's number of rows outside its most frequent class; of an official test set,
    which clients share, none count."""
    if not fed.classes or fed.train.y.dim() > 1:
        return ()
    halves = [fed.train, fed.test]
    counts = sum(
        half.label_shares(fed.classes) * half.sizes[:, None]
        for half in halves
        if half is not None and not isinstance(half, SharedRows)
    )
    return tuple(np.rint(np.sum(counts, axis=1) - np.max(counts, axis=1)).astype(int).tolist())


def hash_held_out(fed: Federation) -> tuple[UInt64, ...]:
    """Return the hashes of each client's held-out rows, by which seeds find the same row."""
    assert fed.test is not None
    found = get_hashes(fed.test)[fed.test.base(np.arange(fed.test.offsets[-1]))]
    return tuple(np.split(found, fed.test.offsets[1:-1]))


def ask_nothing(run: Run, k: int) -> RowAnswers | None:
    """Return None: single rows do not matter."""
    return None


def measure(run: Run, some: Bool, ask: Ask = ask_nothing) -> WayRecord:
    """Return the record of a run for some clients, by the last model; `ask` returns the model's
    answers to a client's held-out rows."""
    if "test_loss" not in run.final.columns:
        raise MusterError("data: no held-out rows; give every client some, such as test_fraction")
    scores = [name for name in run.final.columns if name.startswith("test_")]
    values = {
        name: np.where(some, run.final[name].cast(pl.Float64).fill_null(np.nan).to_numpy(), np.nan)
        for name in scores
    }
    sent = run.clients.group_by("client").agg(pl.col("bytes_up", "bytes_down").sum())
    traffic = np.zeros((2, len(some)))
    traffic[:, sent["client"].to_numpy()] = sent.select("bytes_up", "bytes_down").to_numpy().T
    asked = np.flatnonzero(some).tolist()
    answers = {k: found for k in asked if (found := ask(run, k)) is not None}
    loss = values.pop("test_loss")
    names = {name.removeprefix("test_"): found for name, found in values.items()}
    return WayRecord(loss, names, traffic[0], traffic[1], answers)


def merge(records: Sequence[WayRecord]) -> WayRecord:
    """Return one record of several, each of other clients."""
    seen = [np.isfinite(record.loss) for record in records]

    def pick(values: Sequence[Float64]) -> Float64:
        return np.select(seen, values, np.nan)

    return WayRecord(
        pick([record.loss for record in records]),
        {name: pick([record.scores[name] for record in records]) for name in records[0].scores},
        pick([record.up for record in records]),
        pick([record.down for record in records]),
        {k: answers for record in records for k, answers in record.answers.items()},
    )


def ask_model(run: Run, k: int, fed: Federation, task: Task) -> RowAnswers | None:
    """Return the answers of the model that client k gets to its held-out rows."""
    assert fed.test is not None
    if not fed.test.sizes[k]:
        return None
    x, y = fed.test.client(k)
    module = run.model(k if run.recipe is not None and run.recipe.serves == "own" else None)
    z = torch.from_numpy(compute_outputs(module, x.numpy()))
    loss = task.loss(z, y if fed.classes else y.double()).numpy().astype(np.float64)
    two = fed.classes == 2 and isinstance(task, Binary | Multiclass)
    p = interpret(task, 2, z)[:, 1].numpy() if two else None
    return RowAnswers(loss, None if p is None else count_outcomes(p, y.numpy() == 1))


def count_outcomes(p: Float64, truth: Bool) -> Outcomes:
    """Count answers of two classes: p is the probability of the second, which is `truth`."""
    above = p >= 0.5
    at = np.clip((p * BINS).astype(np.int64), 0, BINS - 1)
    bins = zip(
        np.bincount(at, minlength=BINS).tolist(),
        np.bincount(at, p, BINS).tolist(),
        np.bincount(at[truth], minlength=BINS).tolist(),
        strict=True,
    )
    counts = (truth & above, truth & ~above, ~truth & ~above, ~truth & above)
    hits, misses, rejections, alarms = (int(each.sum()) for each in counts)
    return Outcomes(hits, misses, rejections, alarms, tuple(bins))


def average_rows(records: Sequence[SeedRecord], way: str, k: int) -> Float64:
    """Return the loss of each of client k's rows, the mean over the seeds that held it out."""
    _, at = np.unique(np.concatenate([r.row_hashes[k] for r in records]), return_inverse=True)
    loss = np.concatenate([r.ways[way].answers[k].loss for r in records])
    return np.asarray(np.bincount(at, loss) / np.bincount(at))


def find_units(records: Sequence[SeedRecord], way: str, k: int) -> Float64:
    """Return the losses of client k by a way, one for each unit: its rows, or seeds."""
    if records[0].row_hashes and all(k in record.ways[way].answers for record in records):
        return average_rows(records, way, k)
    return np.array([record.ways[way].loss[k] for record in records])


def client_ratio(variation: Variation, train: int, test: int) -> float:
    """Return the correction of one client's held-out measures (`Variation.ratio`): of its own rows
    where clients keep them, of all rows where they are dealt again."""
    if variation.varies == "deal and split":
        share = test / max(1, variation.test_rows)
        return replace(variation, objective_share=share).ratio(True, "objective")
    return replace(variation, train_rows=train, test_rows=test).ratio(True)


def collect_trials(records: Sequence[SeedRecord]) -> Trials:
    """Return the gains of every way for every client."""
    first = records[0]
    everyone = range(len(first.names))
    alone = [find_units(records, ALONE, k) for k in everyone]
    check_whole("seeds", len(records), LEAST_SEEDS)
    check_alone(alone, first.names)
    found = {
        (way, k): alone[k] - losses
        for way in first.ways
        if way != ALONE
        for k in everyone
        if len(losses := find_units(records, way, k)) == len(alone[k])
    }
    ratio = [
        0.0 if first.row_hashes else client_ratio(first.variation, train, test)
        for train, test in zip(first.train_rows, first.test_rows, strict=True)
    ]
    return Trials(
        np.array([losses.mean() for losses in alone]),
        {cell: gain for cell, gain in found.items() if np.isfinite(gain).all()},
        np.array(ratio),
        [sum(size) for size in zip(first.train_rows, first.test_rows, strict=True)],
        {way: k for k, name in enumerate(first.names) if (way := name_pair(name)) in first.ways},
        bool(first.row_hashes),
        frozenset(k for k, rows in enumerate(first.minority) if rows < LEAST_MINORITY),
    )


def check_alone(alone: Sequence[Float64], names: Sequence[str]) -> None:
    """Refuse losses that no interval can be computed from."""
    for name, losses in zip(names, alone, strict=True):
        if not np.isfinite(losses).all():
            raise MusterError(
                f"client {name}: training alone gave no finite loss on its held-out rows; take a "
                "smaller local.lr, or give it rows to test on"
            )
        if len(losses) < LEAST_UNITS:
            raise MusterError(
                f"client {name}: {plural(len(losses), 'row')} held out over all seeds; advice "
                f"needs {LEAST_UNITS}: leave it out, or give it more rows"
            )
