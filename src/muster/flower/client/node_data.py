"""A node's own data: one client, read from the file its owner names, and again when that changes.

A round sends several requests to a node, and its process stays up between rounds: rows are cached
for as long as the files are the same, by size and time of change.
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
from ...data.files.data_check import DataCheck, check
from ...data.files.folder import FolderData, read_folder
from ...data.files.image_folders import holds_images
from ...data.files.manifest import manifest_places
from ...federation import Federation, TableEncoder
from ...tasks.task import Targets
from ..server.fit_columns import ClientStatistics, Transform

# Keys that an owner may set.
OWNER_KEYS = (
    "data-path", "requirement", "memory-path", "test-fraction", "tokenizer", "sum-key",
)  # fmt: skip
MAX_CACHED = 64  # owners in one process: one on a node, several where all run in one process

_cache: dict[Hashable, tuple[Hashable, Federation]] = {}


def read_cached(
    config: Mapping[str, Any], asked: Hashable, read: Callable[[], Federation]
) -> Federation:
    """Return the data that `read` returns for an owner's configuration, from the cache if the last
    request `asked` the same and no file has changed. One result is cached for each owner."""
    if not config.get("data-path"):
        return read()  # which raises
    owner = tuple(sorted(config.items()))
    state = (asked, stamps(Path(str(config["data-path"])).expanduser()))
    found = _cache.pop(owner, None)
    if found is None or found[0] != state:
        found = (state, read())
    _cache[owner] = found  # the last used is the last
    if len(_cache) > MAX_CACHED:
        del _cache[next(iter(_cache))]
    return found[1]


def stamps(place: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return the path, inode, size and time of change of every file that data is read from."""
    files = [place, *manifest_places(place)]
    if place.is_dir():
        files += sorted(file for depth in ("*", "*/*", "*/*/*") for file in place.glob(depth))
    found = []
    for file in files:
        with suppress(OSError):  # reading will raise, if it is needed
            s = os.stat(file)
            found.append((str(file), s.st_ino, s.st_size, s.st_mtime_ns))
    return tuple(found)


def read_own_data(
    config: Mapping[str, Any],
    network: Network,
    seed: int,
    targets: Targets | None = None,
    transform: Transform | None = None,
) -> Federation:
    """Read the data that a node's owner configured, as a federation of one client.

    data-path      a table (parquet, CSV) or npz with this client's rows, or a folder of images,
                   class/*.png; a manifest beside it is read as everywhere, but for what the
                   terms set
    requirement    the loss that a model must beat, where its owner sets one
    test-fraction  the share of its rows it holds out, where the file does not say
    memory-path    a folder for its state between rounds
    tokenizer      the import path of a tokenizer, where the terms name a column of texts: only the
                   owner names code
    sum-key        its private keys for secure sums, NAME.agg

    Its features are made by a `transform` that was fitted together with the other clients.
    """
    columns = transform.columns if isinstance(transform, TableEncoder) else network.columns
    source = read_own_files(config, network, targets, columns)
    fed = source.federation(seed, transform)
    if fed.n != 1:
        raise MusterError(f"{source.place}: holds {fed.n} clients; a node reads the file of one")
    named = any(not name.isdecimal() for name in fed.labels or ())
    if named and not network.classes:
        raise MusterError(
            f"{source.place}: its labels are names, which every client must number the same way; "
            'list them in the run\'s configuration: [network] classes = ["...", "..."]'
        )
    fed = replace(fed, image=network.image or None, pad=network.padding)
    if config.get("requirement") is None:
        return fed
    return replace(fed, requirement=np.array([read_number(config, "requirement", -math.inf)]))


def read_own_statistics(
    config: Mapping[str, Any], network: Network, seed: int, targets: Targets | None = None
) -> ClientStatistics:
    """Return the statistics of this client's columns, for fitting a transform."""
    source = read_own_files(config, network, targets, network.columns)
    first = source.blocks[0]
    shape = (len(first.features),) if source.tables else first.x.shape[1:]
    return ClientStatistics(first.features, tuple(shape), source.statistics(seed), source.levels())


def read_own_files(
    config: Mapping[str, Any],
    network: Network,
    targets: Targets | None,
    columns: tuple[str, ...],
) -> FolderData:
    """Read the file that a node's owner names, as the terms say."""
    path, options = build_settings(config, network, targets, columns)
    source = read_folder(path, options | network.reading)
    for key in ("scale", "categories", "missing"):
        own = getattr(source.options, key)
        if key not in network.reading and own not in (None, "none", "error"):
            raise MusterError(
                f"{source.manifest.path}: {key} must be the same for all clients; set it in the "
                f"run's configuration, [network] {key}, and take it out here"
            )
    return source


def check_own_data(
    config: Mapping[str, Any], network: Network, targets: Targets | None = None
) -> DataCheck:
    """Check the file that a node's owner names, by the terms: what they set is not in the manifest
    that the check suggests. Nothing leaves this machine."""
    path, options = build_settings(config, network, targets, network.columns)
    agreed = {
        "scale": network.scale,
        "categories": network.categories or None,
        "missing": network.missing,
    }
    return check(path, **agreed, **{key: v for key, v in options.items() if v is not None})


def build_settings(
    config: Mapping[str, Any],
    network: Network,
    targets: Targets | None,
    columns: tuple[str, ...],
) -> tuple[str, dict[str, Any]]:
    """Return the file that a node's owner names, and the settings for it that the terms imply."""
    path = config.get("data-path")
    if not isinstance(path, str) or not path:
        given = next(iter(config), "")
        hint = f"; {nearest(given, OWNER_KEYS)}" if given else ""
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
        options["test_fraction"] = read_number(config, "test-fraction")
    if network.text:
        options["tokenizer"] = get_tokenizer(config)
    return path, options


def get_tokenizer(config: Mapping[str, Any]) -> str:
    """Return the import path of the tokenizer that a node's owner names."""
    given = config.get("tokenizer")
    if not isinstance(given, str) or ":" not in given:
        raise MusterError(
            "tokenizer: this federation reads texts; start the node with --tokenizer MODULE:NAME, "
            "a function from a text to whole numbers"
        )
    return given


def read_number(config: Mapping[str, Any], key: str, least: float = 0.0) -> float:
    """Return a finite number that an owner set; refuse one below `least`."""
    try:
        value = float(config[key])
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        what = f"number from {least:g}" if math.isfinite(least) else "finite number"
        raise MusterError(f"{key}: {config[key]!r}; give a {what} in --node-config")
    return value
