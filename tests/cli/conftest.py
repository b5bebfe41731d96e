"""Figures take longer than the runs here: most tests leave them out."""

import pytest

from blank_figures import leave_out_figures


@pytest.fixture
def drawn():
    """Asked for by tests that look at what is drawn."""


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    if "drawn" not in request.fixturenames:
        leave_out_figures(monkeypatch)
