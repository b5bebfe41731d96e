"""Packed: one small number for each client and round, as little text as it takes.

Numbers are compressed (zlib) and written as base64; the browser unpacks them by itself.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Float64

NONE = 65535  # stands for no number


def packed(values: NDArray[Any]) -> str:
    """Whole numbers, little end first."""
    raw = values.astype(values.dtype.newbyteorder("<")).tobytes()
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def scaled(values: Float64) -> dict[str, Any]:
    """Numbers to one part in 65,534 of their span: `low + code * step`."""
    there = np.isfinite(values)
    low = float(values[there].min()) if there.any() else 0.0
    span = float(np.ptp(values[there])) if there.any() else 0.0
    step = span / (NONE - 1) or 1.0
    codes = np.where(there, np.round((np.where(there, values, low) - low) / step), NONE)
    return {"low": low, "step": step, "codes": packed(codes.astype(np.uint16))}
