"""`--jobs`, `--on` and `--share`: where the runs of a command go.

--on processes           worker processes of this machine (the default)
--on dask://HOST:PORT    the scheduler of a Dask cluster; its workers run the units
--on ray                 the Ray cluster that is running, or one of this machine
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from ..base.errors import MusterError, first_line, one_line
from ..base.lazy import load_module
from ..study.tickets import TRIES, Share
from ..study.units import Placement, SharesUnderWay
from .arguments import CommandParser
from .options import add_flags, parse_whole
from .result_folder import NewResults

DASK = r"dask://([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})"
ADDRESSES = "processes, dask://HOST:PORT or ray"
TIMEOUT = "20s"  # time for a scheduler to answer


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
    """Provide the place that a command line names."""
    jobs = parse_whole(arguments.jobs, "--jobs")
    share = None if arguments.share is None else Share.parse(arguments.share)
    if share is not None and arguments.on not in (None, "processes"):
        raise MusterError(f"--share: given together with --on {arguments.on}; give one of them")
    if jobs is not None and arguments.on not in (None, "processes"):
        raise MusterError(f"--jobs: given together with --on {arguments.on}, which has its own")
    with open_executor(arguments.on) as executor:
        yield Placement(jobs, executor, share)


@contextmanager
def open_executor(address: str | None) -> Iterator[Executor | None]:
    """Provide the executor of an address; None for processes of this machine."""
    if address in (None, "processes"):
        yield None
    elif address == "ray":
        ray = load_extra("ray", "ray")
        ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
        try:
            yield RayExecutor(ray)
        finally:
            ray.shutdown()
    elif found := re.fullmatch(DASK, address or ""):
        distributed = load_extra("distributed", "dask")
        where = f"{found[1]}:{found[2]}"
        try:
            client = distributed.Client(f"tcp://{where}", timeout=TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            why = one_line(first_line(error))
            raise MusterError(f"--on: no Dask scheduler answers at {where} ({why})") from None
        with client:
            yield client.get_executor(pure=False)
    else:
        raise MusterError(f"--on: '{address}'; allowed: {ADDRESSES}")


def load_extra(module: str, extra: str) -> ModuleType:
    """Return a module that an extra of the package brings."""
    try:
        return load_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MusterError(
            f"--on: {extra} is not installed; get it with: pip install 'muster-fl[{extra}]'"
        ) from None


class RayExecutor(Executor):
    """Ray as an executor: each call is a task of one core, run again if its worker dies."""

    def __init__(self, ray: ModuleType) -> None:
        self._ray = ray

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Run a function in a worker of the cluster."""
        task = self._ray.remote(max_retries=TRIES - 1, num_cpus=1)(work)
        future: Future[Any] = task.remote(*args, **named).future()
        return future


def find_folder(new: NewResults, resumed: Path | None, where: Placement, console: Console) -> Path:
    """Return the folder of results: the one that is continued, that of a share, or a new one."""
    return resumed or (new.create(console) if where.share is None else new.find_shared())


def describe_shares(share: Share | None, left: SharesUnderWay, again: str) -> str:
    """Return the last line of a share whose other processes are at work."""
    assert share is not None, "only shares leave work to others"
    return f"share {share.number}/{share.of}: {left}; once all have ended: {again}"
