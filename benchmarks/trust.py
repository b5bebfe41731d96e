"""What attacks cost, for docs/trust.md: every attack by every rule by the share of liars.

    python benchmarks/trust.py            run it all; results go to docs/trust.parquet (10 minutes)
    python benchmarks/trust.py --write    and put the tables into docs/trust.md
    python benchmarks/trust.py --again    the tables from docs/trust.parquet, without running

One core, softmax regression on digits. Runs that are in the parquet already are not run again, so
an interrupted command goes on; remove the file to begin again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from muster.durable import replacing
from muster.report.intervals import Interval
from muster.study.attacked import (
    ATTACKS,
    ONCE,
    RULES,
    SHARES,
    Cell,
    Grounds,
    cells,
    markdown,
    table_of,
    written,
)

DOCS = Path(__file__).parents[1] / "docs"
PAGE, ROWS = DOCS / "trust.md", DOCS / "trust.parquet"
SEEDS, MORE_SEEDS = 3, 10
FIRST = ["fedalign, trust", "maxfl, trust", "fedalign", "maxfl", "fedavg on priority", "fedavg"]
EVERYONE = ("maxfl", "maxfl, trust")  # also where there is nobody outside the objective
KEYS = ["everyone", "rule", "attack", "share", "seed"]


def todo() -> list[tuple[bool, Cell]]:
    """Every run: whether all clients are priority clients, and what is run. What the page says
    first is run first."""
    made = [
        cell
        for cell in cells(RULES, ATTACKS, SHARES, SEEDS)
        # Nobody outside is ever asked there, so no attack from outside changes anything.
        if cell.rule != "fedavg on priority" or (cell.attack or "priority").startswith("priority")
    ]
    # Without liars on more seeds: what trust costs honest clients is a small number.
    more = [Cell(rule, None, 0.0, seed) for rule in FIRST for seed in range(SEEDS, MORE_SEEDS)]
    made += [cell for cell in more if cell not in made]
    inside = [a for a in ATTACKS if not a.startswith("priority")]
    other = cells(EVERYONE, inside, (0.2,), SEEDS)

    def turn(cell: Cell) -> tuple[int, int, int]:
        if cell.attack is None:
            return 0, 0, 0
        rule = FIRST.index(cell.rule) if cell.rule in FIRST else len(FIRST)
        share = (0.2, 0.4, 0.1, 0.05).index(cell.share)
        return (1, rule, share) if rule < 2 else (2, share, rule)

    made.sort(key=turn)
    last = next(i for i, cell in enumerate(made) if cell.attack and cell.rule not in FIRST[:2])
    alone, rest = made[:last], made[last:]
    return [
        *((False, cell) for cell in alone),
        *((True, cell) for cell in other),
        *((False, cell) for cell in rest),
    ]


def save(rows: list[dict[str, object]]) -> None:
    with replacing(ROWS) as place:
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(place)


def run() -> None:
    rows = pl.read_parquet(ROWS).to_dicts() if ROWS.exists() else []
    done = {tuple(row[key] for key in KEYS) for row in rows}
    grounds = {everyone: Grounds(everyone=everyone) for everyone in (False, True)}
    began, wanted = time.monotonic(), todo()
    for at, (everyone, cell) in enumerate(wanted):
        if (everyone, cell.rule, cell.attack or "none", cell.share, cell.seed) in done:
            continue
        rows.append({"everyone": everyone, **grounds[everyone].row(cell)})
        if at % 100 == 99:
            save(rows)
            print(f"{at + 1} of {len(wanted)}, {time.monotonic() - began:.0f} s", flush=True)
    save(rows)


def points(frame: pl.DataFrame) -> Interval:
    return Interval.of(100 * frame["accuracy"].to_numpy())


def of(frame: pl.DataFrame, rule: str, attack: str = "none", share: float = 0.0) -> pl.DataFrame:
    here = (pl.col("share") - share).abs() < 1e-9
    return frame.filter(pl.col("rule") == rule, pl.col("attack") == attack, here)


def against(a: pl.DataFrame, b: pl.DataFrame) -> Interval | None:
    """Points that a loses to b, seed by seed; None where nothing was run."""
    both = a.select("seed", mine="accuracy").join(b.select("seed", "accuracy"), on="seed")
    return Interval.of(100 * (both["accuracy"] - both["mine"]).to_numpy()) if len(both) else None


def goals(frame: pl.DataFrame) -> str:
    """What was wanted, and what came of it."""
    half = frame.filter(~pl.col("everyone"))
    lines = ["| what | wanted | points lost | |", "|---|---|---|---|"]

    def goal(what: str, most: float, lost: Interval | None, where: str = "") -> None:
        if lost is not None:
            came = "met" if lost.mean < most else "missed"
            lines.append(f"| {what} | under {most:g} | {written(lost)}{where} | {came} |")

    for rule in ("fedalign", "maxfl"):
        plain, trust = of(half, rule), of(half, f"{rule}, trust")
        goal(f"{rule}, nobody lies, {len(trust)} seeds", 0.5, against(trust, plain))
    few = half.filter(pl.col("seed") < SEEDS)
    better = max(
        (of(few, rule) for rule in ("fedalign", "fedavg on priority")),
        key=lambda part: points(part).mean,
    )
    outside = [a for a in ATTACKS if not a.startswith("priority") and a != ONCE]
    for attack in outside:
        found = {s: against(of(half, "fedalign, trust", attack, s), better) for s in SHARES}
        gaps = {s: gap for s, gap in found.items() if gap is not None}
        if gaps:
            worst = max(gaps, key=lambda s: gaps[s].mean)
            at = f" (at {100 * worst:g} %)"
            goal(f"fedalign, {attack}, up to 40 %", 1, gaps[worst], at)
    for everyone in (False, True):
        some = frame.filter(pl.col("everyone") == everyone)
        plain = of(some, "maxfl").filter(pl.col("seed") < SEEDS)
        where = "everyone priority" if everyone else "liars outside"
        for attack in outside:
            gap = against(of(some, "maxfl, trust", attack, 0.2), plain)
            goal(f"maxfl, {attack}, 20 %, {where}", 3, gap)
    for rule in ("fedalign", "maxfl"):
        gap = against(of(half, f"{rule}, trust", ONCE, SHARES[0]), of(half, f"{rule}, trust"))
        goal(f"{rule}, {ONCE}", 1, gap)
    return "\n".join(lines)


def audit(frame: pl.DataFrame) -> str:
    """Precision and recall of the audit, and what it asks for."""
    lines = [
        "| rule | attack | liars refused (recall) | honest refused | precision | trials a round |",
        "|---|---|---|---|---|---|",
    ]
    half = frame.filter(~pl.col("everyone"))
    for rule in ("fedalign, trust", "maxfl, trust"):
        alone = 1 - of(half, rule)["honest_kept"].mean()
        lines.append(f"| {rule} | nobody lies | | {alone:.2f} | | |")
        for attack in ATTACKS:
            mine = half.filter(pl.col("rule") == rule, pl.col("attack") == attack)
            mine = mine.filter((pl.col("share") - 0.2).abs() < 1e-9) if attack != ONCE else mine
            if not len(mine):
                continue
            liars, honest = 1 - mine["liars_kept"].mean(), 1 - mine["honest_kept"].mean()
            # Eight liars and twelve honest clients outside the priority group, asked alike.
            caught = 8 * liars + 12 * honest
            precision = 8 * liars / caught if caught else np.nan
            shown = "" if attack == ONCE or attack.startswith("priority") else f"{precision:.2f}"
            lines.append(
                f"| {rule} | {attack} | {liars:.2f} | {honest:.2f} | {shown} | "
                f"{mine['trials'].mean():.0f} |"
            )
    return "\n".join(lines)


def backdoors(frame: pl.DataFrame) -> str:
    """How often the mark turns an answer."""
    half = frame.filter(~pl.col("everyone"))
    lines = [
        "| rule | nobody lies | attack | 5 % | 10 % | 20 % | 40 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for rule in RULES:
        for attack in ("backdoor", "backdoor x 20"):
            found = [of(half, rule, attack, share)["fooled"].mean() for share in SHARES]
            if any(value is not None for value in found):
                cells = ["" if v is None else f"{100 * v:.0f} %" for v in found]
                alone = 100 * of(half, rule)["fooled"].mean()
                lines.append(f"| {rule} | {alone:.0f} % | {attack} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(frame: pl.DataFrame) -> None:
    half = frame.filter(~pl.col("everyone"), pl.col("seed") < SEEDS)
    everyone = frame.filter("everyone")
    text = PAGE.read_text()
    for name, table in (
        ("goals", goals(frame)),
        ("audit", audit(frame)),
        ("backdoors", backdoors(frame)),
        ("everyone", markdown(table_of(everyone.to_dicts())) if len(everyone) else ""),
        ("attacks", markdown(table_of(half.to_dicts()))),
    ):
        put = f"<!-- {name} -->\n{table}\n<!-- end {name} -->"
        start, _, rest = text.partition(f"<!-- {name} -->")
        _, end, after = rest.partition(f"<!-- end {name} -->")
        assert end, name
        text = start + put + after
    with replacing(PAGE) as place:
        place.write_text(text)


if __name__ == "__main__":
    if "--again" not in sys.argv:
        run()
    if {"--again", "--write"} & set(sys.argv):
        write(pl.read_parquet(ROWS))
