"""Figures take longer than the runs here: most tests leave them out. A folder with a small
experiment is where several commands are tried."""

import pytest

from blank_figures import leave_out_figures

SMALL = """
rounds = 2
seeds = 2
data = {name = "digits", clients = 6, priority = 2}
local = {steps = 2, batch_size = 8}
methods = ["fedavg", "fedalign"]
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder that commands run in, with `small.toml`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def drawn():
    """Asked for by tests that look at what is drawn."""


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    if "drawn" not in request.fixturenames:
        leave_out_figures(monkeypatch)
