"""The tables of docs/assist.md and docs/when.md: what evidence is worth over rounds, the study's
endpoints, and where help gains or harms.

`muster reproduce --pages` writes them, from draws made here and from the results of `muster
reproduce assist` and `border-align` in `experiments/results`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.arrays import Float64
from ..base.lazy import pl
from ..report.intervals import Interval, correction_ratio, read_variation
from ..results.measures import MEASURES
from .page_tables import fill, format_points, last_rounds, markdown, points

ALONE, EVERYONE, RULE, CROSSFIT = "alone", "everyone", "assist", "assist, crossfit"
HARMED = 0.02  # a loss that much higher than alone, as a share of it, is harm
ALL_ROWS = 100_000
ROUNDS = (1, 2, 5, 10, 20, 50)
KEY_ALPHA, KEY_ROWS = "data.partition.of.alpha", "data.partition.rows"
KEY_SHARDS = "data.partition.of.per_client"
KEYS = ("panel", "data.rows", "data.priority")  # a federation of the study, and its client


def measure_evidence(rows: int, draws: int = 2000, rounds: int = ROUNDS[-1]) -> pl.DataFrame:
    """Return, for each round, the evidence over the truth: of `Stein` v over |m_P - mu|^2, of
    `CrossFit` the measured c over <d, mu - m_P>, both as ratios of means over draws.

    Linear regression with ten standard normal features, noise of variance 1, and five full-batch
    steps a round at a learning rate of 0.1, so that mu is known exactly. The client trains alone; a
    helper has the same truth and unlimited rows.
    """
    draw, width, folds = np.random.default_rng(rows), 10, 4
    truth = draw.normal(size=(draws, width)) / np.sqrt(width)
    x = draw.normal(size=(draws, rows, width))
    y = np.einsum("trd,td->tr", x, truth) + draw.normal(size=(draws, rows))

    def summarise(some: slice | Sequence[int]) -> tuple[Float64, Float64]:
        """Return X'X / n and X'y / n of some rows: the gradient is their affine function of w."""
        a, b = x[:, some], y[:, some]
        turned = a.transpose(0, 2, 1) / a.shape[1]
        return turned @ a, (turned @ b[..., None])[..., 0]

    def train(w: Float64, rows: tuple[Float64, Float64]) -> Float64:
        gram, moment = rows
        for _ in range(5):
            w = w - 0.1 * ((gram @ w[..., None])[..., 0] - moment)
        return w

    def train_forever(w: Float64) -> Float64:
        return np.asarray(truth + 0.9**5 * (w - truth))

    half_rows = [summarise(slice(h, None, 2)) for h in (0, 1)]
    fold_rows = [
        (summarise(fold), summarise(np.setdiff1d(np.arange(rows), fold).tolist()))
        for fold in (list(range(f, rows, folds)) for f in range(folds))
    ]
    w, tracks = np.zeros((draws, width)), [np.zeros((draws, width)) for _ in fold_rows]
    found = []
    for t in range(1, rounds + 1):
        halves = [train(w, half) for half in half_rows]
        mean = (halves[0] + halves[1]) / 2
        stein = ((halves[0] - halves[1]) ** 2).sum(1).mean() / 4
        risk = ((mean - train_forever(w)) ** 2).sum(1).mean()
        measured = true = 0.0
        for f, (fold, rest) in enumerate(fold_rows):
            own, helper = train(tracks[f], rest), train_forever(tracks[f])
            measured += ((helper - own) * (train(tracks[f], fold) - own)).sum(1).mean()
            true += ((helper - own) ** 2).sum(1).mean()
            tracks[f] = own
        found.append({"round": t, "rows": rows, "stein": stein / risk, "crossfit": measured / true})
        w = mean
    return pl.DataFrame(found)


def evidence_table() -> str:
    """Return the table of `measure_evidence` for clients of 10, 30 and 100 rows."""
    frames = [measure_evidence(rows, 2000 if rows < 50 else 500) for rows in (10, 30, 100)]
    head = ["evidence", "rows", *(f"round {t}" for t in ROUNDS)]
    lines = [
        [rule, str(frame["rows"][0])]
        + [f"{frame.filter(pl.col('round') == t)[rule][0]:.2f}" for t in ROUNDS]
        for rule in ("stein", "crossfit")
        for frame in frames
    ]
    return markdown(head, lines)


def relative_change(frame: pl.DataFrame) -> pl.DataFrame:
    """Add each run's change of test loss against training alone on the same seed, as a share."""
    keys = [k for k in KEYS if k in frame.columns]
    alone = frame.filter(pl.col("method") == ALONE).select(
        *keys, "seed", pl.col("test_loss").alias("alone")
    )
    both = frame.join(alone, on=[*keys, "seed"], nulls_equal=True)
    return both.with_columns(change=pl.col("test_loss") / pl.col("alone") - 1)


def endpoints(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the endpoints of every method over the real federations, by the number of rows.

    mean, half  mean change of test loss against alone, with a 95 % interval over federations
    harmed      federations whose change is above 2 % with a paired 95 % interval
    runs        share of runs whose loss is over 2 % above alone
    worst       the largest change of a run
    share       of the gain that the best band in hindsight has (alone and everyone among them)
    bytes, steps  of a round, over those of FedAvg on everyone
    """
    runs = relative_change(last_rounds(frame))
    mean = runs.group_by("data.rows", "panel", "method").agg(pl.col("change").mean())
    bands = pl.col("method").str.starts_with("FedALIGN") & ~pl.col("method").str.contains("auto")
    best = (
        mean.filter(bands | pl.col("method").is_in([ALONE, EVERYONE]))
        .group_by("data.rows", "panel")
        .agg(pl.col("change").min().alias("best"))
        .group_by("data.rows")
        .agg(pl.col("best").mean())
    )
    cost = runs.group_by("data.rows", "method").agg(pl.col("bytes_up", "steps").mean())
    base = cost.filter(pl.col("method") == EVERYONE).select(
        "data.rows", pl.col("bytes_up").alias("b"), pl.col("steps").alias("s")
    )
    rows = []
    for (n, method), some in runs.group_by("data.rows", "method", maintain_order=True):
        bad = sum(
            is_harmed(one.sort("seed")["change"].to_numpy(), one)
            for _, one in some.group_by("panel")
        )
        gain = mean.filter((pl.col("data.rows") == n) & (pl.col("method") == method))["change"]
        top = best.filter(pl.col("data.rows") == n)["best"][0]
        rows.append(
            {
                "rows": n,
                "method": method,
                "federations": len(gain),
                "mean": gain.mean(),
                "half": Interval.of(gain.to_numpy()).half,
                "harmed": bad,
                "runs": (some["change"] > HARMED).mean(),
                "worst": some["change"].max(),
                "share": gain.mean() / top if top < 0 else float("nan"),
            }
        )
    ratio = cost.join(base, on="data.rows").select(
        pl.col("data.rows").alias("rows"),
        "method",
        (pl.col("bytes_up") / pl.col("b")).alias("bytes"),
        (pl.col("steps") / pl.col("s")).alias("steps"),
    )
    return pl.DataFrame(rows).join(ratio, on=["rows", "method"], maintain_order="left")


def is_harmed(change: Float64, runs: pl.DataFrame) -> bool:
    """True if the change is above 2 % beyond a paired 95 % interval, as its seeds vary."""
    if len(change) < 2:
        return False
    ratio = correction_ratio(read_variation(runs), MEASURES["test_loss"])
    found = Interval.of(change, ratio=ratio)
    return found.mean - found.half > HARMED


def endpoint_table(frame: pl.DataFrame) -> str:
    """Return the endpoints over the real federations as a table."""
    head = ["rows", "method", "mean change of loss", "federations harmed", "runs harmed",
            "worst run", "share of the hindsight gain", "bytes up", "steps"]  # fmt: skip
    real = frame.filter(pl.col("data.rows").is_not_null())
    lines = [
        [
            str(r["rows"]),
            r["method"],
            f"{percent(r['mean'])} ± {100 * r['half']:.0f}",
            f"{r['harmed']} of {r['federations']}",
            f"{100 * r['runs']:.0f} %",
            percent(r["worst"]),
            "" if np.isnan(r["share"]) else f"{100 * r['share']:.0f} %",
            f"{r['bytes']:.1f} x",
            f"{r['steps']:.1f} x",
        ]
        for r in endpoints(real).iter_rows(named=True)
        if r["method"] != ALONE
    ]
    return markdown(head, lines)


def percent(value: float) -> str:
    """Return a share as a signed percentage."""
    return f"{100 * value:+.0f} %"


def cell_table(frame: pl.DataFrame, panel: str, methods: Sequence[str]) -> str:
    """Return the cells of a few-rows panel: accuracy alone, and every method's gain over it."""
    keys = [KEY_ALPHA, KEY_ROWS]
    here = last_rounds(frame.filter(pl.col("panel") == panel))
    keys = [key for key in keys if key in here.columns and here[key].n_unique() > 1]
    words = {KEY_ALPHA: "alpha", KEY_ROWS: "rows"}
    alone = ALONE if ALONE in here["method"] else "None"
    lines = []
    for cell, some in here.sort(*keys).group_by(*keys, maintain_order=True):
        base = 100 * float(some.filter(pl.col("method") == alone)["test_accuracy"].mean())  # type: ignore[arg-type]
        gains = [format_points(points(some, method, alone)) for method in methods]
        lines.append([*(format_setting(value) for value in cell), f"{base:.1f}", *gains])
    return markdown([*(words[key] for key in keys), "alone", *methods], lines)


def format_setting(value: float) -> str:
    """Return a number of a sweep; more rows than a client has are all of them."""
    return f"{value:g}" if value < ALL_ROWS else "all"


def liar_table(frame: pl.DataFrame) -> str:
    """Return the gain over training alone with and without liars among the helpers."""
    names = {"digits": "nobody lies", "digits-liars": "half of the helpers lie"}
    methods = [RULE, CROSSFIT, EVERYONE, "FedALIGN .2", "FedDA"]
    here = last_rounds(frame)
    lines = []
    for panel, words in names.items():
        some = here.filter(pl.col("panel") == panel)
        lines.append([words, *(format_points(points(some, m, ALONE)) for m in methods)])
    return markdown(["digits, 20 rows", *methods], lines)


OTHERS = {
    "fmnist-thousand": "FMNIST, softmax, 1,000 rows",
    "fmnist-mlp": "FMNIST, MLP",
    "fmnist-cnn": "FMNIST, convolutional",
    "digits-cnn": "digits, 20 rows, convolutional",
    "emnist": "EMNIST, softmax",
    "emnist-shards": "EMNIST, 24 shards, softmax",
    "digits-auto": "digits, 20 rows, softmax",
    "fmnist-one-priority": "FMNIST, softmax, one priority client",
    "fmnist-five-priority": "FMNIST, softmax, five priority clients",
    "fmnist-shards": "FMNIST, softmax, 2 shards",
    "synth": "SYNTH, softmax",
}


def other_table(frame: pl.DataFrame) -> str:
    """Return the gain over training alone with other models and data, of panels that were run."""
    methods = [RULE, "alone, by halves", EVERYONE, "FedALIGN .2", "FedALIGN auto"]
    keys = {KEY_ALPHA: "alpha {:g}", KEY_SHARDS: "{:g} shards a client"}
    keys, lines = {k: w for k, w in keys.items() if k in frame.columns}, list[list[str]]()
    for panel, words in OTHERS.items():
        here = last_rounds(frame.filter(pl.col("panel") == panel))
        for values, some in here.sort(*keys).group_by(*keys, maintain_order=True):
            base = some.filter(pl.col("method") == ALONE)["test_accuracy"].to_numpy().mean()
            settings = zip(keys.values(), values, strict=True)
            name = ", ".join([words, *(w.format(v) for w, v in settings if v is not None)])
            gains = [format_points(points(some, method, ALONE)) for method in methods]
            lines.append([name, str(some["seed"].n_unique()), f"{100 * base:.1f}", *gains])
    return markdown(["", "seeds", "alone", *methods], lines)


VARIANTS = ("assist, pooled", "assist, sketch")


def variant_table(frame: pl.DataFrame) -> str:
    """Return the gain over training alone of variants of the rule, and their bytes over its."""
    methods = (RULE, *VARIANTS, EVERYONE)
    here, lines = last_rounds(frame.filter(pl.col("panel") == "fmnist-variants")), []
    for (value,), some in here.sort(KEY_ALPHA).group_by(KEY_ALPHA, maintain_order=True):
        gains = [format_points(points(some, method, ALONE)) for method in methods]
        up = {m: some.filter(pl.col("method") == m)["bytes_up"].to_numpy().mean() for m in methods}
        ratios = [f"{up[name] / up[RULE]:.2f} x" for name in VARIANTS]
        lines.append([f"{value:g}", *gains, *ratios])
    return markdown(["alpha", *methods, *(f"bytes up, {name}" for name in VARIANTS)], lines)


PERSONAL = (
    ("assist", RULE, "test_accuracy"),
    ("assist, tuned", RULE, "priority_tuned_test_accuracy"),
    ("everyone, tuned", EVERYONE, "priority_tuned_test_accuracy"),
    ("Ditto's own", "Ditto", "own_test_accuracy"),
    ("alone, tuned", ALONE, "priority_tuned_test_accuracy"),
)


def personal_table(frame: pl.DataFrame) -> str:
    """Return the gain of models of each client's own over one model trained alone."""
    here, alpha = last_rounds(frame.filter(pl.col("panel") == "fmnist-personal")), KEY_ALPHA
    lines = []
    for (value,), some in here.sort(alpha).group_by(alpha, maintain_order=True):
        base = some.filter(pl.col("method") == ALONE)["test_accuracy"].to_numpy().mean()
        gains = [format_points(points(some, name, ALONE, of)) for _, name, of in PERSONAL]
        lines.append([f"{value:g}", f"{100 * base:.1f}", *gains])
    return markdown(["alpha", "alone", *(words for words, _, _ in PERSONAL)], lines)


def goal_table(frame: pl.DataFrame) -> str:
    """Return the study's goals with their results: by `stein`, and by `crossfit` where it was run.

    A cell counts as below another by the mean of its paired differences, whatever its interval.
    """
    real = endpoints(frame.filter(pl.col("data.rows").is_not_null()))
    cells = last_rounds(frame.filter(pl.col("panel") == "fmnist-few"))
    more = last_rounds(frame.filter(pl.col("panel").is_in(list(OTHERS))))

    def compare(some: pl.DataFrame, rule: str, *rivals: str) -> dict[str, float]:
        """Return the mean gap of a rule to the best of its rivals in each cell."""
        keys = [key for key in ("panel", KEY_ALPHA, KEY_ROWS, KEY_SHARDS) if key in some.columns]
        gaps = {}
        for names, cell in some.group_by(*keys, maintain_order=True):
            found = [points(cell, rule, rival) for rival in rivals]
            if all(one is not None for one in found):
                gaps[str(names)] = min(one.mean for one in found if one is not None)
        return gaps

    def judge_real(rule: str) -> list[tuple[bool, str]]:
        mine = real.filter(pl.col("method") == rule)
        harmed, least = int(mine["harmed"].sum()), float(mine["share"].to_numpy().min())
        return [(harmed == 0, f"{harmed}"), (least >= 0.9, f"{100 * least:.1f} %")]

    def judge_cells(gaps: dict[str, float], limit: float) -> tuple[bool, str]:
        low = [gap for gap in gaps.values() if gap < limit]
        worst = f", lowest {min(low):+.1f}" if low else ""
        return not low, f"{len(low)} of {len(gaps)}{worst}"

    def judge(rule: str) -> list[tuple[bool, str] | None]:
        kinds = cells.filter(pl.col(KEY_ALPHA) == cells[KEY_ALPHA].min())
        lie = points(last_rounds(frame.filter(pl.col("panel") == "digits-liars")), rule, ALONE)
        other = compare(more, rule, ALONE)
        return [
            *judge_real(rule),
            judge_cells(compare(cells, rule, ALONE, EVERYONE), -0.5),
            judge_cells(compare(kinds, rule, ALONE, EVERYONE), 0.0),
            judge_cells(other, -0.5) if other else None,
            None if lie is None else (lie.mean > -1, f"{lie.mean:+.1f}"),
        ]

    goals = [
        "real federations harmed (over 2 %, paired 95 %): none",
        "share of the hindsight gain, at the worse number of rows: at least 90 %",
        "few-rows cells more than half a point below alone or everyone: none",
        "cells of the smallest alpha that are not above both: none",
        "cells with other models and data more than half a point below alone: none",
        "half of the helpers lie: above one point below alone",
    ]

    def show(result: tuple[bool, str] | None) -> str:
        return "" if result is None else f"{'met' if result[0] else '**missed**'}: {result[1]}"

    both = zip(goals, judge(RULE), judge(CROSSFIT), strict=True)
    lines = [[goal, show(stein), show(crossfit)] for goal, stein, crossfit in both]
    return markdown(["goal", RULE, CROSSFIT], lines)


FEW = [RULE, CROSSFIT, EVERYONE, "FedALIGN .05", "FedALIGN .2", "FedALIGN .8", "FedDA"]


def assist_page(page: str, frame: pl.DataFrame | None) -> str:
    """Return docs/assist.md with its tables; `frame` has the study's results."""
    tables = {"evidence": evidence_table()}
    if frame is not None:
        tables |= {
            "few": cell_table(frame, "fmnist-few", FEW),
            "federations": endpoint_table(frame),
            "liars": liar_table(frame),
            "others": other_table(frame),
            "rows": cell_table(frame, "fmnist-rows", [RULE, EVERYONE, "FedALIGN .2"]),
            "personal": personal_table(frame),
            "variants": variant_table(frame),
            "goals": goal_table(frame),
        }
    return fill(page, tables)


def when_page(page: str, frame: pl.DataFrame | None, border: pl.DataFrame | None) -> str:
    """Return docs/when.md (or README) with those of its tables that it has a place for."""
    tables: dict[str, str] = {}
    if frame is not None:
        few = [RULE, CROSSFIT, "FedALIGN .2", EVERYONE]
        short = frame.filter(pl.col("data.partition.rows") <= 100)
        tables |= {"when": cell_table(frame, "fmnist-few", few), "liars": liar_table(frame)}
        tables["readme"] = cell_table(short, "fmnist-few", few)
        tables["federations"] = endpoint_table(frame)
    if border is not None:
        tables["band"] = cell_table(border, "fmnist-similarity", ["FedALIGN"])
    return fill(page, {name: text for name, text in tables.items() if f"table {name} " in page})
