"""Hugging Face data sets, divided by a partitioner of flwr-datasets: each partition is a client.

Needs the extra `huggingface`. Nothing of it is imported here: a partitioner brings its data set.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError, nearest
from ...base.lazy import pl
from ...base.registry import Code, import_object, part
from ...federation import Federation
from .assembly import TEST_FRACTION, assemble
from .manifest import Options, override_options
from .tabular import Block


@part(Federation, "huggingface")
def from_partitioner(
    partitioner: Code,
    label: str = "label",
    features: tuple[str, ...] | None = None,
    priority: int | tuple[int, ...] | Literal["all"] | None = None,
    test_fraction: float = TEST_FRACTION,
    seed: int = 0,
) -> Federation:
    """Read a federation from a flwr-datasets partitioner whose `dataset` is set.

    In a configuration the partitioner is the result of your function, `module:function`.
    Images become uint8 arrays (channels, height, width); numbers and lists of numbers of one
    length become float32, column after column.

    Args:
        label: the column of labels
        features: the columns to learn from; default: every other column
        priority: positions of the priority clients, a number n for the first n, "all" (default)
        test_fraction: the share of its rows each client holds out; 0: none
    """
    if isinstance(partitioner, str):
        partitioner = import_object(partitioner, "data.partitioner")()
    blocks = [
        read_partition(partitioner.load_partition(k), k, label, features)
        for k in range(partitioner.num_partitions)
    ]
    for block in blocks[1:]:
        if block.x.shape[1:] != blocks[0].x.shape[1:]:
            raise MusterError(
                f"{block.where}: rows have shape {block.x.shape[1:]}, those of partition 0 "
                f"{blocks[0].x.shape[1:]}; give images and lists of one size"
            )
    settings = {"priority": priority, "test_fraction": test_fraction}
    labels = getattr(partitioner.dataset.features[label], "names", None)  # a ClassLabel has them
    if labels is None:
        return assemble(blocks, override_options(Options(), settings), seed, "huggingface")
    numbers = tuple(range(len(labels)))
    fed = assemble(
        blocks, override_options(Options(classes=numbers), settings), seed, "huggingface"
    )
    return replace(fed, labels=tuple(labels))


def read_partition(rows: Any, k: int, label: str, features: tuple[str, ...] | None) -> Block:
    """Read the rows of partition k: the label column, and the feature columns side by side."""
    where, names = f"partition {k}", rows.column_names
    chosen = tuple(name for name in names if name != label) if features is None else features
    for name in (label, *chosen):
        if name not in names:
            raise MusterError(f"{where}: no column '{name}'; {nearest(name, names)}")
    if not chosen or not len(rows):
        what = "no column but the label" if len(rows) else "no rows"
        raise MusterError(f"{where}: {what}; every client needs features and a row")
    columns = rows.select_columns([label, *chosen]).with_format("numpy")[:]
    parts = [as_features(columns[name], f"{where}: column '{name}'") for name in chosen]
    if len(parts) > 1 and any(part.dtype == np.uint8 for part in parts):
        raise MusterError(f"{where}: images next to other columns; choose with features=[...]")
    x = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return Block(str(k), where, x, pl.Series(label, columns[label]))


def as_features(column: NDArray[Any], where: str) -> NDArray[Any]:
    """Return a column as rows of features: images as bytes, channels first; all else as float32."""
    array = np.asarray(column)
    if array.dtype.kind not in "fiub":
        raise MusterError(
            f"{where}: holds {array.dtype}; give numbers, lists of one length or images of one "
            "size, or leave the column out with features=[...]"
        )
    if array.dtype == np.uint8 and array.ndim == 3:
        return array[:, None]
    if array.dtype == np.uint8 and array.ndim == 4:
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    flat = array.reshape(len(array), -1).astype(np.float32)
    if not np.isfinite(flat).all():
        row = int(np.argwhere(~np.isfinite(flat))[0, 0])
        raise MusterError(f"{where}, row {row + 1}: missing or not finite; fix or drop the row")
    return flat
