"""Array types: mostly a number, a count or a flag for each client."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
Text = NDArray[np.str_]
