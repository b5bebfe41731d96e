"""Models by name: the CNN on images, standing or lying flat."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import muster
from muster.federation import RowShape
from small_data import write_idx


def stood_up(fed, shape):
    """The same federation with its flat rows as images."""

    def stand(part):
        return replace(part, x=part.x.reshape(len(part.x), *shape))

    return replace(fed, train=stand(fed.train), test=stand(fed.test), image=None)


def test_flat_images_train_to_the_same_weights_as_standing_ones():
    fed = muster.data.digits(clients=2, priority=1, partition=muster.data.IID())
    assert (fed.shape, fed.image) == ((64,), (1, 8, 8))
    how = {"rounds": 2, "dtype": "float64", "local": muster.Local(steps=2, batch_size=16, lr=0.05)}
    flat = muster.simulate(fed, muster.methods.fedavg(), muster.models.CNN(), **how)
    standing = muster.simulate(
        stood_up(fed, (1, 8, 8)), muster.methods.fedavg(), muster.models.CNN(), **how
    )
    assert flat.final["test_loss"].to_list() == pytest.approx(
        standing.final["test_loss"].to_list(), abs=1e-9
    )
    mine, theirs = flat.weights.values(), standing.weights.values()
    assert len(flat.weights) == len(standing.weights) > 20
    assert next(iter(flat.weights)) == "1.weight", "what makes them stand is the first layer"
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    start = muster.models.CNN().build(fed, 0).state_dict()
    moved = [not np.allclose(a, b) for a, b in zip(mine, start.values(), strict=True)]
    assert any(moved)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_a_flat_row_is_the_image_it_was(shape):
    x = torch.randn(5, *shape)
    flat = muster.models.CNN().build(RowShape((x[0].numel(),), 10, shape), 0).eval()
    standing = muster.models.CNN().build(RowShape(shape, 10), 0).eval()
    with torch.no_grad():
        assert torch.equal(flat(x.flatten(1)), standing(x))


def test_image_sets_know_their_shape(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "none"))
    from muster.data.sets.images import partition_images
    from small_data import small

    data = small(tmp_path)
    fed = partition_images(
        data, write_idx(tmp_path / "here"), tuple("0123456789"), 4, 2, 0, muster.data.IID(), 0
    )
    assert (fed.shape, fed.image) == ((784,), (1, 28, 28))
    run = muster.simulate(
        fed, muster.methods.fedavg(), muster.models.CNN(), 1, muster.Local(steps=1, batch_size=4)
    )
    assert run.final["train_loss"].is_finite().all()
    assert muster.data.synth().image is None


@pytest.mark.parametrize(("space", "model", "message"), [
    (RowShape((60,), 2), muster.models.CNN(), r"rows have shape \(60,\); it needs images"),
    (RowShape((64,), 2), muster.models.CNN(image=(1, 7, 7)), r"to be images of shape \(1, 7, 7\)"),
    (RowShape((64,), 2), muster.models.CNN(image=(8, 8)), r"to be images of shape \(8, 8\)"),
    (
        RowShape((100,), 2, (1, 10, 10)),
        muster.models.CNN(),
        r"of shape \(1, 10, 10\).*divisible by 4",
    ),
])  # fmt: skip
def test_what_is_no_image_is_one_line(space, model, message):
    with pytest.raises(muster.MusterError, match=message) as error:
        model.build(space, 0)
    assert "\n" not in str(error.value)


def test_rows_of_your_own_are_images_if_you_say_so():
    model = muster.models.CNN(image=(1, 4, 4)).build(RowShape((16,), 3), 0).eval()
    assert model(torch.zeros(2, 16)).shape == (2, 3)
