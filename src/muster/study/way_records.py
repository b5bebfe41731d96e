"""Records of the runs behind advice: losses and answers of each way, by seed, and their summary.

The summary of a client is all that a verdict rests on: numbers, means and deviations, no rows. A
node of a real federation makes its own and sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..base.arrays import Bool, Float64, UInt64
from ..base.errors import MusterError
from ..base.lazy import nn, pl, torch
from ..federation import Federation, Variation
from ..federation.ragged_rows import SharedRows
from ..federation.row_hashes import get_hashes
from ..report.intervals import SampleMoments
from ..report.way_content import BINS, Outcomes
from ..results.predict import compute_outputs, interpret
from ..results.run import Run
from ..tasks.classification import Binary, Multiclass
from ..tasks.task import StandardTask, Task
from .advice_plan import ALONE, find_first, name_pair
from .advise import Trials

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


def has_row_losses(task: Task) -> bool:
    """Return True if a single row has a loss."""
    return not isinstance(task, StandardTask) or task.averages_rows


def has_same_rows(fed: Federation, task: Task) -> bool:
    """Return True if every seed divides the same rows of each client, and a row has a loss."""
    same = fed.varies == "split" and not isinstance(fed.test, SharedRows)
    return same and has_row_losses(task)


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
    columns = [name for name in run.final.columns if name != "test_rows"]
    scores = [name for name in columns if name.startswith("test_")]
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
    module = run.model(k if run.recipe is not None and run.recipe.serves == "own" else None)
    return answer_rows(module, *fed.test.client(k), fed.classes, task)


def answer_rows(
    module: nn.Module, x: torch.Tensor, y: torch.Tensor, classes: int, task: Task
) -> RowAnswers:
    """Return the answers of a module to some rows."""
    z = torch.from_numpy(compute_outputs(module, x.numpy()))
    loss = task.loss(z, y if classes else y.double()).numpy().astype(np.float64)
    two = classes == 2 and isinstance(task, Binary | Multiclass)
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


def average_rows(hashes: Sequence[UInt64], losses: Sequence[Float64]) -> Float64:
    """Return the loss of each of a client's rows, the mean over the seeds that held it out.

    Args:
        hashes: of the rows that each seed held out
        losses: of these rows
    """
    _, at = np.unique(np.concatenate(hashes), return_inverse=True)
    return np.asarray(np.bincount(at, np.concatenate(losses)) / np.bincount(at))


def find_units(records: Sequence[SeedRecord], way: str, k: int) -> Float64:
    """Return the losses of client k by a way, one for each unit: its rows, or seeds."""
    if records[0].row_hashes and all(k in record.ways[way].answers for record in records):
        return average_rows(
            [r.row_hashes[k] for r in records], [r.ways[way].answers[k].loss for r in records]
        )
    return np.array([record.ways[way].loss[k] for record in records])


@dataclass(frozen=True)
class WaySummary:
    """One way's numbers for one client, over all seeds.

    Attributes:
        loss: mean held-out loss over its units
        gain: of its units; None for alone, and for a way of which not all could be measured
        scores: mean held-out scores by name
        up: bytes that it sends in a training
        down: bytes that it receives
        outcomes: answers of two classes
    """

    loss: float
    gain: SampleMoments | None = None
    scores: dict[str, float] = field(default_factory=dict)
    up: float = 0.0
    down: float = 0.0
    outcomes: Outcomes | None = None


@dataclass(frozen=True)
class ClientSummary:
    """All that one client's verdict rests on.

    Attributes:
        ways: by name, alone first
        rows: its training rows in a seed
        test_rows: its held-out rows in a seed
        thin: True if hardly any of its rows is outside its most frequent class
        ratio: correction for seeds that split the same rows again; 0 where units are rows
    """

    name: str
    ways: dict[str, WaySummary]
    rows: int
    test_rows: int
    thin: bool
    ratio: float = 0.0


def measure_gain(alone: Float64, losses: Float64) -> SampleMoments | None:
    """Return the gains of a way by unit; None where some are missing, or it diverged, or there are
    too few for an interval."""
    if len(losses) != len(alone) or len(alone) < LEAST_UNITS or not np.isfinite(losses).all():
        return None
    return SampleMoments.of(alone - losses)


def summarise_client(records: Sequence[SeedRecord], k: int) -> ClientSummary:
    """Return the summary of client k."""
    first = records[0]
    alone = find_units(records, ALONE, k)
    check_alone(alone, first.names[k])
    train, test = first.train_rows[k], first.test_rows[k]
    ratio = 0.0 if first.row_hashes else client_ratio(first.variation, train, test)
    thin = bool(first.minority) and first.minority[k] < LEAST_MINORITY
    ways = {way: summarise_way(records, way, k, alone) for way in first.ways}
    return ClientSummary(first.names[k], ways, train, test, thin, ratio)


def summarise_way(records: Sequence[SeedRecord], way: str, k: int, alone: Float64) -> WaySummary:
    """Return the numbers of one way for client k, means over the seeds."""
    mine = [record.ways[way] for record in records]
    counted = [a.outcomes for record in mine if (a := record.answers.get(k)) and a.outcomes]
    losses = find_units(records, way, k)
    return WaySummary(
        float(losses.mean()),
        None if way == ALONE else measure_gain(alone, losses),
        *average_scores(mine, way, k),
        sum(counted[1:], counted[0]) if counted else None,
    )


def average_scores(
    mine: Sequence[WayRecord], way: str, k: int
) -> tuple[dict[str, float], float, float]:
    """Return client k's mean scores by a way, and the bytes that it sends and receives."""
    scores = {
        name: float(np.nanmean(values)) if np.isfinite(values).any() else np.nan
        for name in mine[0].scores
        for values in [np.array([record.scores[name][k] for record in mine])]
    }
    up, down = (float(np.mean([getattr(r, name)[k] for r in mine])) for name in ("up", "down"))
    return (scores, 0.0, 0.0) if way == ALONE else (scores, up, down)


def client_ratio(variation: Variation, train: int, test: int) -> float:
    """Return the correction of one client's held-out measures (`Variation.ratio`): of its own rows
    where clients keep them, of all rows where they are dealt again."""
    if variation.varies == "deal and split":
        share = test / max(1, variation.test_rows)
        return replace(variation, objective_share=share).ratio(True, "objective")
    return replace(variation, train_rows=train, test_rows=test).ratio(True)


def collect_trials(clients: Sequence[ClientSummary], by_row: bool) -> Trials:
    """Return the gains of every way for every client."""
    names = [client.name for client in clients]
    ways = list(clients[0].ways)
    return Trials(
        np.array([client.ways[ALONE].loss for client in clients]),
        {
            (name, k): found.gain
            for name in ways
            for k, client in enumerate(clients)
            if (found := client.ways.get(name)) is not None and found.gain is not None
        },
        np.array([client.ratio for client in clients]),
        [client.rows + client.test_rows for client in clients],
        {way: k for k, name in enumerate(names) if (way := name_pair(name)) in ways},
        by_row,
        frozenset(k for k, client in enumerate(clients) if client.thin),
        find_first(ways, len(clients)),
    )


def check_alone(losses: Float64, name: str) -> None:
    """Refuse losses that no interval can be computed from."""
    if not np.isfinite(losses).all():
        raise MusterError(
            f"client {name}: training alone gave no finite loss on its held-out rows; take a "
            "smaller local.lr, or give it rows to test on"
        )
