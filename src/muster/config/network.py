"""A federation over a network, as its configuration says it: who may take part, and on what terms.

Roles are granted here, by the server, to registered public keys. What a client says of its own
role is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..checks import is_number, require, whole
from ..errors import MusterError
from ..federation import Federation
from ..federation.population import check_role

Precision = Literal["exact", "float16"]


@dataclass(frozen=True)
class Network:
    """The terms of a federation over a network.

    precision  how weights travel: "exact" (in the run's dtype) or "float16" (half of float32)
    patience   seconds the server waits for answers to one request; then it goes on without
    wait       seconds it waits for clients before the first round
    at_least   clients that must have come by then (the priority clients must, all of them)
    most_rows  the largest sample count a client may state
    features   the shape of a row; empty: as the first priority client's
    classes    how many classes, or their names in order; 0: as the priority clients' labels go
    label      the label's column in each client's own table
    columns    the columns to learn from, in order; empty: all others, as each table has them
    """

    precision: Precision = "exact"
    patience: float = 600.0
    wait: float = 600.0
    at_least: int = 1
    most_rows: int = 100_000_000
    features: tuple[int, ...] = ()
    classes: int | tuple[str, ...] = 0
    label: str = "label"
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("patience", "wait"):  # infinity is allowed: for as long as it takes
            value = getattr(self, name)
            require(is_number(value) and value > 0, f"network.{name}", value, "above 0")
        whole("network.at_least", self.at_least)
        whole("network.most_rows", self.most_rows)

    @property
    def class_count(self) -> int:
        """How many classes; 0 where that is left to the data."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)


@dataclass(frozen=True)
class Member:
    """A client that may take part.

    key         its public key: a file, or the text of one (`ecdsa-sha2-nistp384 AAAA...`)
    priority    whether the model is for it
    importance  a_k, its weight in the objective when it is not priority
    unseen      whether it never trains and only judges the model
    """

    name: str
    key: str
    priority: bool = False
    importance: float = 0.0
    unseen: bool = False

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise MusterError(f"clients: name '{self.name}'; give a plain name")
        check_role(f"clients.{self.name}", self.priority, self.importance, self.unseen)

    def public_key(self) -> str:
        """The text of its key."""
        if self.key.startswith(("ecdsa-", "-----BEGIN")):
            return self.key
        try:
            return Path(self.key).read_text()
        except OSError as error:
            raise MusterError(
                f"clients.{self.name}.key: {self.key} cannot be read ({error.strerror}); give a "
                "public key file, or its text"
            ) from None


def check_members(members: tuple[Member, ...]) -> None:
    """Refuse two clients of one name, and a federation for nobody."""
    names = [m.name for m in members]
    for name in names:
        if names.count(name) > 1:
            raise MusterError(f"clients: two are called '{name}'; give each its own name")
    if members and not any(m.priority for m in members):
        raise MusterError("clients: none is priority; say priority = true for at least one")


def members_of(fed: Federation, keys: Sequence[str | Path]) -> tuple[Member, ...]:
    """The clients of a federation as members in its roles, each with its key."""
    return tuple(
        Member(
            f"client{k}",
            str(key),
            bool(fed.priority[k]),
            0.0 if fed.priority[k] else float(fed.importance[k]),
            bool(fed.unseen[k]),
        )
        for k, key in enumerate(keys)
    )
