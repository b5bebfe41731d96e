"""How many threads torch uses, where an engine does the dividing itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def alone() -> None:
    """Let torch use this thread only."""
    torch.set_num_threads(1)


@contextmanager
def one_thread() -> Iterator[int]:
    """Run torch on one thread; gives the number it had, and puts it back."""
    before = torch.get_num_threads()
    alone()
    try:
        yield before
    finally:
        torch.set_num_threads(before)
