"""Clients' names: of any digits, and not of any length."""

from __future__ import annotations

import pytest

from muster.base.errors import MusterError
from muster.data import from_folder
from muster.data.files.assembly import natural_key


def test_numbers_in_names_are_sorted_by_size_however_long_they_are():
    names = ["c10", "c9", "c09", "c" + "9" * 5000, "c0", "b"]
    assert sorted(names, key=natural_key) == ["b", "c0", "c09", "c9", "c10", "c" + "9" * 5000]


def test_a_clients_name_without_end_is_refused(tmp_path):
    rows = "".join(f"{name},{i},{i % 2}\n" for i, name in enumerate(["a", "b" * 300, "a", "b"]))
    (tmp_path / "data.csv").write_text(f"client,x,label\n{rows}")
    with pytest.raises(
        MusterError, match="row 2: a client's name of 300 characters; allowed: up to"
    ):
        from_folder(tmp_path / "data.csv", test_fraction=0.0)
