"""The time of a run by phase: data, appraise, train, aggregate, measure, store, and the rest.

A phase inside another one counts for itself alone, so the seconds of all phases add up to those of
the whole. Without a watch nothing is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from .clients import Clients
from .contributors import Contributors

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Asked = TypeVar("Asked", Clients, Contributors)

PHASES = {
    "data": "reading the data and building the model",
    "appraise": "clients measure the offered model",
    "train": "clients join, train and reply",
    "aggregate": "the server invites, guards, admits, weighs and steps",
    "measure": "everyone's evaluation of the model, and the measures",
    "store": "ledger, checkpoints, log and results",
    "rest": "all else: libraries, progress, figures, tables",
}
ASKED = {  # what clients are asked, by the phase it belongs to
    "decide_to_stay": "appraise",
    "report": "appraise",
    "appraise": "appraise",
    "try_models": "appraise",
    "respond": "train",
    "contribute": "train",
    "contribute_securely": "train",
    "fetch": "train",
    "evaluate": "measure",
}


class PhaseTimes:
    """Seconds of each phase since it was made; what no phase covers is the rest."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._now, self._since = "rest", clock()

    def _turn(self, phase: str) -> str:
        """Turn to another phase, and return the one before."""
        before, at = self._now, self._clock()
        self._seconds[before] += at - self._since
        self._now, self._since = phase, at
        return before

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what runs inside as this phase."""
        before = self._turn(name)
        try:
            yield
        finally:
            self._turn(before)

    def time(self, name: str, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Return a function whose calls count as this phase."""

        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with self.phase(name):
                return function(*args, **kwargs)

        return call

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each phase so far."""
        self._turn(self._now)
        return dict(self._seconds)


class TimedClients:
    """Clients whose answers are timed."""

    def __init__(self, clients: Clients | Contributors, times: PhaseTimes) -> None:
        self._clients, self._times = clients, times

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._clients, name)
        return self._times.time(ASKED[name], value) if name in ASKED else value


def time_clients(clients: Asked, times: PhaseTimes | None) -> Asked:
    """Return the clients, timed where there is something to time them by."""
    return clients if times is None else cast(Asked, TimedClients(clients, times))
