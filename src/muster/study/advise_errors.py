"""Error rates of verdicts, measured on federations of which the truth is known.

In two worlds the models are in closed form, so that thousands of federations are judged in seconds:
`means` (each client estimates its mean; FedAvg's limit is the pooled mean) and `linear` (least
squares, alone or on pooled rows). In `trained`, clients of Gaussian linear models go through
`muster.advise` itself, and in `synth` clients of SYNTH(1, 1): every way, by the real methods. The
true gain of a way is its mean over the same seeds' models, on rows without end (in closed form, or
20,000 of them). Every seed splits the same rows again, which is where intervals are hardest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base import rng
from ..base.arrays import Float64, Int64
from ..base.errors import unknown_name
from ..base.lazy import pl
from ..data.sets.synth import User
from ..data.split.resplit import split_again
from ..engines.compute import Compute
from ..federation import Federation
from ..local import Local
from ..methods import fedavg
from ..models.specs import Linear, Softmax
from ..run.job import Job
from ..tasks.classification import Multiclass
from ..tasks.regression import Regression
from .advice_runs import ALONE, EVERYONE, AdvicePlan, client_ratio, name_pair, run_seed
from .advise import HELP, JOIN, LEAST, STAY_OUT, ClientVerdict, Trials, decide

SIZES = (12, 40, 150)  # rows of a client
GAPS = (0.0, 0.1, 0.3, 1.0)  # distances between clients, in deviations of a row
SEEDS = 16
DIMENSIONS = 6
ENDLESS = 20_000  # test rows that stand for all, where the true loss has no closed form
FRACTION = 0.25  # rows held out in every seed

Rows = tuple[Float64, Float64]


@dataclass(frozen=True)
class Study:
    """The losses of one federation: on held-out rows, and in truth, by way, [seed, client]."""

    trials: Trials
    truth: dict[str, Float64]


def draw_sizes(draw: np.random.Generator, clients: int) -> Int64:
    """Draw the number of rows of each client."""
    return draw.choice(SIZES, clients)


def list_groups(clients: int) -> dict[str, list[tuple[int, ...]]]:
    """Return, for each way in closed form, the clients whose rows each client learns from; of a
    pair with itself, nobody."""
    everyone = tuple(range(clients))
    groups = {ALONE: [(k,) for k in everyone]}
    for j in everyone:
        groups[name_pair(str(j))] = [() if j == k else (k, j) for k in everyone]
    if clients > 2:
        groups[EVERYONE] = [everyone] * clients
    return groups


def study_closed(
    seed: int,
    fit: Callable[[Sequence[Rows]], Float64],
    loss: Callable[[Float64, Rows], float],
    true_loss: Callable[[Float64, Float64], float],
    sample: Callable[[Float64, int, np.random.Generator], Rows],
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
    shape = (SEEDS, clients)
    held_out = {way: np.full(shape, np.nan) for way in groups}
    truth = {way: np.full(shape, np.nan) for way in groups}
    tested = np.maximum(1, np.rint(FRACTION * sizes).astype(np.int64))
    for s in range(SEEDS):
        order = [draw.permutation(n) for n in sizes]
        test = [take(r, o[:m]) for r, o, m in zip(rows, order, tested, strict=True)]
        train = [take(r, o[m:]) for r, o, m in zip(rows, order, tested, strict=True)]
        for way, group in groups.items():
            for k, some in enumerate(group):
                if some:
                    model = fit([train[j] for j in some])
                    held_out[way][s, k] = loss(model, test[k])
                    truth[way][s, k] = true_loss(model, means[k])
    trials = Trials(
        held_out.pop(ALONE),
        held_out,
        tested / (sizes - tested),
        sizes.tolist(),
        {name_pair(str(j)): j for j in range(clients)},
    )
    return Study(trials, truth)


def take(rows: Rows, at: Int64) -> Rows:
    """Return some rows."""
    return rows[0][at], rows[1][at]


def study_means(seed: int) -> Study:
    """Estimate means: rows N(mu_k, I), the loss of a row is its squared distance."""

    def sample(mean: Float64, n: int, draw: np.random.Generator) -> Rows:
        return mean + draw.standard_normal((n, DIMENSIONS)), np.zeros(n)

    def fit(some: Sequence[Rows]) -> Float64:
        return np.asarray(np.concatenate([x for x, _ in some]).mean(axis=0))

    def loss(model: Float64, rows: Rows) -> float:
        return float(((rows[0] - model) ** 2).sum(axis=1).mean())

    def true_loss(model: Float64, mean: Float64) -> float:
        return float(DIMENSIONS + ((model - mean) ** 2).sum())

    return study_closed(seed, fit, loss, true_loss, sample)


def study_linear(seed: int) -> Study:
    """Least squares with a small ridge: y = x'b_k + e, x and e normal."""

    def sample(mean: Float64, n: int, draw: np.random.Generator) -> Rows:
        x = draw.standard_normal((n, DIMENSIONS))
        return x, x @ mean + draw.standard_normal(n)

    def fit(some: Sequence[Rows]) -> Float64:
        x, y = (np.concatenate(part) for part in zip(*some, strict=True))
        return np.asarray(np.linalg.solve(x.T @ x + 0.1 * np.eye(DIMENSIONS), x.T @ y))

    def loss(model: Float64, rows: Rows) -> float:
        return float(((rows[1] - rows[0] @ model) ** 2).mean())

    def true_loss(model: Float64, mean: Float64) -> float:
        return float(1.0 + ((model - mean) ** 2).sum())

    return study_closed(seed, fit, loss, true_loss, sample)


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
    whole = Federation.from_arrays(rows, classes=classes)
    asked = Federation.from_arrays(rows, endless, classes=classes)

    def truth_of(seed: int) -> Federation:
        return replace(split_again(whole, seed), test=asked.test)

    compute = Compute(processes=1)
    plans = [AdvicePlan(data, job, compute, data is whole, False) for data in (whole, truth_of)]
    held_out, truth = ([run_seed(plan, seed) for seed in range(SEEDS)] for plan in plans)
    first = held_out[0]
    pairs = zip(first.train_rows, first.test_rows, strict=True)
    losses, true = (
        {way: np.stack([record.ways[way].loss for record in records]) for way in first.ways}
        for records in (held_out, truth)
    )
    trials = Trials(
        losses.pop(ALONE),
        losses,
        np.array([client_ratio(first.variation, *pair) for pair in pairs]),
        sizes.tolist(),
        {name_pair(str(j)): j for j in range(len(sizes))},
    )
    return Study(trials, true)


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
        fedavg(), Linear(), Local(steps=10, batch_size=32, lr=0.05), 6, seed, task=Regression()
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
        x, y = users[k].rows(n, draw)
        return x.astype(np.float64), y

    job = Job(
        fedavg(), Softmax(), Local(steps=10, batch_size=32, lr=0.1), 6, seed, task=Multiclass()
    )
    return study_runs(sample, draw_sizes(draw, clients), job, 10, draw)


WORLDS: dict[str, Callable[[int], Study]] = {
    "means": study_means,
    "linear": study_linear,
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


def summarise(frame: pl.DataFrame) -> list[list[str]]:
    """Return a row of text for each world: federations, clients, the verdicts, and their errors."""
    lines = []
    for (world,), mine in frame.group_by("world", maintain_order=True):
        tables = mine.group_by("federation").agg(
            ((pl.col("verdict") == JOIN) & pl.col("wrong")).any().alias("wrong")
        )
        cells = [str(world), f"{len(tables):,}", f"{len(mine):,}"]
        for verdict in (JOIN, HELP, STAY_OUT):
            these = mine.filter(pl.col("verdict") == verdict)
            cells += [f"{len(these):,}", str(int(these["wrong"].sum()))]
        gaining = mine.filter("gains")
        found = gaining.filter(pl.col("verdict") == JOIN)
        cells += [
            f"{100 * float(tables['wrong'].mean() or 0):.1f} %",  # type: ignore[arg-type]
            f"{100 * len(found) / max(1, len(gaining)):.0f} %",
        ]
        lines.append(cells)
    return lines
