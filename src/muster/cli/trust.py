"""`muster trust`: the accuracy lost to every attack, by rule and by share of attackers."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from ..base.errors import MusterError
from ..papers import trust_study
from .arguments import CommandParser
from .console import print_line
from .options import add_flags


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    add_flags(
        parser,
        ("--rules", "NAME;...", "some of the rules of docs/trust.md, such as 'fedalign, trust'"),
        ("--attacks", "NAME;...", "some of the attacks, such as 'sign flip;ALIE'"),
        ("--shares", "SHARE;...", "fractions of clients that attack (0.05;0.1;0.2;0.4)"),
        ("--seeds", "N", "number of seeds (3)"),
        ("--rounds", "N", "number of rounds (60)"),
    )


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    rules = split_names(arguments.rules) or list(trust_study.RULES)
    attacks = split_names(arguments.attacks) or list(trust_study.ATTACKS)
    try:
        shares = [float(share) for share in split_names(arguments.shares)] or list(
            trust_study.SHARES
        )
        seeds = int(arguments.seeds or 3)
        rounds = int(arguments.rounds or trust_study.ROUNDS)
    except ValueError as error:
        raise MusterError(f"trust: {error}; shares are numbers, seeds and rounds whole") from None
    for what, ok, given, allowed in (
        ("shares", all(0 < s < 1 for s in shares), shares, "above 0, below 1"),
        ("seeds", seeds > 0, seeds, "whole numbers from 1"),
        ("rounds", rounds > 0, rounds, "whole numbers from 1"),
    ):
        if not ok:
            raise MusterError(f"{what}: {given}; allowed: {allowed}")
    todo = trust_study.list_cells(rules, attacks, shares, seeds)
    study = trust_study.TrustStudy(rounds)
    done = [
        study.run_cell(cell)
        for cell in track(todo, f"{len(todo)} runs", console=console, transient=True)
    ]
    frame = trust_study.make_table(done)
    for attack in attacks:
        table = Table(title=f"{attack}: points of accuracy lost, ± 95 %, {seeds} seeds")
        here = shares[:1] if attack in trust_study.ONCE else shares
        table.add_column("rule")
        for share in here:
            once = attack in trust_study.ONCE
            table.add_column("once" if once else f"{100 * share:g} % lie", justify="right")
        for rule in rules:
            lost = [
                trust_study.format_interval(trust_study.find_loss(frame, rule, attack, s))
                for s in here
            ]
            table.add_row(Text(rule), *lost)
        console.print(table)
    if seeds > 1:
        print_line(console, trust_study.variation().interval_note(seeds))
    print_line(
        console, "priority clients' held-out accuracy on digits; docs/trust.md describes the study"
    )
    return 0


def split_names(text: str | None) -> list[str]:
    """Return names separated by semicolons: a name may contain commas."""
    return [part.strip() for part in (text or "").split(";") if part.strip()]
