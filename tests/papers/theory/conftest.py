"""Frames of every study, small, made once for all files here."""

from __future__ import annotations

import pytest

from muster.papers.theory import study


@pytest.fixture(scope="session")
def bound():
    return study.bound(seeds=4, rounds=5)


@pytest.fixture(scope="session")
def corollary2():
    return study.corollary2(seeds=1, rounds=40)


@pytest.fixture(scope="session")
def toy():
    return study.toy(quick=True)


@pytest.fixture(scope="session")
def rate():
    return study.rate(seeds=2, rounds=128)
