"""Frames of every study, small, made once for all files here and for all workers of a test run."""

from __future__ import annotations

import polars as pl
import pytest
from filelock import FileLock

from muster.papers.theory import study


@pytest.fixture(scope="session")
def once(tmp_path_factory, request):
    """A function that makes a frame, or reads what another worker made."""
    worker = hasattr(request.config, "workerinput")
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if worker else base

    def get(name, make):
        path = folder / f"{name}.parquet"
        with FileLock(folder / f"{name}.lock"):
            if not path.exists():
                make().write_parquet(path)
            return pl.read_parquet(path)

    return get


@pytest.fixture(scope="session")
def bound(once):
    return once("bound", lambda: study.bound(seeds=4, rounds=5))


@pytest.fixture(scope="session")
def corollary2(once):
    return once("corollary2", lambda: study.corollary2(seeds=1, rounds=40))


@pytest.fixture(scope="session")
def toy(once):
    return once("toy", lambda: study.toy(quick=True))


@pytest.fixture(scope="session")
def rate(once):
    return once("rate", lambda: study.rate(seeds=2, rounds=128))
