"""A federation over a network, as its configuration says it: who may take part, and on what terms.

Roles are granted here, by the server, to registered public keys. What a client says of its own
role is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..base.arrays import Bool, Int64
from ..base.checks import check_above, check_share, check_whole, is_number, require
from ..base.errors import MusterError
from ..federation import Federation
from ..federation.population import check_role

Precision = Literal["exact", "float16"]


@dataclass(frozen=True)
class Network:
    """The terms of a federation over a network.

    Attributes:
        precision: how weights travel: "exact" (in the run's dtype) or "float16" (half of float32)
        patience: seconds the server waits for answers to one request; then it goes on without
        wait: seconds it waits for clients before the first round
        at_least: clients that must have come by then (the priority clients must, all of them)
        quorum: the share of the objective's weight (the priority clients', usually) that must be
            heard in a round; with less, those who failed are asked again, then the run stops
        retries: how often they are asked again
        strikes: failures in a row after which nobody waits for a client until it answers again
        most_rows: the largest sample count a client may state
        most_share: the most a client counts for that is not priority and whose rows are not
            declared: so many times the rows of all priority clients together
        features: the shape of a row; empty: as the first priority client's
        image: the shape of a row as an image, where rows are images that lie flat; empty: none
        classes: how many classes, or their names in order; 0: as the priority clients' labels go
        label: the label's column in each client's own table, or several
        columns: the columns to learn from, in order; empty: all others, as each table has them
        scale: how features are scaled, as in `from_folder`: clients tell statistics of their
            training rows, and are sent what everybody goes by
        categories: columns of categories, with the levels of all clients, agreed on in the same way
        missing: what stands in for missing numbers, agreed on in the same way
        most_levels: the most levels a client may have in a column of categories
        text: a column of text to learn from, in place of columns of numbers; what makes tokens of
            it is code, which each node's owner names
        length: how many tokens of each text are kept
        pad: the token that shorter texts are filled up with; default 0
        resize: of folders of images: the height and width that all are brought to; empty: none
    """

    precision: Precision = "exact"
    patience: float = 600.0
    wait: float = 600.0
    at_least: int = 1
    quorum: float = 0.5
    retries: int = 2
    strikes: int = 3
    most_rows: int = 100_000_000
    most_share: float = 1.0
    features: tuple[int, ...] = ()
    image: tuple[int, ...] = ()
    classes: int | tuple[str, ...] = 0
    label: str | tuple[str, ...] = "label"
    columns: tuple[str, ...] = ()
    scale: Literal["none", "pooled", "priority"] = "none"
    categories: tuple[str, ...] = ()
    missing: Literal["error", "mean"] = "error"
    most_levels: int = 256
    text: str = ""
    length: int = 64
    pad: int | None = None
    resize: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("patience", "wait"):  # infinity is allowed: for as long as it takes
            value = getattr(self, name)
            require(is_number(value) and value > 0, f"network.{name}", value, "above 0")
        check_whole("network.at_least", self.at_least)
        check_whole("network.most_rows", self.most_rows)
        check_above("network.most_share", self.most_share)
        check_share("network.quorum", self.quorum)
        check_whole("network.retries", self.retries, 0)
        check_whole("network.strikes", self.strikes)
        check_whole("network.most_levels", self.most_levels)
        for name in self.categories:
            known = not self.columns or name in self.columns
            require(known, "network.categories", name, "columns that network.columns lists")
        check_whole("network.length", self.length)
        check_whole("network.pad", self.pad or 0, 0)
        size = self.resize
        ok = not size or (len(size) == 2 and min(size) >= 1)
        require(ok, "network.resize", size, "[height, width], each 1 or more")
        for key in ("text", "resize"):
            if getattr(self, key) and (self.fits or self.columns or (self.text and self.resize)):
                raise MusterError(
                    f"network.{key}: given together with other features (columns, scale, "
                    "categories, missing, text, resize); texts or images are all a model then "
                    "reads"
                )

    @property
    def fits(self) -> bool:
        """Whether clients agree on how features are made of columns before the first round."""
        return bool(self.preparing)

    @property
    def preparing(self) -> dict[str, Any]:
        """How features are made of columns, as `from_folder` calls it; nothing: as they are."""
        said = {"scale": self.scale, "categories": self.categories, "missing": self.missing}
        return {key: value for key, value in said.items() if value not in ("none", "error", ())}

    @property
    def reading(self) -> dict[str, Any]:
        """How clients' own files are read, as `from_folder` calls it."""
        if self.text:
            return {"text": self.text, "length": self.length, "pad": self.padding}
        return {"resize": self.resize} if self.resize else self.preparing

    @property
    def padding(self) -> int | None:
        """The token that shorter texts are filled up with; None where rows may be no texts."""
        return 0 if self.pad is None and self.text else self.pad

    @property
    def class_count(self) -> int:
        """How many classes; 0 where that is left to the data."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)


@dataclass(frozen=True)
class Member:
    """A client that may take part.

    Attributes:
        key: its public key: a file, or the text of one (`ecdsa-sha2-nistp384 AAAA...`)
        priority: whether the model is for it
        importance: a_k, its weight in the objective when it is not priority
        unseen: whether it never trains and only judges the model
        rows: how many rows it counts for, whatever it states; 0: as it states, within
            network.most_share unless it is priority
    """

    name: str
    key: str
    priority: bool = False
    importance: float = 0.0
    unseen: bool = False
    rows: int = 0

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise MusterError(f"clients: name '{self.name}'; give a plain name")
        check_role(f"clients.{self.name}", self.priority, self.importance, self.unseen)
        check_whole(f"clients.{self.name}.rows", self.rows, 0)

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
    """The clients of a federation as members in its roles, each with its key; by their names,
    where they have plain ones."""
    named = fed.names is not None and all(name and "/" not in name for name in fed.names)
    return tuple(
        Member(
            fed.population.called(k) if named else f"client{k}",
            str(key),
            bool(fed.priority[k]),
            0.0 if fed.priority[k] else float(fed.importance[k]),
            bool(fed.unseen[k]),
            int(fed.sizes[k]),
        )
        for k, key in enumerate(keys)
    )


def counted_rows(
    stated: Int64, members: Sequence[Member], priority: Bool, most_share: float
) -> Int64:
    """D_k as it counts in p_k, which is not for clients to say.

    Declared rows count as declared. What a priority client states is believed: the model is for
    it. What any other states counts up to `most_share` times the rows of all priority clients
    together. A client that states nothing has not come, and counts for nothing.
    """
    declared = np.array([member.rows for member in members], np.int64)
    rows = np.where(declared > 0, declared, stated) * (stated > 0)
    most = max(1, int(most_share * int(rows[priority].sum())))
    return np.where(priority | (declared > 0), rows, np.minimum(rows, most))


def members_by_name(members: Sequence[Member], fed: Federation) -> list[Member]:
    """The members in the order of a federation's clients: by name, where the data has names."""
    named = {member.name: member for member in members}
    if fed.names is None and fed.n == len(members):
        return list(members)
    if fed.names is not None and set(fed.names) == set(named):
        return [named[name] for name in fed.names]
    raise MusterError(
        f"clients: {len(members)} are listed and the data has {fed.n}, or others; to simulate "
        "this federation, give data of the clients that are listed"
    )
