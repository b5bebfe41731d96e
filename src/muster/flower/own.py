"""A node's own data: one client, read from the file its owner names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MusterError
from ..federation import Federation
from ..network import Network


def own_data(config: dict[str, Any], network: Network) -> Federation:
    """The federation of one that a node's owner configured with --node-config.

    data-path    a table (parquet, CSV) or npz with this client's rows
    requirement  the loss it asks the model to stay below, where the owner sets one
    """
    path = config.get("data-path")
    if not isinstance(path, str) or not path:
        raise MusterError(
            "data-path: missing; start the node with --node-config 'data-path=\"FILE\"'"
        )
    with np.load(Path(path)) as file:
        train = (file["x"], file["y"])
        test = (file["x_test"], file["y_test"]) if "x_test" in file else None
    requirement = config.get("requirement")
    return Federation.from_arrays(
        [train],
        None if test is None else [test],
        requirement=None if requirement is None else [float(requirement)],
        classes=network.class_count or None,
        name=Path(path).stem,
    )
