"""Names from before the house had rooms: each is still found, as the module in its new place."""

from __future__ import annotations

import importlib
import inspect

import pytest

import muster
from muster.moved import MOVED


@pytest.mark.parametrize("old", sorted(MOVED))
def test_old_names_are_found(old):
    if old.startswith("flower"):
        pytest.importorskip("flwr")
    module = importlib.import_module(f"muster.{old}")
    assert module is importlib.import_module(f"muster.{MOVED[old]}")
    assert module.__name__ == f"muster.{MOVED[old]}"


def test_functions_keep_the_names_that_modules_had():
    for old in MOVED:
        if not old.startswith("flower"):
            importlib.import_module(f"muster.{old}")
    for function in (muster.simulate, muster.solo, muster.data.digits, muster.data.synth):
        assert inspect.isfunction(function)


def test_portions_were_once_parts():
    from muster.data.parts import Parts

    assert Parts is muster.data.Parts is muster.data.Portions
