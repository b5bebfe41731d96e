"""Compute: how work is run, said once, as a whole or by keywords, and checked in one place."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import muster
import reference
from helpers import federation, same_bits
from muster.engines.compute import ComputeOptions

BAD = {
    "engine": ({"engine": "stackd"}, "unknown engine 'stackd'; did you mean 'stacked'"),
    "dtype": ({"dtype": "float23"}, "unknown dtype 'float23'; did you mean 'float"),
    "device": ({"device": "cdua"}, "unknown device 'cdua'; did you mean 'cuda'"),
    "device number": ({"device": "cuda:one"}, "device: 'cuda:one'; allowed: cpu, cuda, cuda:0"),
    "processes": ({"processes": 0}, "processes: 0; allowed: whole numbers from 1"),
    "half a process": ({"processes": 1.5}, "processes: 1.5; allowed: whole numbers from 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_allowed_is_refused_in_one_line(case):
    given, message = BAD[case]
    with pytest.raises(muster.MusterError, match=message) as caught:
        muster.Compute(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without CUDA would run this")
def test_a_device_that_is_not_here_is_refused_when_it_is_needed():
    """A configuration may name a device of another machine."""
    elsewhere = muster.Compute(device="cuda")
    with pytest.raises(muster.MusterError, match="no CUDA device is present; use device='cpu'"):
        elsewhere.place()


def test_as_a_whole_or_by_keywords():
    fed = federation(reference.problem(0)[0])
    args = (fed, muster.methods.fedavg(), muster.models.Softmax(), 2)
    whole = muster.simulate(*args, compute=muster.Compute("loop", dtype="float64", processes=1))
    words = muster.simulate(*args, engine="loop", dtype="float64", processes=np.int64(1))
    assert whole.engine == words.engine == "loop"
    assert whole.weights["1.weight"].dtype == np.float64
    assert same_bits(whole, words)
    for call in (muster.solo, muster.with_solo):
        a = call(fed, muster.models.Softmax(), compute=muster.Compute(dtype="float64"))
        b = call(fed, muster.models.Softmax(), dtype="float64")
        first, second = (
            r.requirement if isinstance(r, muster.Federation) else r.train.loss for r in (a, b)
        )
        assert np.array_equal(first, second)


def test_not_both_and_nothing_unknown():
    fed = federation(reference.problem(0)[0])
    args = (fed, muster.methods.fedavg(), muster.models.Softmax(), 1)
    with pytest.raises(muster.MusterError, match="compute: given together with dtype; give one"):
        muster.simulate(*args, compute=muster.Compute(), dtype="float64")
    with pytest.raises(muster.MusterError, match="compute: str; give a"):
        muster.simulate(*args, compute="loop")
    with pytest.raises(TypeError, match="unexpected keyword argument 'enginee'"):
        muster.simulate(*args, enginee="loop")


def test_the_keywords_are_the_fields():
    assert set(ComputeOptions.__annotations__) == {
        f.name for f in dataclasses.fields(muster.Compute)
    }
