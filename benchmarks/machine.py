"""The machine a benchmark ran on, and figures of its results."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from typing import Any

import torch

import muster


def describe_machine() -> str:
    """Return the processor, its cores, versions and the load, in a sentence."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{found[1] if found else platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}, torch {torch.__version__}, muster "
        f"{muster.__version__}, {time.strftime('%Y-%m-%d')}, load before {load}."
    )


def new_figure(panels: int, width: float) -> tuple[Any, Any]:
    """Return a figure of panels side by side, to be saved by `save_figure`."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "muster"
    from matplotlib import pyplot as plt

    return plt.subplots(1, panels, figsize=(width, 3), layout="constrained", squeeze=False)


def save_figure(figure: Any, path: Path) -> None:
    """Save a figure as SVG: the same bytes from the same numbers."""
    figure.savefig(path, metadata={"Date": None})
