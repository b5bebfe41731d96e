"""`--jobs`, `--on` and `--share`: where the runs of a command go."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..base import durable
from ..base.errors import MusterError
from ..config.settings import Settings
from ..study.executors import ADDRESSES, open_executor
from ..study.tickets import Share
from ..study.units import Placement, SharesUnderWay
from .arguments import CommandParser
from .options import add_flags, parse_whole


def add_placement(parser: CommandParser) -> None:
    """Add the flags."""
    add_flags(
        parser,
        ("--jobs", "N", "runs at once, each on one core; default: as many as cores"),
        ("--on", "WHERE", f"where runs go: {ADDRESSES}"),
        (
            "--share",
            "i/n",
            "be process i of n that share one folder and its runs, as in a Slurm array",
        ),
    )


@contextmanager
def open_placement(arguments: argparse.Namespace) -> Iterator[Placement]:
    """Provide the place that a command line names. A share that is asked to end (SIGTERM, as
    Slurm sends it) is interrupted, so that others take its runs at once."""
    jobs = parse_whole(arguments.jobs, "--jobs")
    share = None if arguments.share is None else Share.parse(arguments.share)
    if share is not None and arguments.on not in (None, "processes"):
        raise MusterError(f"--share: given together with --on {arguments.on}; give one of them")
    if jobs is not None and arguments.on not in (None, "processes"):
        raise MusterError(f"--jobs: given together with --on {arguments.on}, which has its own")
    before = signal.getsignal(signal.SIGTERM)
    if share is not None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with open_executor(arguments.on) as executor:
            yield Placement(jobs, executor, share)
    finally:
        signal.signal(signal.SIGTERM, before)


def find_folder(settings: Settings, resumed: Path | None, where: Placement) -> Path:
    """Return the folder of results: the one that is continued, that of a share, or a new one."""
    folder = Path(settings.out) / settings.name
    return resumed or (durable.new_folder(folder) if where.share is None else folder)


def describe_shares(share: Share | None, left: SharesUnderWay, again: str) -> str:
    """Return the last line of a share whose other processes are at work."""
    assert share is not None, "only shares leave work to others"
    return f"share {share.number}/{share.of}: {left}; once all have ended: {again}"
