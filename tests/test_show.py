"""`muster data show`: the table says what the clients hold, and the picture is one."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import matplotlib.image
import numpy as np
import polars as pl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

import muster
from muster.cli.data_show import heading, show
from muster.report.picture import (
    COLUMNS,
    by_main_class,
    heat_map,
    image_shape,
    rows_of_classes,
    sample_sheet,
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(*words):
    """What the command prints."""
    console = Console(width=160, file=io.StringIO())
    assert show(list(words), console) == 0
    return console.file.getvalue()


def row(text, name):
    """The cells of a client's row, the bar aside."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [name])


def test_the_table_says_what_each_client_holds(here):
    flags = [
        "--clients",
        "6",
        "--partition",
        "dirichlet",
        "--partition.alpha",
        "0.5",
        "--seed",
        "4",
    ]
    text = shown("digits", *flags)
    fed = muster.data.digits(clients=6, partition=muster.data.Dirichlet(0.5), seed=4)
    assert "digits: 6 clients, 2 priority; " in text
    for k in range(6):
        _, y = fed.train.client(k)
        role = "priority" if k < 2 else "-"
        held = len(np.unique(y.numpy()))
        cells = [str(k), role, str(len(y)), str(fed.test.sizes[k]), str(held)]
        assert row(text, str(k))[:5] == cells
    assert "figure: digits-data.png" in text
    assert "more clients" not in text


def test_the_bar_is_highest_at_the_main_class(here):
    rows = "age,label\n" + "1,0\n" * 8 + "1,2\n" * 4 + "1,3\n"
    Path("north.csv").write_text(rows)
    text = shown("./north.csv", "--test_fraction", "0")
    line = next(line for line in text.splitlines() if line.split()[:1] == ["north"])
    assert line.rstrip().endswith("█ ▄▁")


def test_many_clients_are_summed_up_in_quantiles(here):
    text = shown("digits", "--clients", "90", "--partition", "iid", "--out", "some.png")
    assert "... and 70 more clients; of all 90:" in text
    fed = muster.data.digits(clients=90, partition=muster.data.IID())
    median = row(text, "median")
    assert float(median[1]) == np.median(fed.train.sizes)
    held = [len(np.unique(fed.train.client(k)[1].numpy())) for k in range(90)]
    assert float(median[3]) == np.median(held)
    assert matplotlib.image.imread("some.png").std() > 0.05


def test_names_roles_and_requirements_of_your_own_data(here):
    Path("h").mkdir()
    for name in ("north", "south"):
        rows = pl.DataFrame({"age": np.arange(10), "sick": ["yes", "no"] * 5})
        rows.write_csv(f"h/{name}.csv")
    Path("h/manifest.toml").write_text(
        "label = 'sick'\n[clients.north]\npriority = true\nrequirement = 0.35\n"
        "[clients.south]\nrequirement = 0.5\nimportance = 0.25\n"
    )
    text = shown("h", "--out", "h.svg")
    assert row(text, "north")[:6] == ["north", "priority", "8", "2", "0.35", "2"]
    assert row(text, "south")[:5] == ["south", "helps,", "0.25", "8", "2"]
    picture = Path("h.svg").read_text()
    assert picture.startswith("<?xml")
    # Names are drawn as outlines; matplotlib leaves the words in comments.
    for word in ("north", "south", "yes", "no", "training rows"):
        assert f"<!-- {word} -->" in picture


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "data show: of which data? give a path, or one of synth, digits"),
        (["digist"], "unknown data 'digist'; did you mean 'digits'"),
        (["no/where"], "no/where: no such file or folder"),
        (["digits", "--client", "3"], "unknown key 'data.client'; did you mean 'clients'"),
        (["digits", "--clients", "few"], "data.clients: 'few'; allowed: a whole number"),
        (["digits", "--partition", "dirichlt"], "did you mean 'dirichlet'"),
        (["digits", "--partition", "dirichlet", "--partition.alfa", "1"], "did you mean 'alpha'"),
        (["digits", "--seed", "x"], "seed: 'x'; allowed: a whole number"),
        (["digits", "--out", "a.doc"], "--out: 'a.doc'; its ending says the format: .png"),
        (["digits", "--out"], "--out: its value is missing"),
        (["digits", "more"], "'more': not understood"),
    ],
)
def test_bad_words_are_one_line(here, words, message):
    with pytest.raises(muster.MusterError) as caught:
        show(words, Console(quiet=True))
    assert message in str(caught.value)
    assert not list(here.iterdir())


def images(shape, dtype, classes=3, top=255):
    draw = np.random.default_rng(0)
    y = np.arange(12) % classes
    x = (draw.random((12, *shape)) * top).astype(dtype)
    return muster.Federation.from_arrays([(x[:6], y[:6]), (x[6:], y[6:])])


@pytest.mark.parametrize(
    ("shape", "dtype", "top", "expected"),
    [
        ((784,), np.uint8, 255, (1, 28, 28)),
        ((64,), np.float32, 1, (1, 8, 8)),
        ((64,), np.float32, 9, None),
        ((30,), np.float32, 1, None),
        ((3072,), np.uint8, 255, (3, 32, 32)),
        ((3, 32, 32), np.uint8, 255, (3, 32, 32)),
        ((28, 28), np.uint8, 255, (1, 28, 28)),
    ],
)
def test_rows_that_are_images_are_seen_as_such(shape, dtype, top, expected):
    assert image_shape(images(shape, dtype, top=top)) == expected


def test_the_sheet_shows_rows_of_the_class_it_says():
    fed = images((64,), np.uint8)
    rows = rows_of_classes(fed, 2, seed=0)
    assert [fed.train.y[r].tolist() for r in rows] == [[0, 0], [1, 1], [2, 2]]
    sheet, names = sample_sheet(fed, seed=0)
    assert [name for _, _, name in names] == ["0", "1", "2"]
    tile = sheet[:8, :][:, np.flatnonzero((sheet[:8] < 1).any(axis=(0, 2)))[0] :][:, :8]
    every = 1 - fed.train.x[rows_of_classes(fed, 14, seed=0)[0]].numpy().reshape(-1, 8, 8) / 255
    assert any(np.allclose(tile[..., 0], one) for one in every)


def test_the_heat_map_keeps_roles_and_main_classes_together():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", muster.MusterWarning)
        y = [[0, 0, 1], [1, 1, 0], [0, 0, 0], [2, 2, 1]]
        data = [(np.zeros((3, 1)), labels) for labels in y]
        fed = muster.Federation.from_arrays(data, priority=[1, 3])
    assert by_main_class(fed, fed.label_counts()).tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("clients", [700, 5 * COLUMNS])
def test_a_class_does_not_run_into_the_next_on_the_heat_map(clients):
    y = np.arange(clients) * 5 // clients
    x = np.zeros((clients, 2), np.float32)
    fed = muster.data.federate(x, y, list(np.arange(clients)[:, None]))
    fig = Figure(figsize=(11, 4), layout="constrained")
    heat_map(fig, fed, fed.label_counts())
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    box = next(ax for ax in fig.axes if ax.images).get_window_extent()
    seen = np.asarray(canvas.buffer_rgba())[::-1][
        int(box.y0) + 5 : int(box.y1) - 5, int(box.x0) + 5 : int(box.x1) - 5
    ]
    assert len(np.unique(seen.reshape(-1, 4), axis=0)) == 2, "all of a client's rows, or none"


def test_weighted_test_rows_are_counted_as_they_are(here):
    x, y = np.zeros((12, 2)), np.arange(12) % 2
    np.savez("a.npz", x=x, y=y, x_test=x[:4], y_test=y[:4], weight_test=np.arange(1.0, 5))
    assert "12 training rows, 4 test rows; rows of" in shown("a.npz")
    x, y = np.eye(12), np.arange(12) % 2
    halves = [np.arange(6), np.arange(6, 12)]
    fed = muster.data.federate(x, y, halves, test=(x[:4], y[:4]))
    assert "12 training rows, 4 test rows for everyone; rows of" in heading(fed)
