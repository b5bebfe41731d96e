"""What benchmarks share: the machine they ran on, separate processes, figures of results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import muster
from muster.base.errors import plural
from muster.engines.compute import cores
from muster.results.environment import get_processor


def name_machine() -> str:
    """Return the processor and how many of its cores this process may use."""
    return f"{get_processor() or 'a processor without a name'}, {plural(cores(), 'core')}"


def describe_machine() -> str:
    """Return the machine, versions, the day and, where the system says it, the load, in a
    sentence."""
    return (
        f"{name_machine()}, Python {platform.python_version()}, torch {torch.__version__}, muster "
        f"{muster.__version__}, {time.strftime('%Y-%m-%d')}{describe_load()}."
    )


def describe_load() -> str:
    """Return the load before a benchmark, or "" where the system does not say it (Windows)."""
    try:
        return ", load before " + ", ".join(f"{value:.1f}" for value in os.getloadavg())
    except (AttributeError, OSError):
        return ""


def run_apart(file: str, name: str) -> Any:
    """Run `FILE one NAME` in a separate process, of the same muster as this one; return what its
    last line says, as JSON."""
    done = subprocess.run(
        [sys.executable, "-P", file, "one", name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


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
