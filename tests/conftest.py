"""Settings for all tests."""

from __future__ import annotations

import gc
import os
import signal
import socket

import pytest
import torch
from hypothesis import settings

HOME = ("127.0.0.1", "localhost", "::1")

# Tests run side by side, a process a core: more threads in each, and in the programs that they
# start, would only wait for each other.
torch.set_num_threads(1)
for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(name, "1")

# A busy machine must not fail a test that is merely slow there.
settings.register_profile("muster", deadline=None)
settings.load_profile("muster")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays to the end: the garbage collector need not look through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_configure(config):
    """No test touches the network: only this machine can be reached from here. Nor does one wait
    for the disk: its files need not survive a power cut."""
    os.fsync = os.fstat  # fails for the same handles
    # As with threads: what does not say how many processes it takes would start one for each core.
    os.sched_getaffinity = lambda pid: {0}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a shell: there are tests of Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    connect = socket.socket.connect

    def at_home(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in HOME:
            raise OSError(f"a test reached for {address[0]}")
        return connect(self, address)

    socket.socket.connect = at_home
