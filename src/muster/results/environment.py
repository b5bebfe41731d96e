"""With what a run was made: versions and machine, for those who want to make it again.

Nothing here says whose machine it was: no names, no paths.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from ..base.lazy import metadata

PACKAGES = ("muster-fl", "torch", "numpy", "scipy", "polars", "flwr")


@cache
def surroundings() -> dict[str, str]:
    """Versions of what computes, the system, the processor and its cores."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name.removesuffix("-fl")] = metadata.version(name)
        except (
            metadata.PackageNotFoundError
        ):  # an extra that is not there, or muster run from its sources
            continue
    found["system"] = f"{platform.system()} {platform.machine()}"
    found["processor"] = processor()
    found["cores"] = str(os.cpu_count() or 1)
    return found


def processor() -> str:
    """What the processor is called, where the system says so."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
