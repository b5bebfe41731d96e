"""What a run is, wherever its clients are: the same for the server and for every client."""

from __future__ import annotations

from dataclasses import dataclass

from ..local import Local
from ..methods import Method
from ..parts.participation import Participation


@dataclass(frozen=True)
class Terms:
    """The terms of a run.

    trainable      names of the parameters that move by gradient (the rest are statistics)
    participation  who is free to leave; None: everyone stays
    """

    method: Method
    local: Local
    rounds: int
    seed: int
    trainable: tuple[str, ...] = ()
    participation: Participation | None = None


def needs_requirement(method: Method, participation: Participation | None) -> bool:
    """Whether a run cannot do without each client's requirement rho_k."""
    return method.claim.needs_requirement or participation is not None
