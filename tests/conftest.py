"""Settings for all tests."""

from __future__ import annotations

import os
import socket

import torch
from hypothesis import settings

HOME = ("127.0.0.1", "localhost", "::1")

# Tests run side by side, a process a core: more threads in each would only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# A busy machine must not fail a test that is merely slow there.
settings.register_profile("muster", deadline=None)
settings.load_profile("muster")


def pytest_configure(config):
    """No test touches the network: only this machine can be reached from here."""
    connect = socket.socket.connect

    def at_home(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in HOME:
            raise OSError(f"a test reached for {address[0]}")
        return connect(self, address)

    socket.socket.connect = at_home
