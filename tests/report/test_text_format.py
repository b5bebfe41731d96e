"""Names of swept keys."""

from __future__ import annotations

import pytest

from muster.report.text_format import name_keys


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["local.lr"], ["lr"]),
        (["method.epsilon", "rounds"], ["epsilon", "rounds"]),
        (["local.steps", "requirement.steps", "data.priority"],
         ["local steps", "requirement steps", "priority"]),
        (["methods.fedalign.local.lr", "local.lr"], ["fedalign: lr", "lr"]),
        (["methods.fedalign.local.lr", "methods.all-1.5.local.lr"],
         ["fedalign: lr", "all-1.5: lr"]),
        (["methods.fedalign.local.steps", "methods.fedalign.step.steps"],
         ["fedalign: local steps", "fedalign: step steps"]),
        (["size", "data.partition.size", "data.size"], ["size", "partition size", "data size"]),
    ],
)  # fmt: skip
def test_keys_are_distinct_and_name_their_method(keys, names):
    assert list(name_keys(keys, ["fedalign", "all-1.5"]).values()) == names
