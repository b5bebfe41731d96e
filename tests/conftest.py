"""Settings for all tests."""

from __future__ import annotations

import os

import torch
from hypothesis import settings

# Tests run side by side, a process a core: more threads in each would only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# A busy machine must not fail a test that is merely slow there.
settings.register_profile("muster", deadline=None)
settings.load_profile("muster")
