"""Tables of a run folder: columns that only some runs have are checked where they are."""

from __future__ import annotations

import polars as pl
import pytest

from big_run import big_run
from muster.results.validation import check_columns


def test_the_deployed_models_are_true_or_false_or_not_there():
    rounds = big_run(3, 4).rounds
    check_columns("rounds", rounds)
    check_columns("rounds", rounds.with_columns(helped=pl.Series([True, False, True, True])))
    for wrong in (["yes"] * 4, [1.0] * 4):
        with pytest.raises(ValueError, match=r"column 'helped' holds .*; true or false belong"):
            check_columns("rounds", rounds.with_columns(helped=pl.Series(wrong)))
    with pytest.raises(ValueError, match="column 'helped' has nulls"):
        check_columns("rounds", rounds.with_columns(helped=pl.Series([True, None, True, True])))
