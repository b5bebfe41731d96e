"""What attacks cost, as a table: every run is in it once, and losses are taken seed by seed."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

import muster
from muster.cli.main import main
from muster.papers import trust_study
from muster.papers.trust_study import (
    TrustCell,
    TrustStudy,
    find_loss,
    list_cells,
    make_table,
    markdown,
)


def test_every_run_once_and_one_reply_once_only():
    todo = list_cells(["fedavg", "fedalign"], ["ALIE", trust_study.ONCE[0]], (0.1, 0.2), 2)
    assert len(todo) == len(set(todo)) == 2 * 2 * (1 + 2 + 1)
    with pytest.raises(muster.MusterError, match="fedalgin"):
        list_cells(["fedalgin"], [], (), 1)


def test_a_row_and_what_was_lost():
    study = TrustStudy(rounds=3)
    row = study.run_cell(TrustCell("fedalign, trust", "-10 x", 0.2, 0))
    assert 0 <= row["accuracy"] <= 1
    assert row["liars_kept"] <= row["honest_kept"]
    assert row["trials"] > 0
    made = [
        {**row, "attack": attack, "share": share, "seed": seed, "accuracy": accuracy}
        for attack, share, seed, accuracy in (
            ("none", 0.0, 0, 0.9),
            ("none", 0.0, 1, 0.8),
            ("-10 x", 0.2, 0, 0.8),
            ("-10 x", 0.2, 1, 0.7),
        )
    ]
    frame = make_table(made)
    found = find_loss(frame, "fedalign, trust", "-10 x", 0.2)
    assert found.mean == pytest.approx(10)
    assert found.half == pytest.approx(0, abs=1e-9)
    assert find_loss(frame, "fedalign, trust", "-10 x", 0.4) is None
    # Every client holds out 8 of its 42 rows, and both seeds divide the same ones.
    half = stats.t.ppf(0.975, 1) * np.std([90, 80], ddof=1) * np.sqrt(1 / 2 + 8 / 34)
    assert f"| fedalign, trust | 85.0 ± {half:.1f} | 10.0 ± 0.0 |" in markdown(frame)
    assert isinstance(frame, pl.DataFrame)


def test_the_command_says_what_it_cannot_do(capsys):
    assert main(["trust", "--shares", "2"]) == 2
    assert "shares: [2.0]; allowed: above 0, below 1" in capsys.readouterr().err
    assert main(["trust", "--seeds", "many"]) == 2
