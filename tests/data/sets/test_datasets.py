"""The data sets themselves, on their real bytes where the machine has them: counts, classes, means.

Published figures are checked against what is loaded; tests of data the machine lacks are skipped
with the command that gets it.
"""

from __future__ import annotations

import io
import tarfile
import zipfile

import numpy as np
import pytest
import torch

from muster.base.errors import MusterError
from muster.data import (
    CATALOGUE,
    DATA,
    IID,
    LabelMix,
    cifar10,
    emnist,
    fmnist,
    mnist,
)
from muster.data.sets import images
from muster.data.sources.readers import (
    cifar_binary,
    cifar_png,
    emnist_files,
    emnist_idx,
    emnist_zip,
)
from small_data import SHARED, here, idx, shared, write_idx

BYCLASS, BALANCED = "emnist_byclass_test.npz", "emnist_balanced47_subset.npz"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def labels(fed):
    return torch.bincount(fed.train.y).tolist()


@here("fmnist")
def test_fashion_mnist_as_the_paper_splits_it():
    fed = fmnist()
    assert (fed.n, fed.classes, int(fed.priority.sum()), fed.note) == (60, 10, 2, "")
    assert (tuple(fed.train.x.shape), fed.train.x.dtype) == ((60_000, 784), torch.uint8)
    assert labels(fed) == [6000] * 10
    assert torch.bincount(fed.test.y).tolist() == [1000] * 10
    assert sorted(fed.train.rows) == list(range(60_000))
    counts = fed.label_counts()
    assert set(counts.ravel()) <= {0, 500, 1000}
    assert (counts.sum(axis=1) == 1000).all()
    # Published statistics of the training pixels: mean 0.2860, deviation 0.3530 (of 255).
    pixels = fed.train.x.numpy()
    assert pixels.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
    assert pixels.std(dtype=np.float64) / 255 == pytest.approx(0.3530, abs=1e-4)
    for k in (0, 59):
        y = fed.test.client(k)[1].numpy()
        weight = fed.test.row_weights(fed.test.positions(np.array([k])))
        assert np.bincount(y, weight, minlength=10) == pytest.approx(counts[k] / 1000)
        assert len(y) == 1000 * np.count_nonzero(counts[k])


@here("fmnist")
def test_fashion_mnist_with_as_many_unseen_clients_as_seen():
    fed = fmnist(clients=200, priority="all", unseen=100, partition=LabelMix(0.05))
    assert (fed.n, int(fed.unseen.sum()), int(fed.priority.sum())) == (200, 100, 100)
    assert set(fed.train.sizes) == {300}
    assert len(np.unique(fed.train.rows)) == 60_000


@here("mnist")
def test_mnist_has_its_published_counts():
    fed = mnist()
    assert labels(fed) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert len(fed.test.y) == 10_000
    assert fed.train.y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    pixels = fed.train.x.numpy()
    assert pixels.mean() / 255 == pytest.approx(0.1307, abs=1e-4)
    assert pixels.std(dtype=np.float64) / 255 == pytest.approx(0.3081, abs=1e-4)


@here("cifar10")
def test_cifar10_has_its_published_counts_and_means():
    fed = cifar10()
    assert (tuple(fed.train.x.shape), fed.train.x.dtype) == ((50_000, 3, 32, 32), torch.uint8)
    assert labels(fed) == [5000] * 10
    assert torch.bincount(fed.test.y).tolist() == [1000] * 10
    means = [fed.train.x[:, c].double().mean().item() / 255 for c in range(3)]
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    # In the order of the official files: the first labels, and those of the first batch.
    assert fed.train.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    first = torch.bincount(fed.train.y[:10_000]).tolist()
    assert first == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    # The first image is a frog whose top left pixel is (59, 62, 63).
    assert fed.train.x[0, :, 0, 0].tolist() == [59, 62, 63]


def test_both_layouts_of_cifar_give_the_same_arrays(tmp_path):
    from PIL import Image

    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (12, 3, 32, 32), np.uint8)
    y = draw.integers(0, 10, 12, np.uint8)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for i, name in enumerate(names):
            rows = slice(2 * i, 2 * i + 2)
            flat = np.concatenate([y[rows, None], x[rows].reshape(2, -1)], axis=1).tobytes()
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(flat)
            archive.addfile(member, io.BytesIO(flat))
            pixels = x[rows].transpose(0, 2, 3, 1).reshape(2, 1024, 3)
            Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    (tmp_path / "train_lables.json").write_text(str(y[:10].tolist()))
    (tmp_path / "test_lables.json").write_text(str(y[10:].tolist()))
    binary = cifar_binary([tmp_path / "cifar-10-binary.tar.gz"])
    png = cifar_png([tmp_path / f for f in CATALOGUE["cifar10"].layouts[0].files])
    for name, expected in (("x", x[:10]), ("y", y[:10]), ("test_x", x[10:]), ("test_y", y[10:])):
        assert np.array_equal(binary[name], expected)
        assert np.array_equal(png[name], expected)


def test_a_broken_picture_is_one_line(root, tmp_path):
    for name in CATALOGUE["cifar10"].layouts[0].files:
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n broken")
    with pytest.raises(MusterError, match=f"{tmp_path}: cannot be read .*get them again") as caught:
        cifar10(folder=tmp_path)
    assert "\n" not in str(caught.value)


def test_official_emnist_files_are_turned_upright(tmp_path):
    """In them rows and columns are swapped: the first row that `write_idx` marks is a column."""
    names = emnist_files("balanced")
    folder = write_idx(tmp_path / "loose", names)
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for name in names:
            archive.write(folder / f"{name}.gz", f"gzip/{name}.gz")
    loose = emnist_idx([folder / f"{name}.gz" for name in names])
    whole = emnist_zip("balanced")([tmp_path / "gzip.zip"])
    assert np.array_equal(loose["y"], np.arange(40) % 10)
    picture = loose["x"].reshape(-1, 28, 28)
    assert (picture[:, :, 0] == loose["y"][:, None]).all()
    assert (picture[:, :, 1:] == 0).all()
    for name, array in loose.items():
        assert np.array_equal(whole[name], array)


def test_an_archive_of_another_make_is_refused(root, tmp_path):
    (tmp_path / "gzip.zip").write_bytes(b"PK")
    with pytest.raises(MusterError, match=r"gzip\.zip: its md5 is .* EMNIST balanced is 58c8d27c"):
        emnist(folder=tmp_path)


@pytest.mark.parametrize("split", ["balanced", "byclass"])
def test_loose_official_files_of_another_size_are_refused(root, tmp_path, split):
    write_idx(tmp_path / "own", emnist_files(split))
    with pytest.raises(
        MusterError, match=r"x has shape \(40, 784\), that of EMNIST b.* is \((112|697)"
    ):
        emnist(split, folder=tmp_path / "own")


@shared(BALANCED)
def test_the_balanced_subset_says_that_it_is_one(root):
    fed = emnist(folder=SHARED)
    assert (fed.n, fed.classes, fed.name) == (60, 47, "emnist_balanced")
    assert labels(fed) == [817] * 47
    assert torch.bincount(fed.test.y).tolist() == [100] * 47
    assert "subset" in fed.note
    assert "not the official split" in fed.note
    with np.load(SHARED / BALANCED) as raw:
        assert np.array_equal(fed.train.x.numpy(), raw["x_train"].reshape(-1, 784))
    # Found again without the folder, now from the cache, to the same bits.
    again = emnist()
    assert again.fingerprint() == fed.fingerprint()
    assert again.note == fed.note


@shared(BYCLASS)
def test_500_seen_and_500_unseen_clients_of_emnist_by_class(root):
    fed = emnist(
        "byclass", SHARED, clients=1000, priority="all", unseen=500, partition=LabelMix(0.3)
    )
    assert (fed.n, int(fed.unseen.sum()), fed.classes) == (1000, 500, 62)
    assert len(fed.train.y) == 116_323
    assert len(labels(fed)) == 62
    assert min(labels(fed)) > 0
    assert set(fed.train.sizes + fed.test.sizes) == {116}
    assert not np.intersect1d(fed.train.rows, fed.test.rows).size
    assert "not the official split" in fed.note


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("mnist", "muster data get mnist"),
        ("cifar10", "muster data get cifar10"),
        ("emnist", "muster data get emnist_balanced"),
        ("femnist", "muster data get femnist --folder PATH"),
        ("sent140", "muster data get sent140"),
    ],
)
def test_missing_data_is_one_line_with_the_places_and_the_command(root, name, command):
    with pytest.raises(MusterError, match=rf"is not in {root}.*; run `{command}`$") as caught:
        DATA[name]()
    assert "\n" not in str(caught.value)


def test_a_split_that_is_not_there_is_named():
    with pytest.raises(MusterError, match="emnist split: 'letters'; allowed: balanced, byclass"):
        emnist("letters")


def test_every_data_set_by_name_is_in_the_catalogue():
    assert set(DATA) - {"emnist", "folder", "huggingface"} <= set(CATALOGUE)
    assert {f"emnist_{split}" for split in ("balanced", "byclass")} <= set(CATALOGUE)


def test_a_new_image_data_set_is_an_entry_and_a_call(root, tmp_path):
    from small_data import small

    data = small(tmp_path)
    fed = images.partition_images(
        data, tmp_path / "right40", tuple("0123456789"), 4, [2], 1, IID(), seed=1
    )
    assert (fed.n, fed.name, fed.priority.tolist()) == (4, "small", [False, False, True, False])
    assert fed.unseen.tolist() == [False, False, False, True]
    for k in range(4):
        x, y = fed.train.client(k)
        assert (x[:, 0] == y).all()


def test_idx_of_the_wrong_shape_is_refused(root, tmp_path):
    folder = write_idx(tmp_path / "own", side=27)
    with pytest.raises(MusterError, match=r"train-images.* shape \(40, 27, 27\); expected: uint8"):
        fmnist(folder)
    (write_idx(folder) / "t10k-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros((40, 1))))
    with pytest.raises(MusterError, match=r"t10k-images.* shape \(40, 1\); expected: .* \(40,\)"):
        fmnist(folder)


@shared("emnist_balanced47_subset.npz", "emnist_byclass_test.npz")
def test_classes_have_their_names():
    from muster.data.sets.images import BALANCED, CHARACTERS, CLOTHES, DIGITS, THINGS

    assert [len(n) for n in (DIGITS, CLOTHES, THINGS, BALANCED, CHARACTERS)] == [10, 10, 10, 47, 62]
    for split, labels, file in (
        ("balanced", BALANCED, "emnist_balanced47_subset.npz"),
        ("byclass", CHARACTERS, "emnist_byclass_test.npz"),
    ):
        with np.load(SHARED / file) as saved:
            assert tuple(saved["classes"].astype(str)) == labels
        fed = emnist(split=split, folder=SHARED, clients=10, partition=IID())
        assert fed.labels == labels
