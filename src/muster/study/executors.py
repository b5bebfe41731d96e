"""Executors: processes of this machine, a Dask cluster or Ray, by an address.

processes           worker processes of this machine (the default)
dask://HOST:PORT    the scheduler of a Dask cluster; its workers run the units
ray                 the Ray cluster that is running, or one of this machine
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ..base.errors import MusterError, first_line, one_line
from ..base.lazy import load_module
from .tickets import TRIES

DASK = r"dask://([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})"
ADDRESSES = "processes, dask://HOST:PORT or ray"
TIMEOUT = "20s"  # time for a scheduler to answer


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
