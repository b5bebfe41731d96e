"""Results of any kind, read back from their folder."""

from __future__ import annotations

from pathlib import Path

from ..run import store
from ..run.result import Run
from .comparison import Comparison, is_comparison, load_comparison
from .sweep import Sweep, is_sweep, load_sweep


def load(folder: str | Path) -> Run | Comparison | Sweep:
    """Read results back: the run, the comparison or the sweep that a folder holds."""
    folder = Path(folder)
    if is_sweep(folder):
        return load_sweep(folder)
    alone = store.is_run(folder) or not is_comparison(folder)
    return store.load(folder) if alone else load_comparison(folder)
