"""Compute: the engine, device, dtype and cores that run the clients' work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict

from ..base.checks import check_whole
from ..base.errors import MusterError, unknown_name
from ..base.lazy import torch
from ..base.params import DTYPES, get_dtype
from .threads import cores

ENGINES = ("auto", "stacked", "loop")
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Compute:
    """Engine, device, dtype and cores for the clients' work.

    On one engine, device and dtype the same seed gives the same bits for any number of cores.

    Attributes:
        engine: auto: stacked when every layer of the model has a stacked form, else loop
        device: cpu, cuda, or one of several as cuda:1
        dtype: float32 or float64
        processes: cores to use; None: those this process may use
    """

    engine: str = "auto"
    device: str = "cpu"
    dtype: str = "float32"
    processes: int | None = None

    def __post_init__(self) -> None:
        for what, given, known in (
            ("engine", self.engine, ENGINES),
            ("dtype", self.dtype, DTYPES),
            ("device", str(self.device).partition(":")[0], DEVICES),
        ):
            if given not in known:
                raise unknown_name(what, str(getattr(self, what)), known)
        if not re.fullmatch(r"\w+(:(0|[1-9]\d?))?", str(self.device)):
            raise MusterError(f"device: '{self.device}'; allowed: cpu, cuda, cuda:0, ...")
        if self.processes is not None:
            check_whole("processes", self.processes)

    @property
    def number(self) -> torch.dtype:
        """The dtype as torch knows it."""
        return get_dtype(self.dtype)

    def place(self) -> torch.device:
        """The device as torch knows it, which must be present."""
        where = torch.device(self.device)
        if where.type == "cuda" and (where.index or 0) >= torch.cuda.device_count():
            raise MusterError(
                f"device: '{self.device}', but no CUDA device is present; use device='cpu'"
                if torch.cuda.device_count() == 0
                else f"device: '{self.device}'; allowed: cpu, cuda:0 to "
                f"cuda:{torch.cuda.device_count() - 1}"
            )
        return where

    def workers(self) -> int:
        """Threads or processes to work with. A GPU is given one stream of work."""
        if torch.device(self.device).type != "cpu":
            return 1
        return cores() if self.processes is None else int(self.processes)


class ComputeOptions(TypedDict, total=False):
    """The fields of `Compute` as keywords of their own, for functions that take `**how`."""

    engine: str
    device: str
    dtype: str
    processes: int | None


def resolve_compute(compute: Compute | None, how: ComputeOptions) -> Compute:
    """One `Compute` from a whole one or from keywords, whichever a caller gave."""
    strange = [key for key in how if key not in ComputeOptions.__annotations__]
    if strange:
        raise TypeError(f"unexpected keyword argument '{strange[0]}'")
    if compute is None:
        return Compute(**how)
    if how:
        raise MusterError(f"compute: given together with {next(iter(how))}; give one or the other")
    if not isinstance(compute, Compute):
        raise MusterError(f"compute: {type(compute).__name__}; give a muster.Compute")
    return compute
