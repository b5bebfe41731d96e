"""The data files of nodes on this machine: each has its own client's rows.

Where the terms say how clients read their own files (scale, categories, missing, text, resize), a
node gets its part of the files unchanged, so that everything a real federation does before its
first round happens here too; the data's own options become part of the terms. All other data is
written as the simulator has it: as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from ...base.lazy import pl
from ...config.experiment import Experiment
from ...config.network import Network
from ...data.files.assembly import assign_rows
from ...data.files.folder import FolderData, read_folder
from ...data.files.folder_files import data_files
from ...data.files.image_folders import holds_images
from ...data.files.manifest import MANIFEST
from ...federation import Federation, Inputs

READING = ("scale", "categories", "missing", "text", "length", "pad", "resize")  # data's and terms'
SPLIT = "muster: train or test"  # the column of a node's table that says which rows it holds out

Owner = dict[str, str | float]


@dataclass(frozen=True)
class NodeFiles:
    """The data files of nodes, and the terms they imply.

    Attributes:
        network: the terms of the network, with those that the data decides
        owners: the values of each node's owner
        inputs: the description of rows, where that is known here
    """

    network: Network
    owners: list[Owner]
    inputs: Inputs | None


def write_node_files(chosen: Experiment, fed: Federation, folder: Path) -> NodeFiles:
    """Write every client's own rows as files in a folder."""
    network = replace(
        chosen.network,
        image=fed.image or (),
        classes=fed.labels or fed.classes,
        label=fed.label_column or chosen.network.label,
    )
    if chosen.privacy is not None:
        fed = replace(fed, measured={})  # statistics of rows, without noise
    if not network.reading or chosen.data["name"] != "folder":
        return write_arrays(fed, network, folder)
    data = chosen.data_options()
    rest = {key: value for key, value in data.items() if key not in ("name", "path")}
    source = read_folder(data["path"], rest)
    held = None if source.tables else source.options.test_fraction
    if source.tables:
        files = write_tables(source, chosen.settings.seed, folder)
    elif holds_images(source.place):
        files = [Path(block.where) for block in source.blocks]
    else:
        files = data_files(source.place)
    owners: list[Owner] = [{"data-path": str(file.resolve())} for file in files]
    for owner in owners:
        owner |= {} if held is None else {"test-fraction": held}
        owner |= {"tokenizer": source.text.called} if source.text else {}
    options = {key: getattr(source.options, key) for key in READING}
    agreed = {key: value for key, value in options.items() if value is not None}
    columns = source.blocks[0].features if source.needs_fit else ()
    return NodeFiles(replace(network, columns=columns, **agreed), owners, None)


def write_tables(source: FolderData, seed: int, folder: Path) -> list[Path]:
    """Write each client's rows as a table, with unchanged values. A manifest next to it names the
    column by which it holds out the same rows as in a simulation."""
    options, first = source.options, source.blocks[0]
    rows = assign_rows(source.blocks, options, seed, source.roles)
    names = [*options.labels, *first.features]
    whole = pl.concat(source.read_values(names), how="vertical_relaxed")
    whole = whole.with_columns(pl.Series(SPLIT, np.where(rows.test, "test", "train")))
    files = [folder / f"client{k}.parquet" for k in range(len(rows.names))]
    for k, file in enumerate(files):
        whole.filter(pl.Series(rows.owner == k)).write_parquet(file)
        file.with_name(f"{file.stem}.{MANIFEST}").write_text(tomli_w.dumps({"split": SPLIT}))
    return files


def write_arrays(fed: Federation, network: Network, folder: Path) -> NodeFiles:
    """Write each client's rows as arrays, as the simulator has them."""
    files = [folder / f"client{k}.npz" for k in range(fed.n)]
    for k, file in enumerate(files):
        write_client(fed, k, file, fed.labels)
    owners: list[Owner] = [{"data-path": str(file)} for file in files]
    if fed.test is None:
        owners = [owner | {"test-fraction": 0.0} for owner in owners]
    # Features are made already, as they are in the simulator.
    network = replace(
        network,
        features=fed.shape,
        columns=fed.columns or (),
        scale="none",
        categories=(),
        missing="error",
        text="",
        pad=fed.pad,
        resize=(),
    )
    return NodeFiles(network, owners, fed.inputs)


def write_client(
    fed: Federation, k: int, file: Path, labels: tuple[str, ...] | None = None
) -> None:
    """Write one client's rows as the file its node reads; labels as numbers, or these names."""
    called = np.arange(fed.classes) if labels is None else np.array(labels)

    def name_labels(y: Any) -> Any:
        return called[y.numpy()] if fed.classes else y.numpy()

    x, y = fed.train.client(k)
    arrays: dict[str, Any] = {"x": x.numpy(), "y": name_labels(y)}
    if fed.test is not None:
        test_x, test_y = fed.test.client(k)
        arrays |= {"x_test": test_x.numpy(), "y_test": name_labels(test_y)}
        weight = fed.test.row_weights(fed.test.positions(np.array([k])))
        if weight is not None:
            arrays["weight_test"] = weight
    np.savez(file, **arrays)
