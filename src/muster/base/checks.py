"""Checks of numbers, with one form of message: `what: given; allowed: ...`.

numpy's numbers are numbers: values of `np.arange(5)` may be passed to any part.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from .errors import MusterError

LARGEST = 1e38  # float32 ends a little above


def require(ok: bool, what: str, given: object, allowed: str) -> None:
    """Raise MusterError unless `ok`.

    >>> require(0 <= 2 <= 1, "share", 2, "0.0 to 1.0")
    Traceback (most recent call last):
    muster.base.errors.MusterError: share: 2; allowed: 0.0 to 1.0
    """
    if not ok:
        shown = f"'{given}'" if isinstance(given, str) else f"{given}"
        raise MusterError(f"{what}: {shown}; allowed: {allowed}")


def is_whole(value: Any) -> bool:
    """Return True if a value is a whole number; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return True if a value is a number; booleans are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_whole(what: str, value: Any, least: int = 1, most: int | None = None) -> None:
    """Refuse a value that is not a whole number from `least` (to `most`).

    >>> check_whole("rounds", 0)
    Traceback (most recent call last):
    muster.base.errors.MusterError: rounds: 0; allowed: whole numbers from 1
    """
    ok = is_whole(value) and value >= least and (most is None or value <= most)
    top = "" if most is None else f" to {most}"
    require(ok, what, value, f"whole numbers from {least}{top}")


def check_size(what: str, value: Any) -> None:
    """Refuse a number that is too large for float32; infinity is not one.

    >>> check_size("prox", 1e300)
    Traceback (most recent call last):
    muster.base.errors.MusterError: prox: 1e+300; allowed: at most 1e+38
    """
    require(not LARGEST < value < math.inf, what, value, f"at most {LARGEST:g}")


def check_at_least(what: str, value: Any, least: float = 0.0) -> None:
    """Refuse a value that is not a number from `least`; infinity is allowed."""
    require(is_number(value) and value >= least, what, value, f"{least:g} and above")
    check_size(what, value)


def check_above(what: str, value: Any, double: bool = False) -> None:
    """Refuse a value that is not a finite number above 0.

    Args:
        double: nothing in float32 is computed with it
    """
    require(is_number(value) and 0.0 < value < math.inf, what, value, "above 0")
    if not double:
        check_size(what, value)


def check_share(what: str, value: Any) -> None:
    """Refuse a value that is not a number from 0 to 1."""
    require(is_number(value) and 0.0 <= value <= 1.0, what, value, "0.0 to 1.0")


def check_one_of(what: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the known ones."""
    require(value in known, what, value, ", ".join(known))
