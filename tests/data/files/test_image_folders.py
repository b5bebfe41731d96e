"""Folders of images: from pictures to a federation, and to predictions of new pictures."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import muster
from muster.cli.main import main

draw = np.random.default_rng(0)


def picture(path, bright, size=(4, 6), colour=False):
    """A noisy picture, bright in its left or its right half; returns its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    x = draw.integers(0, 60, (*size, 3) if colour else size)
    half = slice(0, size[1] // 2) if bright == "left" else slice(size[1] // 2, None)
    x[:, half] += 150
    x = x.astype(np.uint8)
    Image.fromarray(x).save(path)
    return x.transpose(2, 0, 1) if colour else x[None]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Two clients with six pictures of each of two classes; the bytes by file."""
    monkeypatch.chdir(tmp_path)
    return {
        (client, side, i): picture(Path(f"photos/{client}/{side}/{i}.png"), side)
        for client in ("south", "north")
        for side in ("right", "left")
        for i in range(6)
    }


def test_clients_and_classes_are_folders(photos):
    fed = muster.Federation.from_folder("photos", test_fraction=0)
    assert fed.names.tolist() == ["north", "south"]
    assert fed.labels == ("left", "right")
    assert (fed.shape, fed.train.x.dtype.itemsize, fed.n) == ((1, 4, 6), 1, 2)
    x, y = (t.numpy() for t in fed.train.client(0))
    assert y.tolist() == [0] * 6 + [1] * 6
    for i in range(6):
        assert (x[i] == photos["north", "left", i]).all()
        assert (x[6 + i] == photos["north", "right", i]).all()


def test_a_single_clients_folder_has_classes_alone(photos):
    fed = muster.Federation.from_folder("photos/north", test_fraction=0)
    assert (fed.n, fed.names.tolist(), fed.labels) == (1, ["north"], ("left", "right"))
    whole = muster.Federation.from_folder("photos", test_fraction=0)
    assert (fed.train.x == whole.train.client(0)[0]).all()
    halves = [
        muster.Federation.from_folder(p, test_fraction=0.5) for p in ("photos", "photos/north")
    ]
    one, other = (fed.test.client(0)[0] for fed in halves)
    assert (one == other).all(), "the same images are held out, read alone or with the others"


def test_classes_and_roles_are_the_federations(photos):
    """A class that one client lacks has the same number everywhere; a manifest is read."""
    for i in range(6):
        Path(f"photos/north/right/{i}.png").unlink()
        picture(Path(f"photos/north/middle/{i}.png"), "left")
    Path("photos/manifest.toml").write_text("test_fraction = 0\n[clients.south]\npriority = true\n")
    fed = muster.Federation.from_folder("photos")
    assert fed.labels == ("left", "middle", "right")
    assert fed.label_counts().tolist() == [[6, 6, 0], [6, 0, 6]]
    assert fed.priority.tolist() == [False, True]


def test_from_pictures_to_predictions(photos, capsys):
    flags = ["--rounds", "20", "--local.lr", "0.5", "--method", "fedavg"]
    assert main(["run", "--data", "photos", *flags, "--name", "sides"]) == 0
    new = {
        f"{side}/{i}.png": picture(Path(f"new/{side}/{i}.png"), side)
        for side in ("left", "right")
        for i in range(2)
    }
    capsys.readouterr()
    assert main(["predict", "runs/sides", "new"]) == 0
    printed = capsys.readouterr()
    said = pl.read_csv(io.StringIO(printed.out))
    assert said.columns == ["row", "file", "label", "prediction", "p_left", "p_right"]
    assert said["file"].to_list() == list(new)
    assert said["prediction"].to_list() == said["label"].to_list()
    assert printed.err.startswith("accuracy 1.0000")
    run = muster.load("runs/sides")
    bare = run.predict(np.stack(list(new.values())))
    np.testing.assert_allclose(said["p_left"], bare["p_left"], atol=1e-9)
    inside = run.predict("new/left")
    assert inside.columns == ["row", "file", "prediction", "p_left", "p_right"]
    assert run.predict("new/right/1.png")["file"].to_list() == ["1.png"]
    for place, says in (
        ("nowhere.png", "nowhere.png: no such file"),
        ("odd/5.png", "odd/5.png: gray 5 x 6; the model was trained on gray 4 x 6"),
        ("middling", "label 'middle' is none of the model's classes"),
        ("empty", "empty: holds no image"),
        ("mixed", "a.txt: allowed here: .png, .jpg, .jpeg images"),
    ):
        picture(Path("odd/5.png"), "left", (5, 6))
        picture(Path("middling/middle/1.png"), "left")
        Path("empty").mkdir(exist_ok=True)
        Path("mixed").mkdir(exist_ok=True)
        Path("mixed/a.txt").write_text("")
        assert main(["predict", "runs/sides", place]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


def test_other_sizes_are_brought_to_one_if_asked(photos):
    picture(Path("photos/north/left/big.png"), "left", (8, 12))
    with pytest.raises(muster.MusterError, match=r"photos/north/left/big\.png: gray 8 x 12, and "
                       r"photos/north/left/0\.png gray 4 x 6 .*or resize"):  # fmt: skip
        muster.Federation.from_folder("photos")
    fed = muster.Federation.from_folder("photos", resize=(2, 3))
    assert fed.shape == (1, 2, 3)
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), rounds=1)
    muster.save(run, "runs/small")
    assert len(muster.load("runs/small").predict("photos/north/left")) == 7


def test_colours_palettes_and_bits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = picture(Path("p/a/x/1.png"), "left", colour=True)
    picture(Path("p/a/y/1.jpg"), "right", colour=True)
    Image.open("p/a/x/1.png").convert("RGBA").save("p/a/x/2.png")
    Image.open("p/a/x/1.png").convert("P", palette=Image.Palette.ADAPTIVE).save("p/a/y/2.png")
    fed = muster.Federation.from_folder("p", test_fraction=0)
    x = fed.train.client(0)[0].numpy()
    assert x.shape == (4, 3, 4, 6)
    assert (x[0] == kept).all()
    assert (x[1] == kept).all(), "transparency is dropped"
    assert np.abs(x[3].astype(int) - kept).max() < 40
    picture(Path("p/a/y/3.png"), "left")
    with pytest.raises(muster.MusterError, match=r"3\.png: gray 4 x 6, and .*1\.png colour 4 x 6"):
        muster.Federation.from_folder("p")
    Image.fromarray(np.zeros((4, 6), np.uint16)).save("p/a/y/3.png")
    with pytest.raises(muster.MusterError, match=r"3\.png: more than 8 bits"):
        muster.Federation.from_folder("p")
    Path("p/a/y/3.png").write_bytes(b"nothing")
    with pytest.raises(muster.MusterError, match=r"3\.png: not readable as png"):
        muster.Federation.from_folder("p")


@pytest.mark.parametrize(
    ("change", "how", "says"),
    [
        (lambda: Path("photos/north/a.csv").write_text("a"), {}, "a.csv: allowed here: a folder"),
        (lambda: Path("photos/north/left/a.txt").write_text("a"), {}, r"a\.txt: allowed here: \.p"),
        (lambda: picture(Path("photos/west/1.png"), "left"), {},
         "photos/west: holds images, and photos/north none; give folders as client/class"),
        (lambda: Path("photos/west").mkdir(), {}, "photos/west: holds no image"),
        (lambda: None, {"label": "side"}, "label: images have no columns"),
        (lambda: None, {"scale": "pooled"}, "targets, scale: images have classes"),
        (lambda: None, {"resize": (4,)}, r"resize: .*allowed: \[height, width\]"),
        (lambda: None, {"classes": ("left", "rihgt")}, "label 'right' is not among classes"),
        (lambda: None, {"path": "photos.npz", "resize": (4, 4)}, "resize: it is for folders"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(photos, change, how, says):
    change()
    np.savez("photos.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    with pytest.raises(muster.MusterError, match=says) as error:
        muster.Federation.from_folder(**{"path": "photos", **how})
    assert "\n" not in str(error.value)


def test_a_node_reads_the_folder_of_its_client(photos):
    pytest.importorskip("flwr")
    from muster.config.network import Network
    from muster.flower.client.node_data import read_own_data

    network = Network(classes=("left", "middle", "right"))
    fed = read_own_data({"data-path": "photos/north", "test-fraction": 0.0}, network, seed=0)
    x, y = (t.numpy() for t in fed.train.client(0))
    assert fed.labels == ("left", "middle", "right")
    assert y.tolist() == [0] * 6 + [2] * 6
    assert (x[0] == photos["north", "left", 0]).all()


def test_pictures_of_a_federation_of_pictures(photos, capsys):
    assert main(["data", "show", "photos", "--out", "p.png"]) == 0
    assert Path("p.png").exists()
    assert "left" in capsys.readouterr().out


def test_other_kinds_of_images_are_refused_whatever_they_are_called(tmp_path):
    place = tmp_path / "one" / "a" / "x.png"
    place.parent.mkdir(parents=True)
    Image.new("L", (4, 4)).save(place, "TIFF")
    with pytest.raises(muster.MusterError, match=r"x\.png: not readable as png \(no PNG or JPEG"):
        muster.data.from_folder(tmp_path)
