"""A federation over a network in a configuration: its settings and its clients.

The server grants roles here, to registered public keys. Clients are not asked for their roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..base.arrays import Bool, Int64
from ..base.checks import check_above, check_share, check_whole, is_number, require
from ..base.errors import MusterError
from ..federation import Federation
from ..federation.population import check_role
from ..privacy.committee import Committee, choose_members
from ..privacy.masks import PUBLIC, PublicSumKey, SumKey

Precision = Literal["exact", "float16"]


@dataclass(frozen=True)
class Network:
    """Settings of a federation over a network: timeouts, limits and the form of clients' data.

    Attributes:
        precision: precision of weights in messages: "exact" (the run's dtype) or "float16"
        timeout: seconds the server waits for the replies to one request
        enrolment_timeout: seconds the server waits for clients before the first round
        min_clients: number of clients that must enrol; priority clients must in any case
        quorum: fraction of the objective's weight that must reply in a round; with less, requests
            that failed are retried, then the run stops
        retries: requests sent again (each a retry) when there is no quorum
        failures: failures in a row after which nobody waits for a client until it replies again
        max_rows: largest number of rows a client may report
        max_share: cap on an undeclared non-priority client's rows, as a multiple of all priority
            rows
        features: shape of a row; empty: that of the first priority client
        image: shape of a row as an image, where images are stored as flat rows; empty: none
        classes: number of classes, or their names in order; 0: inferred from the priority clients'
            labels
        label: label column of each client's table, or a list of several
        columns: feature columns, in order; empty: all columns but the label
        scale: scaling of features, as in `from_folder`, by statistics of the clients' training rows
        categories: categorical columns, one-hot encoded by the levels of all clients
        missing: handling of missing numbers: "error", or "mean" to fill in the column's mean
        max_levels: largest number of levels a client may report in a categorical column
        text: text column to learn from instead of numeric columns; the tokenizer is named by each
            node's owner
        length: number of tokens of each text that are used
        pad: token that fills up shorter texts; default 0
        resize: height and width to which images of a folder are resized; empty: none
        sum_keys: public keys of the clients for secure sums (written by `muster federate`)
        sum_owners: numbers of the clients' owners (the same)
        sum_roles: weights of the clients in the objective, 1 for priority (the same)
        sum_priority: numbers of the priority clients (the same)
        advice: number of seeds of `muster federate --advise`: nodes train by every
            method of the terms on each, and report what verdicts rest on; 0: none
        advice_pairs: most clients of which it trains every pair
    """

    precision: Precision = "exact"
    timeout: float = 600.0
    enrolment_timeout: float = 600.0
    min_clients: int = 1
    quorum: float = 0.5
    retries: int = 2
    failures: int = 3
    max_rows: int = 100_000_000
    max_share: float = 1.0
    features: tuple[int, ...] = ()
    image: tuple[int, ...] = ()
    classes: int | tuple[str, ...] = 0
    label: str | tuple[str, ...] = "label"
    columns: tuple[str, ...] = ()
    scale: Literal["none", "pooled", "priority"] = "none"
    categories: tuple[str, ...] = ()
    missing: Literal["error", "mean"] = "error"
    max_levels: int = 256
    text: str = ""
    length: int = 64
    pad: int | None = None
    resize: tuple[int, ...] = ()
    sum_keys: tuple[str, ...] = ()
    sum_owners: tuple[int, ...] = ()
    sum_roles: tuple[float, ...] = ()
    sum_priority: tuple[int, ...] = ()
    advice: int = 0
    advice_pairs: int = 8

    def __post_init__(self) -> None:
        for name in ("timeout", "enrolment_timeout"):  # may be infinite
            value = getattr(self, name)
            require(is_number(value) and value > 0, f"network.{name}", value, "above 0")
        check_whole("network.min_clients", self.min_clients)
        check_whole("network.max_rows", self.max_rows)
        check_above("network.max_share", self.max_share)
        check_share("network.quorum", self.quorum)
        check_whole("network.retries", self.retries, 0)
        check_whole("network.failures", self.failures)
        check_whole("network.max_levels", self.max_levels)
        check_whole("network.advice", self.advice, 0)
        check_whole("network.advice_pairs", self.advice_pairs, 0)
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
        """True if clients agree on the preparation of columns before the first round."""
        return bool(self.preparing)

    @property
    def preparing(self) -> dict[str, Any]:
        """Settings of `from_folder` that prepare columns; empty: columns are used as they are."""
        settings = {"scale": self.scale, "categories": self.categories, "missing": self.missing}
        return {key: value for key, value in settings.items() if value not in ("none", "error", ())}

    @property
    def reading(self) -> dict[str, Any]:
        """Settings of `from_folder` by which clients read their files."""
        if self.text:
            return {"text": self.text, "length": self.length, "pad": self.padding}
        return {"resize": self.resize} if self.resize else self.preparing

    @property
    def padding(self) -> int | None:
        """The token that fills up shorter texts; None if rows may not be texts."""
        return 0 if self.pad is None and self.text else self.pad

    @property
    def class_count(self) -> int:
        """The number of classes; 0: inferred from the data."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)


def add_parties(
    network: Network, members: Sequence[Member], committee: Sequence[str]
) -> tuple[Network, tuple[str, ...]]:
    """Return the network with the parties of secure sums as the terms have them, without a name:
    keys, owners and roles by the number of a client; and the committee's numbers."""
    names = [member.name for member in members]
    owners = [member.owner or f"client {member.name}" for member in members]
    chosen = choose_members(committee, names, owners, [member.priority for member in members])
    for member in members:
        if not member.sum_key:
            raise MusterError(
                f"clients.{member.name}.sum_key: missing; secure sums need every client's "
                "NAME.agg.pub, which `muster keys` makes"
            )
    keys, probe = [], SumKey.generate()
    for member in members:
        key = PublicSumKey.from_text(member.public_sum_key(), f"clients.{member.name}.sum_key")
        probe.exchange(key)  # a key with which nobody shares a secret would end every sum
        keys.append(key.to_text())
    ranks = {owner: i for i, owner in enumerate(dict.fromkeys(owners))}
    roles = tuple(1.0 if m.priority else m.importance * (not m.unseen) for m in members)
    named = replace(
        network,
        sum_keys=tuple(keys),
        sum_owners=tuple(ranks[owner] for owner in owners),
        sum_roles=roles,
        sum_priority=tuple(k for k, m in enumerate(members) if m.priority),
    )
    return named, tuple(map(str, chosen))


def build_committee(network: Network, committee: Sequence[str]) -> Committee:
    """Return the parties of secure sums that terms name, with the committee's numbers."""
    keys = tuple(
        PublicSumKey.from_text(text, f"network.sum_keys[{k}]")
        for k, text in enumerate(network.sum_keys)
    )
    numbers = [str(k) for k in range(len(keys))]
    owners = [str(owner) for owner in network.sum_owners]
    return Committee(keys, tuple(owners), choose_members(committee, numbers, owners, ()))


@dataclass(frozen=True)
class Member:
    """A client that may take part.

    Attributes:
        key: public key: a file, or its text (`ecdsa-sha2-nistp384 AAAA...`)
        priority: True for a priority client
        importance: a_k, weight in the objective of a client that is not priority
        unseen: True for a client that never trains and only evaluates the model
        rows: declared number of rows; 0: as the client reports, capped by network.max_share unless
            it is priority
        sum_key: public key for secure sums: a file (NAME.agg.pub), or its text
        owner: who owns the client; default: nobody who owns another
    """

    name: str
    key: str
    priority: bool = False
    importance: float = 0.0
    unseen: bool = False
    rows: int = 0
    sum_key: str = ""
    owner: str = ""

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise MusterError(f"clients: name '{self.name}'; give a plain name")
        check_role(f"clients.{self.name}", self.priority, self.importance, self.unseen)
        check_whole(f"clients.{self.name}.rows", self.rows, 0)

    def public_key(self) -> str:
        """Return the text of its key."""
        return self._read("key", ("ecdsa-", "-----BEGIN"))

    def public_sum_key(self) -> str:
        """Return the text of its key for secure sums; "" if it has none."""
        return self._read("sum_key", (PUBLIC,)) if self.sum_key else ""

    def _read(self, field: str, beginnings: tuple[str, ...]) -> str:
        given: str = getattr(self, field)
        if given.startswith(beginnings):
            return given
        try:
            return Path(given).read_text()
        except OSError as error:
            raise MusterError(
                f"clients.{self.name}.{field}: {given} cannot be read ({error.strerror}); give a "
                "public key file, or its text"
            ) from None


def check_members(members: tuple[Member, ...]) -> None:
    """Refuse two clients of one name, and a federation for nobody."""
    names = [m.name for m in members]
    for name in names:
        if names.count(name) > 1:
            raise MusterError(f"clients: two are called '{name}'; give each its own name")
    if members and not any(m.priority for m in members):
        raise MusterError("clients: none is priority; give priority = true for at least one")


def members_of(fed: Federation, keys: Sequence[str | Path]) -> tuple[Member, ...]:
    """Return the clients of a federation as members with their roles and keys, by name if their
    names can be used."""
    named = fed.names is not None and all(name and "/" not in name for name in fed.names)
    return tuple(
        Member(
            fed.population.get_name(k) if named else f"client{k}",
            str(key),
            bool(fed.priority[k]),
            0.0 if fed.priority[k] else float(fed.importance[k]),
            bool(fed.unseen[k]),
            int(fed.sizes[k]),
        )
        for k, key in enumerate(keys)
    )


def cap_rows(stated: Int64, members: Sequence[Member], priority: Bool, max_share: float) -> Int64:
    """Return D_k as it counts in p_k, capped by the server.

    Declared rows count as declared. The number that a priority client reports is used as it is;
    that of any other is capped at `max_share` times the rows of all priority clients together. A
    client that reports none is absent, and counts for nothing.
    """
    declared = np.array([member.rows for member in members], np.int64)
    rows = np.where(declared > 0, declared, stated) * (stated > 0)
    most = max(1, int(max_share * int(rows[priority].sum())))
    return np.where(priority | (declared > 0), rows, np.minimum(rows, most))


def order_members(members: Sequence[Member], fed: Federation) -> list[Member]:
    """Return the members in the order of a federation's clients, by name if the data has names."""
    named = {member.name: member for member in members}
    if fed.names is None and fed.n == len(members):
        return list(members)
    if fed.names is not None and set(fed.names) == set(named):
        return [named[name] for name in fed.names]
    raise MusterError(
        f"clients: {len(members)} are listed and the data has {fed.n}, or others; to simulate "
        "this federation, give data of the clients that are listed"
    )
