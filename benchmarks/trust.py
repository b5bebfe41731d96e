"""The cost of attacks and faults, for docs/trust.md: every attack by every rule by the share of
liars, and every fault by the place where clients run (`faults`).

    python benchmarks/trust.py            run it all (an hour); results go to docs/trust.parquet,
                                          docs/lies.parquet and docs/faults.parquet
    python benchmarks/trust.py --write    and put the tables into docs/trust.md
    python benchmarks/trust.py --again    the tables from the three files, without running

One core, softmax regression on digits. Runs that are in the files already are not run again, so an
interrupted command goes on; remove a file to begin again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import faults
from muster.base.durable import atomic_file
from muster.papers import lying_study
from muster.papers.trust_study import (
    ATTACKS,
    GONE,
    ONCE,
    RULES,
    SHARES,
    TrustCell,
    TrustStudy,
    format_interval,
    list_cells,
    make_table,
    markdown,
    points,
)
from muster.report.intervals import Interval
from page import replace_block

DOCS = Path(__file__).parents[1] / "docs"
PAGE, ROWS, BROKEN = DOCS / "trust.md", DOCS / "trust.parquet", DOCS / "faults.parquet"
LIES = DOCS / "lies.parquet"
SEEDS = 3  # of the tables
# Seeds that goals are judged on, with helpers and where everyone is a priority client: the rules
# were chosen on seeds 0 to 7, and the memory of similarity on 24 to 43.
FRESH = {False: range(100, 110), True: range(120, 130)}
LYING_SEEDS = range(403, 406)  # the check of priority clients was chosen on seeds 300 to 322
WORST = (0.2, 0.4)
CROSSFIT_SHARES = (0.2, 0.3, 0.4)
NEW = ("drift", "drift, second half", "minority", "edge case", "sleepers")  # also for assist
CROSSFIT = "assist, crossfit"
FIRST = ["fedalign, trust", "maxfl, trust", "assist, trust", "assist", CROSSFIT]
FIRST += ["fedalign", "maxfl", "fedavg on priority", "fedavg"]
EVERYONE = ("maxfl", "maxfl, trust")  # also where there is nobody outside the objective
KEYS = ("everyone", "rule", "attack", "share", "seed")
Key, Row = tuple[Any, ...], dict[str, Any]


Job = tuple[bool, TrustCell]  # True if all clients are priority clients, and the cell to run


def list_goal_jobs() -> list[Job]:
    """Return the runs that goals are judged by, on seeds that nothing was chosen on."""
    inside = [a for a in ATTACKS if not a.startswith("priority")]
    made: list[Job] = []
    for half, whole in zip(FRESH[False], FRESH[True], strict=True):
        for everyone, seed, rules, attacked in (
            (False, half, [r for r in FIRST if r not in ("fedavg", CROSSFIT)], FIRST[:4]),
            (True, whole, EVERYONE, EVERYONE[1:]),
        ):
            made += [(everyone, TrustCell(rule, None, 0.0, seed)) for rule in rules]
            for rule in attacked:
                shares = WORST[:1] if rule.startswith("maxfl") else WORST
                made += [
                    (everyone, TrustCell(rule, attack, share, seed))
                    for attack in (NEW if rule.startswith("assist") else inside)
                    for share in (shares[:1] if attack in ONCE else shares)
                ]
        made += [
            (False, TrustCell(rule, GONE, s, half)) for rule in ("fedalign", "maxfl") for s in WORST
        ]
        made.append((True, TrustCell("maxfl", GONE, WORST[0], whole)))
    return made


def list_crossfit_jobs() -> list[Job]:
    """Return the runs of cross-fitted evidence at the largest shares of liars, which take longest:
    on the first of the fresh seeds."""
    return [
        (False, TrustCell(CROSSFIT, attack, share, seed))
        for share in reversed(CROSSFIT_SHARES)
        for seed in list(FRESH[False])[:SEEDS]
        for attack in NEW
    ]


def list_table_jobs() -> list[Job]:
    """Return the runs of the table of every attack, in the order of the page."""
    made = [
        cell
        for cell in list_cells(RULES, ATTACKS, SHARES, SEEDS)
        # Nobody outside is ever asked there, so no attack from outside changes anything.
        if cell.rule != "fedavg on priority" or (cell.attack or "priority").startswith("priority")
    ]

    def turn(cell: TrustCell) -> tuple[int, int, int]:
        if cell.attack is None:
            return 0, 0, 0
        rule = FIRST.index(cell.rule) if cell.rule in FIRST else len(FIRST)
        share = (0.2, 0.4, 0.1, 0.05).index(cell.share)
        return (1, rule, share) if rule < len(FIRST) else (2, share, rule)

    return [(False, cell) for cell in sorted(made, key=turn)]


def key(job: Job) -> Key:
    everyone, cell = job
    return everyone, cell.rule, cell.attack or "none", cell.share, cell.seed


def save(rows: list[Row], place: Path) -> None:
    with atomic_file(place) as new:
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(new)


def go_on(
    place: Path,
    wanted: Mapping[Key, Any],
    keys: Sequence[str],
    row: Callable[[Any], dict[str, Any]],
) -> None:
    """Run what is not in a file yet; what is there is saved every minute."""
    rows = pl.read_parquet(place).to_dicts() if place.exists() else []
    done = {tuple(one[key] for key in keys) for one in rows}
    saved, left = time.monotonic(), [job for key, job in wanted.items() if key not in done]
    for at, job in enumerate(left):
        rows.append(row(job))
        if time.monotonic() - saved > 60 or at == len(left) - 1:
            save(rows, place)
            saved = time.monotonic()
            print(f"{place.name}: {at + 1} of {len(left)}", flush=True)


def run() -> None:
    study = {everyone: TrustStudy(everyone=everyone) for everyone in (False, True)}

    def run_job(job: Job) -> Row:
        everyone, cell = job
        return {"everyone": everyone, **study[everyone].run_cell(cell)}

    broken = {(c.rule, c.fault, c.place, c.seed): c for c in faults.cases()}
    go_on(ROWS, {key(job): job for job in list_goal_jobs()}, KEYS, run_job)
    lying = {(c.priority, c.rule, c.lie, c.seed): c for c in lying_study.list_cells(LYING_SEEDS)}
    go_on(LIES, lying, lying_study.KEYS, lying_study.run_cell)
    go_on(BROKEN, broken, faults.KEYS, faults.row)
    go_on(ROWS, {key(job): job for job in list_crossfit_jobs()}, KEYS, run_job)
    go_on(ROWS, {key(job): job for job in list_table_jobs()}, KEYS, run_job)


def select(
    frame: pl.DataFrame, rule: str, attack: str = "none", share: float = 0.0
) -> pl.DataFrame:
    here = (pl.col("share") - share).abs() < 1e-9
    return frame.filter(pl.col("rule") == rule, pl.col("attack") == attack, here)


def against(a: pl.DataFrame, b: pl.DataFrame) -> Interval | None:
    """Points that a loses to b, seed by seed; None where nothing was run."""
    both = a.select("seed", mine="accuracy").join(b.select("seed", "accuracy"), on="seed")
    return points(both["accuracy"] - both["mine"]) if len(both) else None


def finished_seeds(frame: pl.DataFrame, everyone: bool) -> list[int]:
    """The fresh seeds of which every run is there."""
    done = set(frame.select(KEYS).rows())
    jobs = [job for job in list_goal_jobs() if job[0] == everyone]
    return [s for s in FRESH[everyone] if all(key(job) in done for job in jobs if job[1].seed == s)]


def goals(frame: pl.DataFrame) -> str:
    """Return the table of goals: the aim, the result, and the loss with the liars gone."""
    half, whole = (
        frame.filter(
            pl.col("everyone") == everyone, pl.col("seed").is_in(finished_seeds(frame, everyone))
        )
        for everyone in (False, True)
    )
    lines = [
        f"{half['seed'].n_unique()} seeds, and {whole['seed'].n_unique()} where everyone is a "
        "priority client:\n",
        "| what | wanted | points lost | | with the liars gone | by the liars |",
        "|---|---|---|---|---|---|",
    ]

    def goal(
        what: str,
        most: float,
        mine: pl.DataFrame,
        plain: pl.DataFrame,
        gone: pl.DataFrame | None = None,
    ) -> None:
        lost = against(mine, plain)
        if lost is None:
            return
        outcome = "met" if lost.mean < most else "missed"
        control = None if gone is None else against(gone, plain)
        theirs = None if gone is None else against(mine, gone)
        lines.append(
            f"| {what} | under {most:g} | {format_interval(lost)} | {outcome} | "
            f"{format_interval(control)} | "
            f"{format_interval(theirs)} |"
        )

    for some, where in ((half, ""), (whole, ", everyone priority")):
        for rule in ("fedalign", "maxfl"):
            goal(
                f"{rule}, nobody lies{where}",
                0.5,
                select(some, f"{rule}, trust"),
                select(some, rule),
            )
    better = max(
        (select(half, rule) for rule in ("fedalign", "fedavg on priority")),
        key=lambda part: points(part["accuracy"]).mean if len(part) else -1.0,
    )
    outside = [a for a in ATTACKS if not a.startswith("priority") and a not in (*ONCE, GONE)]
    for attack in outside:
        for share in WORST:
            mine = select(half, "fedalign, trust", attack, share)
            gone = select(half, "fedalign, trust", GONE, share)
            goal(f"fedalign, {attack}, {100 * share:g} %", 1, mine, better, gone)
    alone = select(half, "fedavg on priority")
    for rule in ("assist", "assist, trust", CROSSFIT):
        for attack in NEW:
            for share in CROSSFIT_SHARES if rule == CROSSFIT else WORST:
                mine = select(half, rule, attack, share)
                goal(f"{rule}, {attack}, {100 * share:g} %, to alone", 2, mine, alone)
    for some, where in ((half, "liars outside"), (whole, "everyone priority")):
        gone = select(some, "maxfl, trust", GONE, WORST[0])
        for attack in outside:
            mine = select(some, "maxfl, trust", attack, WORST[0])
            goal(f"maxfl, {attack}, 20 %, {where}", 3, mine, select(some, "maxfl"), gone)
    for rule in ("fedalign", "maxfl"):
        trusted = select(half, f"{rule}, trust")
        mine = select(half, f"{rule}, trust", ONCE[0], WORST[0])
        goal(f"{rule}, {ONCE[0]}", 1, mine, trusted)
    return "\n".join(lines)


def audit(frame: pl.DataFrame) -> str:
    """Return the table of the audit's precision, recall and trials."""
    lines = [
        "| rule | attack | liars refused (recall) | honest refused | precision | trials a round |",
        "|---|---|---|---|---|---|",
    ]
    # Of the clients that are audited, eight lie at 20 %: of twenty outside, or of all forty.
    for rule, everyone, others in (
        ("fedalign, trust", False, 12),
        ("maxfl, trust", False, 12),
        ("maxfl, trust", True, 32),
    ):
        some = frame.filter(pl.col("everyone") == everyone)
        name = f"{rule}, everyone priority" if everyone else rule
        clean = select(some, rule)
        if not len(clean):
            continue
        alone = 1 - clean["honest_kept"].mean()
        lines.append(f"| {name} | nobody lies | | {alone:.2f} | | {clean['trials'].mean():.0f} |")
        for attack in (a for a in ATTACKS if a != GONE):
            mine = some.filter(pl.col("rule") == rule, pl.col("attack") == attack)
            mine = mine.filter((pl.col("share") - 0.2).abs() < 1e-9) if attack not in ONCE else mine
            if not len(mine):
                continue
            liars, honest = 1 - mine["liars_kept"].mean(), 1 - mine["honest_kept"].mean()
            caught = 8 * liars + others * honest
            precision = 8 * liars / caught if caught else np.nan
            shown = "" if attack in ONCE or attack.startswith("priority") else f"{precision:.2f}"
            lines.append(
                f"| {name} | {attack} | {liars:.2f} | {honest:.2f} | {shown} | "
                f"{mine['trials'].mean():.0f} |"
            )
    return "\n".join(lines)


def backdoors(frame: pl.DataFrame) -> str:
    """Return the table of how often the mark changes an answer."""
    half = frame.filter(~pl.col("everyone"))
    lines = [
        "| rule | nobody lies | attack | 5 % | 10 % | 20 % | 40 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for rule in RULES:
        for attack in ("backdoor", "backdoor x 20", "edge case"):
            found = [select(half, rule, attack, share)["fooled"].mean() for share in SHARES]
            if any(value is not None for value in found):
                cells = ["" if v is None else f"{100 * v:.0f} %" for v in found]
                # Without liars only the mark's rate was measured.
                rate = None if attack == "edge case" else select(half, rule)["fooled"].mean()
                alone = "" if rate is None else f"{100 * rate:.0f} %"
                lines.append(f"| {rule} | {alone} | {attack} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Every table of the page, from the three files."""
    frame = pl.read_parquet(ROWS)
    half = frame.filter(~pl.col("everyone"), pl.col("seed") < SEEDS)
    everyone = frame.filter("everyone", pl.col("seed").is_in(finished_seeds(frame, True)))
    return {
        "goals": goals(frame),
        "lies": lying_study.markdown(pl.read_parquet(LIES).to_dicts()),
        "audit": audit(frame),
        "backdoors": backdoors(frame),
        "everyone": markdown(make_table(everyone.to_dicts())) if len(everyone) else "",
        "attacks": markdown(make_table(half.to_dicts())),
        "faults": faults.table(pl.read_parquet(BROKEN)),
    }


def page(text: str) -> str:
    """Return the page with its tables made from the files."""
    for name, table in tables().items():
        text = replace_block(text, name, table)
    return text


if __name__ == "__main__":
    if "--again" not in sys.argv:
        run()
    if {"--again", "--write"} & set(sys.argv):
        with atomic_file(PAGE) as new:
            new.write_text(page(PAGE.read_text()))
