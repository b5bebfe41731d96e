"""Error rates of verdicts, measured on federations of which the truth is known.

In two worlds the models are in closed form, so that thousands of federations are judged in seconds:
`means` (each client estimates its mean; FedAvg's limit is the pooled mean) and `linear` (least
squares, alone or on pooled rows). In `trained`, clients of Gaussian linear models go through
every way of `muster.advise`, and in `synth` clients of SYNTH(1, 1). The true gain of a way is that
of the same seeds' models on rows without end: in closed form, or on `ENDLESS` of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from ..base import rng
from ..base.arrays import Float64, Int64
from ..base.errors import MusterWarning, unknown_name
from ..base.lazy import pl
from ..data.sets.synth import User
from ..data.split.resplit import split_again
from ..engines.compute import Compute
from ..federation import Federation
from ..federation.ragged_rows import from_pairs
from ..local import Local
from ..methods import fedavg
from ..models.specs import Linear, Softmax
from ..report.intervals import SampleMoments
from ..run.job import Job
from ..tasks.classification import Multiclass
from ..tasks.regression import Regression
from .advice_plan import ALONE, EVERYONE, find_first, name_pair
from .advice_runs import AdvicePlan, run_seed
from .advise import HELP, JOIN, LEAST, STAY_OUT, ClientVerdict, Trials, decide
from .way_records import WayRecord, collect_trials, count_minority, summarise_client

SIZES = (12, 40, 150)  # rows of a client
GAPS = (0.0, 0.1, 0.3, 1.0)  # distances between clients, in deviations of a row
SEEDS = 16
DIMENSIONS = 6
ENDLESS = 4_000  # test rows that stand for all, where the true loss has no closed form
RUN_SEEDS = 8  # of worlds that are trained
FRACTION = 0.25  # rows held out in every seed

Rows = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Study:
    """The gains of one federation on held-out rows, and its true losses by way, [seed, client]."""

    trials: Trials
    truth: dict[str, Float64]


def draw_sizes(draw: np.random.Generator, clients: int) -> Int64:
    """Draw the number of rows of each client."""
    return draw.choice(SIZES, clients)


def list_groups(clients: int) -> dict[str, list[tuple[int, ...]]]:
    """Return, for each way in closed form, the clients whose rows each client learns from; of a
    pair with itself, nobody."""
    everyone = tuple(range(clients))
    groups: dict[str, list[tuple[int, ...]]] = {ALONE: [(k,) for k in everyone]}
    for j in everyone:
        groups[name_pair(str(j))] = [() if j == k else (k, j) for k in everyone]
    if clients > 2:
        groups[EVERYONE] = [everyone] * clients
    return groups


def study_closed(
    seed: int,
    fit: Callable[[Sequence[Rows]], Float64],
    loss: Callable[[Float64, Rows], Float64],
    true_loss: Callable[[Float64, Float64], float],
    sample: Callable[[Float64, int, np.random.Generator], Rows],
    by_row: bool,
) -> Study:
    """Return the losses of one federation whose models are in closed form."""
    draw = rng.generator(seed, "advice errors")
    clients = int(draw.integers(2, 5))
    gap = float(draw.choice(GAPS))
    sizes = draw_sizes(draw, clients)
    start = draw.standard_normal(DIMENSIONS)
    means = start + gap * draw.standard_normal((clients, DIMENSIONS))
    rows = [sample(mean, int(n), draw) for mean, n in zip(means, sizes, strict=True)]
    groups = list_groups(clients)
    tested = np.maximum(1, np.rint(FRACTION * sizes).astype(np.int64))
    held_out = {way: [np.full((SEEDS, n), np.nan) for n in sizes] for way in groups}
    truth = {way: np.full((SEEDS, clients), np.nan) for way in groups}
    for s in range(SEEDS):
        order = [draw.permutation(n) for n in sizes]
        train = [take(r, o[m:]) for r, o, m in zip(rows, order, tested, strict=True)]
        for way, group in groups.items():
            for k, some in enumerate(group):
                if some:
                    model = fit([train[j] for j in some])
                    at = order[k][: tested[k]]
                    held_out[way][k][s, at] = loss(model, take(rows[k], at))
                    truth[way][s, k] = true_loss(model, means[k])
    return Study(collect(held_out, sizes, tested, by_row), truth)


def collect(
    held_out: dict[str, list[Float64]], sizes: Int64, tested: Int64, by_row: bool
) -> Trials:
    """Return the gains of ways from losses [seed, row] of each client, NaN where a row trained.

    Args:
        by_row: True if units are rows; False: seeds, with the correction of Nadeau and Bengio
    """
    axis = 0 if by_row else 1
    gains = {}
    for way, losses in held_out.items():
        for k, loss in enumerate(losses):
            change = held_out[ALONE][k] - loss
            if way != ALONE and np.isfinite(change).any():
                seen = np.isfinite(change).any(axis=axis)
                each = np.nanmean(change.compress(seen, axis=1 - axis), axis=axis)
                gains[way, k] = SampleMoments.of(each)
    return Trials(
        np.array([np.nanmean(loss) for loss in held_out[ALONE]]),
        gains,
        np.zeros(len(sizes)) if by_row else tested / (sizes - tested),
        sizes.tolist(),
        {name_pair(str(j)): j for j in range(len(sizes))},
        by_row,
        first=find_first(list(held_out), len(sizes)),
    )


def take(rows: Rows, at: Int64) -> Rows:
    """Return some rows."""
    return rows[0][at], rows[1][at]


def study_means(seed: int, by_row: bool = True) -> Study:
    """Estimate means: rows N(mu_k, I), the loss of a row is its squared distance."""

    def sample(mean: Float64, n: int, draw: np.random.Generator) -> Rows:
        return mean + draw.standard_normal((n, DIMENSIONS)), np.zeros(n)

    def fit(some: Sequence[Rows]) -> Float64:
        return np.asarray(np.concatenate([x for x, _ in some]).mean(axis=0))

    def loss(model: Float64, rows: Rows) -> Float64:
        return np.asarray(((rows[0] - model) ** 2).sum(axis=1))

    def true_loss(model: Float64, mean: Float64) -> float:
        return float(DIMENSIONS + ((model - mean) ** 2).sum())

    return study_closed(seed, fit, loss, true_loss, sample, by_row)


def study_linear(seed: int, by_row: bool = True) -> Study:
    """Least squares with a small ridge: y = x'b_k + e, x and e normal."""

    def sample(mean: Float64, n: int, draw: np.random.Generator) -> Rows:
        x = draw.standard_normal((n, DIMENSIONS))
        return x, x @ mean + draw.standard_normal(n)

    def fit(some: Sequence[Rows]) -> Float64:
        x, y = (np.concatenate(part) for part in zip(*some, strict=True))
        return np.asarray(np.linalg.solve(x.T @ x + 0.1 * np.eye(DIMENSIONS), x.T @ y))

    def loss(model: Float64, rows: Rows) -> Float64:
        return np.asarray((rows[1] - rows[0] @ model) ** 2)

    def true_loss(model: Float64, mean: Float64) -> float:
        return float(1.0 + ((model - mean) ** 2).sum())

    return study_closed(seed, fit, loss, true_loss, sample, by_row)


def study_runs(
    sample: Callable[[int, int, np.random.Generator], Rows],
    sizes: Int64,
    job: Job,
    classes: int | None,
    draw: np.random.Generator,
) -> Study:
    """Return the losses of one federation by the real methods; `sample` draws a client's rows."""
    rows = [sample(k, int(n), draw) for k, n in enumerate(sizes)]
    endless = [sample(k, ENDLESS, draw) for k in range(len(sizes))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MusterWarning)  # a client may hold a single class
        whole = Federation.from_arrays(rows, endless, classes=classes)
    assert whole.test is not None
    own = replace(whole, test=None)
    first = split_again(own, 0)
    assert first.test is not None
    tested = first.test.sizes

    def data(seed: int) -> Federation:
        """Return the federation of a seed, with the rows without end after those held out."""
        again = split_again(own, seed)
        assert again.test is not None
        held_out = [again.test.client(k) for k in range(own.n)]
        pairs = [
            (np.concatenate([x.numpy(), more[0]]), np.concatenate([y.numpy(), more[1]]))
            for (x, y), more in zip(held_out, endless, strict=True)
        ]
        return replace(again, test=from_pairs(pairs, "test"))

    plan = AdvicePlan(data, job, Compute(processes=1), False, False)
    records = [run_seed(plan, seed) for seed in range(RUN_SEEDS)]
    truth = {
        way: np.stack([cut(record.ways[way], tested, False).loss for record in records])
        for way in records[0].ways
    }
    seen = [
        replace(
            record,
            ways={way: cut(found, tested, True) for way, found in record.ways.items()},
            row_hashes=tuple(h[:m] for h, m in zip(record.row_hashes, tested, strict=True)),
            test_rows=tuple(tested.tolist()),
            minority=count_minority(first),
        )
        for record in records
    ]
    summaries = [summarise_client(seen, k) for k in range(own.n)]
    return Study(collect_trials(summaries, True), truth)


def cut(record: WayRecord, tested: Int64, held_out: bool) -> WayRecord:
    """Return a record of a client's first rows, which were held out, or of those without end."""
    answers = {
        k: replace(a, loss=a.loss[: tested[k]] if held_out else a.loss[tested[k] :])
        for k, a in record.answers.items()
    }
    loss = np.full(len(tested), np.nan)
    for k, found in answers.items():
        loss[k] = found.loss.mean()
    return replace(record, loss=loss, answers=answers)


def study_trained(seed: int) -> Study:
    """Gaussian linear clients, through every way of `muster.advise`."""
    draw = rng.generator(seed, "advice errors, trained")
    clients = int(draw.integers(2, 4))
    start = draw.standard_normal(DIMENSIONS)
    gap = float(draw.choice(GAPS))
    models = start + gap * draw.standard_normal((clients, DIMENSIONS))

    def sample(k: int, n: int, draw: np.random.Generator) -> Rows:
        x = draw.standard_normal((n, DIMENSIONS))
        return x, x @ models[k] + draw.standard_normal(n)

    job = Job(
        fedavg(), Linear(), Local(steps=10, batch_size=32, lr=0.05), 4, seed, task=Regression()
    )
    return study_runs(sample, draw_sizes(draw, clients), job, 0, draw)


def study_synth(seed: int) -> Study:
    """Clients of SYNTH(1, 1): some share their distribution with the first, some have another."""
    draw = rng.generator(seed, "advice errors, synth")
    clients = int(draw.integers(2, 4))
    users = [User.draw(1.0, 1.0, draw)]
    users += [
        users[0] if draw.random() < 0.5 else User.draw(1.0, 1.0, draw) for _ in range(clients - 1)
    ]

    def sample(k: int, n: int, draw: np.random.Generator) -> Rows:
        return users[k].rows(n, draw)

    job = Job(
        fedavg(), Softmax(), Local(steps=10, batch_size=32, lr=0.1), 4, seed, task=Multiclass()
    )
    return study_runs(sample, draw_sizes(draw, clients), job, 10, draw)


WORLDS: dict[str, Callable[[int], Study]] = {
    "means": study_means,
    "linear": study_linear,
    "means, by seeds": partial(study_means, by_row=False),
    "linear, by seeds": partial(study_linear, by_row=False),
    "trained": study_trained,
    "synth": study_synth,
}


def judge(study: Study) -> list[dict[str, Any]]:
    """Return one row for each client: its verdict, and if that is wrong in truth.

    join is wrong if the true gain of the way advised is not above 0; help, if a client that is
    named does not truly gain by training with it; stay out, if some way truly gains `LEAST` of the
    true loss alone.
    """
    verdicts, _ = decide(study.trials)
    alone = study.truth[ALONE].mean(axis=0)
    gains = {way: alone - loss.mean(axis=0) for way, loss in study.truth.items() if way != ALONE}
    return [
        {
            "client": k,
            "rows": study.trials.rows[k],
            "verdict": verdict.verdict,
            "wrong": is_wrong(verdict, k, gains, alone),
            "gains": bool(np.nanmax([gain[k] for gain in gains.values()]) > LEAST * alone[k]),
        }
        for k, verdict in enumerate(verdicts)
    ]


def is_wrong(verdict: ClientVerdict, k: int, gains: dict[str, Float64], alone: Float64) -> bool:
    """Return True if a verdict is wrong in truth."""
    if verdict.verdict == JOIN:
        return bool(gains[verdict.way][k] <= 0)
    if verdict.verdict == HELP:
        return any(gains[name_pair(str(k))][j] <= 0 for j in verdict.helps)
    if verdict.verdict == STAY_OUT:
        return any(bool(gain[k] > LEAST * alone[k]) for gain in gains.values())
    return False


def measure_errors(world: str, seeds: Sequence[int]) -> pl.DataFrame:
    """Judge federations of a world, one for each seed; one row for each of their clients."""
    if world not in WORLDS:
        raise unknown_name("world", world, WORLDS)
    rows = [
        {"world": world, "federation": seed, **row}
        for seed in seeds
        for row in judge(WORLDS[world](seed))
    ]
    return pl.DataFrame(rows)


def find_upper_share(wrong: int, count: int) -> float:
    """Return the largest share of errors that so few among so many do not rule out, at 95 % on one
    side (Clopper and Pearson 1934).

    >>> round(find_upper_share(0, 59), 3), find_upper_share(3, 3)
    (0.05, 1.0)
    """
    return 1.0 if wrong >= count else float(beta.ppf(0.95, wrong + 1, count - wrong))


def summarise(frame: pl.DataFrame) -> list[list[str]]:
    """Return a row of text for each world: federations, clients, the verdicts and their errors, and
    the largest share of wrong joins that these do not rule out."""
    lines = []
    for (world,), mine in frame.group_by("world", maintain_order=True):
        tables = mine.group_by("federation").agg(
            ((pl.col("verdict") == JOIN) & pl.col("wrong")).any().alias("wrong")
        )
        cells = [str(world), f"{len(tables):,}", f"{len(mine):,}"]
        for verdict in (JOIN, HELP, STAY_OUT):
            these = mine.filter(pl.col("verdict") == verdict)
            cells += [f"{len(these):,}", str(int(these["wrong"].sum()))]
        joins = mine.filter(pl.col("verdict") == JOIN)["wrong"]
        gaining = mine.filter("gains")
        found = gaining.filter(pl.col("verdict") == JOIN)
        cells += [
            f"{100 * find_upper_share(int(joins.sum()), len(joins)):.1f} %",
            f"{100 * float(tables['wrong'].mean() or 0):.1f} %",  # type: ignore[arg-type]
            f"{100 * len(found) / max(1, len(gaining)):.0f} %",
        ]
        lines.append(cells)
    return lines
