"""Configurations of any shape: checked, or refused in one line; nothing else."""

from __future__ import annotations

import tomllib

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

import muster
from muster.config.experiment import Experiment, load, load_table
from muster.methods import METHODS

scalars = st.one_of(
    st.booleans(), st.integers(-(10**6), 10**6), st.floats(allow_nan=True), st.text(max_size=8),
    st.sampled_from(["fedalign", "digits", "softmax", "median", "liars", "audit", "auto", "x:y"]),
)  # fmt: skip
keys = st.sampled_from(
    ["name", "kind", "rounds", "seed", "seeds", "data", "model", "method", "methods", "local",
     "trust", "attack", "step", "then", "epsilon", "network", "clients", "requirement", "label",
     "warmup", "partition", "lr", "steps", "f", "fraction", "nonsense", ""]
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
tables = st.dictionaries(keys, values, max_size=5)


def outcome(make):
    """What was made, and what was said instead; any other error is a failure."""
    try:
        return make(), ""
    except muster.MusterError as error:
        return None, str(error)


@settings(max_examples=60, deadline=None)
@given(tables)
def test_any_table_is_an_experiment_or_one_line(table):
    chosen, said = outcome(lambda: load(table))
    if chosen is None:
        assert said
        assert "\n" not in said
    else:
        assert isinstance(chosen, Experiment)
        again = load(tomllib.loads(tomli_w.dumps(chosen.resolve())))
        assert again.methods.keys() == chosen.methods.keys()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(METHODS)), st.dictionaries(keys, values, max_size=3))
def test_any_method_table_too(name, more):
    _, said = outcome(lambda: load({"method": {**more, "name": name}}))
    assert "\n" not in said


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_file_is_toml_or_one_line(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    file.write_bytes(content)
    found, said = outcome(lambda: load_table(file))
    assert found is not None or "not valid TOML" in said


def test_the_readers_of_rows_are_fuzzed_elsewhere():
    """Wire: tests/flower/test_robust.py; files of rows: tests/data; the guard: test_soak."""
    with pytest.raises(muster.MusterError):
        load({"attack": {"kind": "faults", "kinds": ["nonsense"]}})
