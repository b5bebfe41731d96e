"""The environment of a run: versions and machine, stored in its facts as `made_with`.

No names and no paths: the environment does not identify whose machine it was.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from .. import __version__
from ..base.lazy import metadata

PACKAGES = ("torch", "numpy", "scipy", "polars", "flwr")


@cache
def describe_environment() -> dict[str, str]:
    """Return the versions of the packages that compute, the system, the processor, its cores."""
    found = {"python": platform.python_version(), "muster": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed
    found["system"] = f"{platform.system()} {platform.machine()}"
    found["processor"] = get_processor()
    found["cores"] = str(os.cpu_count() or 1)
    return found


def get_processor() -> str:
    """Return the name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
