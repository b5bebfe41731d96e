"""Work side by side: results, mistakes and processes that die."""

from __future__ import annotations

import math
import multiprocessing
import os

import pytest

from muster.base.errors import MusterError
from muster.study.units import WorkerPool, count_workers


def test_one_job_is_this_process():
    with WorkerPool(1) as crowd:
        assert list(crowd.each(math.sqrt, [4.0, 9.0])) == [(4.0, 2.0), (9.0, 3.0)]
    assert count_workers(3, 100) == 3
    assert count_workers(3, 2) == 2
    assert count_workers(3, 0) == 1
    with pytest.raises(MusterError, match="jobs: 0"):
        count_workers(0, 4)


@pytest.mark.slow  # pytest -m slow tests/study/test_crowd.py
def test_several_processes_their_mistakes_and_their_end():
    with WorkerPool(2) as crowd:
        assert sorted(crowd.each(math.sqrt, [4.0, 9.0, 16.0])) == [(4, 2), (9, 3), (16, 4)]
        with pytest.raises(ValueError, match="math domain"):
            list(crowd.each(math.sqrt, [-1.0]))
    with (
        pytest.raises(MusterError, match="a process ended before its work was done"),
        WorkerPool(2) as crowd,
    ):
        list(crowd.each(os._exit, [3]))
    assert not multiprocessing.active_children()
