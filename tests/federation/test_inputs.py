"""What a model takes: new rows become what training rows were."""

from __future__ import annotations

import json

import numpy as np
import pytest

import muster
from muster.federation import Inputs, Scaler


def test_it_is_read_back_to_the_same_bits():
    draw = np.random.default_rng(0)
    scale = Scaler(draw.normal(size=(2, 3)), draw.uniform(1, 2, (2, 3)) / 3)
    inputs = Inputs((2, 3), 2, labels=("no", "yes"), columns=("a",), aside=None, scaler=scale)
    back = Inputs.from_dict(json.loads(json.dumps(inputs.to_dict())))
    assert np.array_equal(back.scaler.mean, scale.mean)
    assert np.array_equal(back.scaler.std, scale.std)
    left, right = vars(back) | {"scaler": 0}, vars(inputs) | {"scaler": 0}
    assert left == right


def test_the_kind_of_features_is_that_of_the_rows():
    pixels = np.arange(8, dtype=np.uint8).reshape(4, 2) * 30
    for x, kind in ((pixels, "pixels"), (pixels.astype(int), "whole"), (pixels / 255, "real")):
        fed = muster.Federation.from_arrays(train=[(x, [0, 1, 0, 1])])
        inputs = fed.inputs
        assert inputs.kind == kind
        same = inputs.transform(x)
        assert same.dtype == fed.train.x.numpy().dtype
        assert np.array_equal(same, fed.train.x.numpy())
    # The same pixels, as a CSV file or a list of whole numbers has them.
    taken = Inputs((2,), 2, "pixels").transform(pixels.astype(np.int64))
    assert taken.dtype == np.uint8
    assert np.array_equal(Inputs((2,), 2, "real").transform(pixels), pixels.astype(float))


def test_images_lie_or_stand_but_are_never_turned():
    inputs = Inputs((12,), 2, image=(1, 3, 4))
    x = np.arange(24.0).reshape(2, 1, 3, 4)
    assert np.array_equal(inputs.transform(x), x.reshape(2, 12))
    assert np.array_equal(inputs.transform(x.reshape(2, 12)), x.reshape(2, 12))
    with pytest.raises(muster.MusterError, match=r"takes numbers of shape \(rows, 12\)"):
        inputs.transform(x.reshape(2, 3, 4, 1))


@pytest.mark.parametrize(("kind", "x", "message"), [
    ("real", np.zeros((0, 2)), "there are none"),
    ("real", np.array([[0.0, 1.0], [np.nan, 0.0]]), "row 2 is not finite"),
    ("real", np.array([["a", "b"]]), "takes numbers"),
    ("real", np.zeros(2), "takes numbers of shape"),
    ("pixels", np.array([[0, 256]]), "0 to 256; pixels are whole numbers from 0 to 255"),
    ("whole", np.array([[0.5, 1.0]]), "fractions"),
])  # fmt: skip
def test_rows_that_do_not_fit_are_one_line(kind, x, message):
    with pytest.raises(muster.MusterError, match=message):
        Inputs((2,), 2, kind).transform(x)
