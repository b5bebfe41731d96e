"""A node's own data: one client, read from the file its owner names, and again when that changed.

A round asks several things of a node, and its process stays up between rounds: rows are kept as
they were read for as long as the files are the same, by size and time of change.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import MusterError, nearest
from ...config.network import Network
from ...data.files.folder import FolderData, read_folder
from ...data.files.image_folders import holds_images
from ...data.files.manifest import manifest_places
from ...federation import Federation, TableEncoder
from ...tasks.base import Targets
from ..server.fit_columns import Fitted, Told

# What an owner may set.
OWNERS = ("data-path", "requirement", "memory-path", "test-fraction", "tokenizer")
MOST_KEPT = 64  # owners in one process: one on a node, several where a federation is tried out

_kept: dict[Hashable, tuple[Hashable, Federation]] = {}


def kept(config: Mapping[str, Any], asked: Hashable, read: Callable[[], Federation]) -> Federation:
    """What `read` gives for an owner's configuration: what it gave when last `asked` the same, if
    no file has changed since. One reading is kept for each owner."""
    if not config.get("data-path"):
        return read()  # which says what is missing
    owner = tuple(sorted(config.items()))
    state = (asked, stamps(Path(str(config["data-path"])).expanduser()))
    found = _kept.pop(owner, None)
    if found is None or found[0] != state:
        found = (state, read())
    _kept[owner] = found  # the last one used stands last
    if len(_kept) > MOST_KEPT:
        del _kept[next(iter(_kept))]
    return found[1]


def stamps(place: Path) -> tuple[tuple[str, int, int, int], ...]:
    """The files that data is read from: where, which, how large and when changed."""
    files = [place, *manifest_places(place)]
    if place.is_dir():
        files += sorted(file for depth in ("*", "*/*", "*/*/*") for file in place.glob(depth))
    found = []
    for file in files:
        with suppress(OSError):  # no such file, or one that reading will complain about
            s = os.stat(file)
            found.append((str(file), s.st_ino, s.st_size, s.st_mtime_ns))
    return tuple(found)


def own_data(
    config: Mapping[str, Any],
    network: Network,
    seed: int,
    targets: Targets | None = None,
    fitted: Fitted | None = None,
) -> Federation:
    """The federation of one that a node's owner configured with --node-config.

    data-path      a table (parquet, CSV) or npz with this client's rows, or a folder of images,
                   class/*.png; a manifest beside it is read as everywhere, but for what is to be
                   agreed on
    requirement    the loss it asks the model to stay below, where its owner sets one
    test-fraction  the share of its rows it holds out, where the file does not say
    memory-path    a folder for what it remembers between rounds
    tokenizer      the import path of what makes tokens of texts, where the terms name a column of
                   them: code is the owner's to name

    Its features are made by what was `fitted` together with the other clients.
    """
    columns = fitted.columns if isinstance(fitted, TableEncoder) else network.columns
    source = own_files(config, network, targets, columns)
    fed = source.federation(seed, fitted)
    if fed.n != 1:
        raise MusterError(f"{source.place}: holds {fed.n} clients; a node reads the file of one")
    named = any(not name.isdecimal() for name in fed.labels or ())
    if named and not network.classes:
        raise MusterError(
            f"{source.place}: its labels are names, which every client must number alike; list "
            'them in the run\'s configuration: [network] classes = ["...", "..."]'
        )
    fed = replace(fed, image=network.image or None, pad=network.padding)
    if config.get("requirement") is None:
        return fed
    return replace(fed, requirement=np.array([number(config, "requirement", -math.inf)]))


def own_statistics(
    config: Mapping[str, Any], network: Network, seed: int, targets: Targets | None = None
) -> Told:
    """What this client tells of its columns, so that features can be fitted."""
    source = own_files(config, network, targets, network.columns)
    first = source.blocks[0]
    shape = (len(first.features),) if source.tables else first.x.shape[1:]
    return Told(first.features, tuple(shape), source.statistics(seed), source.levels())


def own_files(
    config: Mapping[str, Any],
    network: Network,
    targets: Targets | None,
    columns: tuple[str, ...],
) -> FolderData:
    """The file that a node's owner names, read as the federation's terms say."""
    path = config.get("data-path")
    if not isinstance(path, str) or not path:
        given = next(iter(config), "")
        hint = f"; {nearest(given, OWNERS)}" if given else ""
        raise MusterError(
            f"data-path: missing; start the node with --node-config 'data-path=\"FILE\"'{hint}"
        )
    options: dict[str, Any] = {}
    if not path.endswith(".npz") and not holds_images(Path(path).expanduser()):
        options["label"] = network.label
        options["features"] = columns or None
    if targets == "numbers":
        options["targets"] = targets
    elif network.classes:
        names = network.classes
        options["classes"] = names if isinstance(names, tuple) else tuple(range(names))
    if "test-fraction" in config:
        options["test_fraction"] = number(config, "test-fraction")
    if network.text:
        options["tokenizer"] = tokenizer_of(config)
    source = read_folder(path, options | network.reading)
    for key in ("scale", "categories", "missing"):
        own = getattr(source.options, key)
        if key not in network.reading and own not in (None, "none", "error"):
            raise MusterError(
                f"{source.manifest.path}: {key} is for all clients to agree on; say it in the "
                f"run's configuration, [network] {key}, and take it out here"
            )
    return source


def tokenizer_of(config: Mapping[str, Any]) -> str:
    """The tokenizer that a node's owner names."""
    given = config.get("tokenizer")
    if not isinstance(given, str) or ":" not in given:
        raise MusterError(
            "tokenizer: this federation reads texts; start the node with --tokenizer MODULE:NAME, "
            "a function of a text that gives whole numbers"
        )
    return given


def number(config: Mapping[str, Any], key: str, least: float = 0.0) -> float:
    """A finite number that an owner set, at least this."""
    try:
        value = float(config[key])
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        what = f"number from {least:g}" if math.isfinite(least) else "finite number"
        raise MusterError(f"{key}: {config[key]!r}; give a {what} in --node-config")
    return value
