"""Hugging Face data through a partitioner: each partition is a client, rows as they are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import muster

# Small numbers to read in a test are large ones to train on.
pytestmark = pytest.mark.filterwarnings("ignore:features need scaling")

load = muster.Federation.from_partitioner
NEEDS = "needs flwr-datasets: pip install 'muster-fl[huggingface]'"


class Rows:
    """The few methods of a datasets.Dataset that are used."""

    def __init__(self, columns, features=None):
        self.columns = columns
        self.features = features or dict.fromkeys(columns)
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def select_columns(self, names):
        return Rows({name: self.columns[name] for name in names})

    def with_format(self, kind):
        assert kind == "numpy"
        return self

    def __getitem__(self, key):
        assert key == slice(None)
        return self.columns


class Cut:
    """A partitioner: rows k, k + n, k + 2n, ... are client k's."""

    def __init__(self, columns, n, features=None):
        self.dataset = Rows(columns, features)
        self.num_partitions = n

    def load_partition(self, k):
        n = self.num_partitions
        columns = {name: values[k::n] for name, values in self.dataset.columns.items()}
        return Rows(columns, self.dataset.features)


class ClassLabel:
    names = ("no", "yes", "unclear")


Y = np.arange(12) // 3 % 2


def test_numbers_and_lists_side_by_side():
    a, b = np.arange(12.0), np.arange(24.0).reshape(12, 2)
    fed = load(Cut({"a": a, "b": b, "label": Y}, 3), priority=[0, 2], test_fraction=0)
    x, y = fed.train.client(1)
    assert x.dtype == __import__("torch").float32
    np.testing.assert_array_equal(x.numpy(), np.column_stack([a, b])[1::3])
    np.testing.assert_array_equal(y.numpy(), Y[1::3])
    assert fed.priority.tolist() == [True, False, True]
    assert fed.names.tolist() == ["0", "1", "2"]


def test_images_are_bytes_with_channels_first():
    grey = np.arange(12 * 4 * 5, dtype=np.uint8).reshape(12, 4, 5)
    assert load(Cut({"image": grey, "label": Y}, 2)).train.x.shape[1:] == (1, 4, 5)
    colour = np.random.default_rng(0).integers(0, 255, (12, 4, 5, 3)).astype(np.uint8)
    fed = load(Cut({"image": colour, "label": Y}, 2), test_fraction=0)
    x, _ = fed.train.client(0)
    assert str(x.dtype) == "torch.uint8"
    np.testing.assert_array_equal(x.numpy(), colour[::2].transpose(0, 3, 1, 2))


def test_class_labels_bring_their_names():
    fed = load(Cut({"a": np.arange(12.0), "label": Y}, 2, {"a": None, "label": ClassLabel()}))
    assert fed.labels == ("no", "yes", "unclear")
    assert fed.classes == 3
    named = load(Cut({"a": np.arange(12.0), "label": np.array(["b", "a"])[Y]}, 2))
    assert named.labels == ("a", "b")


RAGGED = np.empty(12, object)
RAGGED[:] = [[0.0] * (k + 1) for k in range(12)]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": Y * 1.0, "label": Y}, {"label": "lable"}, "no column 'lable'; did you mean 'label'"),
        ({"a": Y * 1.0, "label": Y}, {"features": ["b"]}, "partition 0: no column 'b'"),
        ({"label": Y}, {}, "partition 0: no column but the label"),
        ({"text": np.array(["t"] * 12), "label": Y}, {}, "column 'text': holds <U1"),
        ({"a": RAGGED, "label": Y}, {}, "column 'a': holds object"),
        ({"a": np.where(Y, np.nan, 0), "label": Y}, {}, "column 'a', row 3: missing or not finite"),
        ({"a": Y * 1.0, "label": Y - 1}, {}, "partition 0: column 'label', row 1: label -1"),
        ({"a": Y * 1.0, "label": Y}, {"priority": 3}, "priority (of 2 clients): 3; allowed"),
    ],
)
def test_bad_data_is_one_line(columns, options, message):
    with pytest.raises(muster.MusterError) as caught:
        load(Cut(columns, 2), **options)
    assert message in str(caught.value)


@pytest.mark.filterwarnings("ignore")  # of the packages themselves, not of muster
def test_a_real_partitioner_over_a_real_data_set():
    datasets = pytest.importorskip("datasets", reason=NEEDS)
    partitioners = pytest.importorskip("flwr_datasets.partitioner", reason=NEEDS)
    pixels, y = load_digits(return_X_y=True)
    images = pixels.reshape(-1, 8, 8).astype(np.uint8) * 15
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=[*"0123456789"])}
    )
    data = datasets.Dataset.from_dict({"image": list(images), "label": y}, features=features)
    cut = partitioners.DirichletPartitioner(
        num_partitions=8, partition_by="label", alpha=0.5, min_partition_size=10, seed=3
    )
    cut.dataset = data
    fed = load(cut, priority=2, test_fraction=0)
    assert (fed.n, fed.classes, int(fed.train.offsets[-1])) == (8, 10, len(y))
    for k in range(fed.n):
        mine = cut.load_partition(k)
        x, labels = fed.train.client(k)
        assert labels.tolist() == mine["label"][:]
        expected = np.stack([np.asarray(image) for image in mine["image"]])
        np.testing.assert_array_equal(x.numpy()[:, 0], expected)
    fed = load(cut, priority=2)
    run = muster.simulate(fed, muster.methods.fedalign(), muster.models.Softmax(), rounds=10)
    assert run.rounds["loss"][-1] < run.rounds["loss"][0]
