"""The cost of attacks: every attack by every rule by the share of clients that lie, seed by seed.

The federation is digits, two classes a client, half of the clients priority; attackers are drawn
outside the priority group unless the attack says otherwise, and report the loss that wins. Measured
is the priority clients' held-out accuracy, next to that of the same rule and seed without liars;
for a backdoor also how often the mark (or turning a row over) changes an answer. In a control the
liars are gone: its loss is that of their data's help, not of their attack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ..base.arrays import Int64
from ..base.errors import unknown_name
from ..base.lazy import pl, torch
from ..data.sets.scikit_learn import digits
from ..federation import Federation, Variation
from ..local import Local
from ..methods import Method, assist, fedalign, fedavg, fedavg_priority, maxfl
from ..models.specs import Softmax
from ..parts.defences.mixing import NearestNeighbours, NormBound
from ..parts.defences.robust import CentredClipping, GeometricMedian, Krum, Median, TrimmedMean
from ..parts.step import Adaptive, Step
from ..parts.threats.attacks import (
    Attack,
    Backdoor,
    EdgeCase,
    InflateAndNoise,
    LabelFlip,
    Liars,
    Minority,
    ScaleUpdate,
    draw_attackers,
)
from ..parts.threats.collusion import ALIE, IPM, Drift, Mimic
from ..report.intervals import Interval
from ..results.run import Run
from ..run.round import EARLY
from ..run.simulate import simulate
from ..run.solo import with_solo

CLIENTS, PRIORITY, ROUNDS = 40, 20, 60
TURN = 20  # the round from which sleepers lie
SHARES = (0.05, 0.1, 0.2, 0.4)
LOCAL = Local(steps=5, batch_size=32, lr=0.1)
MARK = Backdoor(0.1, target=0, pixels=4)
EDGE = EdgeCase(0.1, target=0, rows=0.1)


def fedalign_with(step: Step) -> Method:
    """Return FedALIGN with another step."""
    return replace(fedalign(0.5), step=step)


RULES: dict[str, Method] = {
    "fedavg": fedavg(),
    "fedavg on priority": fedavg_priority(),
    "fedalign": fedalign(0.5),
    "fedalign, norm bound": fedalign_with(NormBound()),
    "fedalign, median": fedalign_with(Median()),
    "fedalign, trimmed mean": fedalign_with(TrimmedMean(0.2)),
    "fedalign, geometric median": fedalign_with(GeometricMedian()),
    "fedalign, centred clipping": fedalign_with(CentredClipping()),
    "fedalign, multi-Krum": fedalign_with(Krum(0.2, m=20)),
    "fedalign, mixing + trimmed": fedalign_with(NearestNeighbours(0.2, TrimmedMean(0.2))),
    "fedalign, trust": fedalign(0.5, trust=True),
    "maxfl": maxfl(),
    "maxfl, median": replace(maxfl(), step=Median(Adaptive())),
    "maxfl, trust": maxfl(trust=True),
    "assist": assist(),
    "assist, trust": assist(trust=True),
    "assist, crossfit": assist("crossfit"),
}
ATTACKS: dict[str, Callable[[float], Attack]] = {
    "sign flip": lambda f: Liars(f, then=ScaleUpdate(f, -1.0)),
    "-10 x": lambda f: Liars(f, then=ScaleUpdate(f, -10.0)),
    "noise": lambda f: Liars(f, then=InflateAndNoise(f)),
    "ALIE": lambda f: Liars(f, then=ALIE(f)),
    "IPM": lambda f: Liars(f, then=IPM(f)),
    "Mimic": lambda f: Liars(f, then=Mimic(f)),
    "label flip": lambda f: Liars(f, then=LabelFlip(f)),
    "backdoor": lambda f: Liars(f, then=replace(MARK, fraction=f)),
    "backdoor x 20": lambda f: Liars(f, then=replace(MARK, fraction=f, factor=20.0)),
    "edge case": lambda f: Liars(f, then=replace(EDGE, fraction=f)),
    "drift": lambda f: Liars(f, then=Drift(f)),
    "minority": lambda f: Liars(f, then=Minority(f, rows=0.2)),
    "drift, second half": lambda f: Liars(f, then=Drift(f), from_round=0.5),
    "sleepers": lambda f: Liars(f, then=ScaleUpdate(f, -1.0), from_round=TURN),
    "one reply, 1e6 x": lambda f: Liars(
        1 / CLIENTS, then=ScaleUpdate(f, 1e6), from_round=TURN, every=ROUNDS
    ),
    "priority, sign flip": lambda f: Liars(f / 2, "priority", ScaleUpdate(f, -1.0)),
    "priority, one, -3 x": lambda f: Liars(1 / CLIENTS, "priority", ScaleUpdate(f, -3.0)),
    "liars gone": Liars,
}
ONCE = ("one reply, 1e6 x", "priority, one, -3 x")  # the same whatever the share
GONE = "liars gone"  # no attack: those who would lie take no part


@dataclass(frozen=True)
class TrustCell:
    """One run: a rule, an attack (None: nobody lies), the share of liars, a seed."""

    rule: str
    attack: str | None
    share: float
    seed: int


def list_cells(
    rules: Iterable[str], attacks: Iterable[str], shares: Sequence[float], seeds: int
) -> list[TrustCell]:
    """Return every run of a table, those without liars first."""
    rules, attacks = list(rules), list(attacks)
    for what, given, known in (("rule", rules, RULES), ("attack", attacks, ATTACKS)):
        for name in given:
            if name not in known:
                raise unknown_name(what, name, known)
    return [
        TrustCell(rule, attack, share, seed)
        for rule in rules
        for attack in (None, *attacks)
        for share in ([0.0] if attack is None else shares[:1] if attack in ONCE else shares)
        for seed in range(seeds)
    ]


class TrustStudy:
    """The runs of a table, on one federation for each seed, built once."""

    def __init__(self, rounds: int = ROUNDS, everyone: bool = False) -> None:
        self.rounds, self.everyone = rounds, everyone
        self.federations: dict[int, Federation] = {}

    def fed(self, seed: int) -> Federation:
        """Return digits, with the loss of each client's solo model as its requirement."""
        if seed not in self.federations:
            plain = digits(CLIENTS, "all" if self.everyone else PRIORITY, seed=seed)
            self.federations[seed] = with_solo(
                plain, Softmax(), 1, Local(steps=100, batch_size=32, lr=0.1), seed=seed
            )
        return self.federations[seed]

    def run_cell(self, cell: TrustCell) -> dict[str, Any]:
        """Run one cell and return its row."""
        fed = self.fed(cell.seed)
        attack = None if cell.attack is None else ATTACKS[cell.attack](cell.share)
        if self.everyone and isinstance(attack, Liars):
            attack = replace(attack, among="anyone")
        taking_part = fed
        if cell.attack == GONE:
            taking_part, attack = without(fed, draw_attackers(fed, attack, cell.seed)), None
        run = simulate(
            taking_part,
            RULES[cell.rule],
            Softmax(),
            self.rounds,
            LOCAL,
            cell.seed,
            attack=attack,
            evaluate_every=0,
        )
        honest, liars = admitted_shares(run)
        return {
            "rule": cell.rule,
            "attack": cell.attack or "none",
            "share": cell.share,
            "seed": cell.seed,
            "accuracy": accuracy(run, fed),
            "fooled": backdoor_rate(run, fed, EDGE if cell.attack == "edge case" else MARK),
            "honest_kept": honest,
            "liars_kept": liars,
            "trials": float(run.rounds["trials"].mean()) if "trials" in run.rounds.columns else 0.0,  # type: ignore[arg-type]
        }


def without(fed: Federation, some: Int64) -> Federation:
    """Return the federation with some clients taking no part; their data stays in it."""
    out = np.isin(np.arange(fed.n), some)
    return replace(
        fed, unseen=fed.unseen | out, priority=fed.priority & ~out, importance=fed.importance * ~out
    )


def accuracy(run: Run, fed: Federation) -> float:
    """Return held-out accuracy on the priority clients of a federation, whoever took part in the
    run."""
    assert fed.test is not None
    model, right = run.model(), np.zeros(fed.n)
    with torch.no_grad():
        for k in np.flatnonzero(fed.priority):
            x, y = fed.test.client(int(k))
            right[k] = (model(x.to(torch.float32)).argmax(-1) == y).double().mean()
    return float(fed.objective @ right)


def admitted_shares(run: Run) -> tuple[float, float]:
    """Return the shares of replies that were admitted, of honest clients (those outside the
    priority group, where there are any) and of liars; nobody else is to be in warm-up."""
    who = run.final.select("client", "attacker")
    rows = run.clients.join(who, on="client").filter("joined", pl.col("reason") != EARLY)
    honest, lied = rows.filter(~pl.col("attacker")), rows.filter("attacker")
    if not rows["priority"].all():
        honest = honest.filter(~pl.col("priority"))
    mine, theirs = (
        float(part["admitted"].mean() or 0) if len(part) else float("nan")  # type: ignore[arg-type]
        for part in (honest, lied)
    )
    return mine, theirs


def backdoor_rate(run: Run, fed: Federation, mark: Backdoor) -> float:
    """Return the share of held-out rows of other classes that a mark turns to its class."""
    assert fed.test is not None
    rows = fed.test.y != mark.target
    x = mark.mark(fed.test.x[rows], fed.train.x.max())
    with torch.no_grad():
        answers = run.model()(x.to(torch.float32)).argmax(-1)
    return float((answers == mark.target).double().mean())


def make_table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the rows as a frame, with the accuracy each lost to the same seed without liars."""
    frame = pl.DataFrame(list(rows))
    alone = frame.filter(pl.col("attack") == "none").select(
        "rule", "seed", honest="accuracy", fooled_before="fooled"
    )
    joined = frame.join(alone, on=["rule", "seed"])
    return joined.with_columns(lost=pl.col("honest") - pl.col("accuracy"))


@cache
def variation() -> Variation:
    """Return the variation between seeds: each splits digits again."""
    return digits(CLIENTS).variation


def points(shares: pl.Series) -> Interval:
    """Return the mean and interval of shares of held-out rows in points, one for each seed; the
    interval is wide enough for the rows of all clients."""
    values = 100 * shares.to_numpy().astype(np.float64)
    return Interval.of(values, ratio=variation().ratio(held_out=True))


def find_loss(frame: pl.DataFrame, rule: str, attack: str, share: float) -> Interval | None:
    """Return the points of accuracy lost, mean and interval over seeds."""
    mine = frame.filter(
        pl.col("rule") == rule, pl.col("attack") == attack, (pl.col("share") - share).abs() < 1e-9
    )
    return points(mine["lost"]) if len(mine) else None


def format_interval(value: Interval | None, best: bool = False) -> str:
    """Format an interval for a table's cell."""
    if value is None:
        return ""
    text = f"{value.mean:.1f}" + ("" if np.isnan(value.half) else f" ± {value.half:.1f}")
    return f"**{text}**" if best else text


def markdown(frame: pl.DataFrame) -> str:
    """Return one table for each attack: rules down, shares of liars across."""
    lines: list[str] = []
    shares = sorted(set(frame["share"].to_list()) - {0.0})
    honest = {
        str(rule): points(mine["accuracy"])
        for (rule,), mine in frame.filter(pl.col("attack") == "none").group_by(
            "rule", maintain_order=True
        )
    }
    attacks = [a for a in dict.fromkeys(frame["attack"].to_list()) if a != "none"]
    for attack in attacks:
        here = shares[:1] if attack in ONCE else shares
        heads = ["once"] if attack in ONCE else [f"{100 * s:g} %" for s in here]
        lines += ["", f"### {attack}", "", f"| rule | nobody lies | {' | '.join(heads)} |"]
        lines.append("|---" * (len(here) + 2) + "|")
        for rule, alone in honest.items():
            cells = [format_interval(find_loss(frame, rule, attack, s)) for s in here]
            lines.append(f"| {rule} | {format_interval(alone)} | {' | '.join(cells)} |")
    return "\n".join(lines).strip()
