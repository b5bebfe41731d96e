"""A node's own data: one client, read from the file its owner names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..config.network import Network
from ..data import from_folder
from ..errors import MusterError, nearest
from ..federation import Federation
from ..parts.task import Targets

OWNERS = ("data-path", "requirement", "memory-path", "test-fraction")  # what an owner may set


def own_data(
    config: Mapping[str, Any], network: Network, seed: int, targets: Targets | None = None
) -> Federation:
    """The federation of one that a node's owner configured with --node-config.

    data-path      a table (parquet, CSV) or npz with this client's rows; a manifest beside it is
                   read as everywhere
    requirement    the loss it asks the model to stay below, where its owner sets one
    test-fraction  the share of its rows it holds out, where the file does not say
    memory-path    a folder for what it remembers between rounds
    """
    path = config.get("data-path")
    if not isinstance(path, str) or not path:
        given = next(iter(config), "")
        hint = f"; {nearest(given, OWNERS)}" if given else ""
        raise MusterError(
            f"data-path: missing; start the node with --node-config 'data-path=\"FILE\"'{hint}"
        )
    options: dict[str, Any] = {}
    if not path.endswith(".npz"):
        options["label"] = network.label
        options["features"] = network.columns or None
    if targets == "numbers":
        options["targets"] = targets
    elif network.classes:
        names = network.classes
        options["classes"] = names if isinstance(names, tuple) else tuple(range(names))
    if "test-fraction" in config:
        options["test_fraction"] = number(config, "test-fraction")
    fed = from_folder(path, **options, seed=seed)
    if fed.n != 1:
        raise MusterError(f"{path}: holds {fed.n} clients; a node reads the file of one")
    named = any(not name.isdecimal() for name in fed.labels or ())
    if named and not network.classes:
        raise MusterError(
            f"{path}: its labels are names, which every client must number alike; list them in "
            'the run\'s configuration: [network] classes = ["...", "..."]'
        )
    fed = replace(fed, image=network.image or None)
    if config.get("requirement") is None:
        return fed
    return replace(fed, requirement=np.array([number(config, "requirement")]))


def number(config: Mapping[str, Any], key: str) -> float:
    """A number that an owner set."""
    try:
        value = float(config[key])
    except (TypeError, ValueError):
        value = math.nan
    if not value >= 0:
        raise MusterError(f"{key}: {config[key]!r}; give a number from 0 in --node-config")
    return value
