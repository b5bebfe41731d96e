"""Pictures of a federation: the heat map of labels, and the sheet of sample rows."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import muster
from muster.report.federation_figure import (
    COLUMNS,
    draw_federation,
    draw_heat_map,
    heat_map_limit,
    image_shape,
    sample_rows,
    sample_sheet,
    sort_by_main_class,
)
from muster.report.style import class_colours, to_lab


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
    rows = sample_rows(fed, 2, seed=0)
    assert [fed.train.y[r].tolist() for r in rows] == [[0, 0], [1, 1], [2, 2]]
    sheet, names = sample_sheet(fed, seed=0)
    assert [name for _, _, name in names] == ["0", "1", "2"]
    tile = sheet[:8, :][:, np.flatnonzero((sheet[:8] < 1).any(axis=(0, 2)))[0] :][:, :8]
    every = 1 - fed.train.x[sample_rows(fed, 14, seed=0)[0]].numpy().reshape(-1, 8, 8) / 255
    assert any(np.allclose(tile[..., 0], one) for one in every)


def test_the_heat_map_keeps_roles_and_main_classes_together():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", muster.MusterWarning)
        y = [[0, 0, 1], [1, 1, 0], [0, 0, 0], [2, 2, 1]]
        data = [(np.zeros((3, 1)), labels) for labels in y]
        fed = muster.Federation.from_arrays(data, priority=[1, 3])
    assert sort_by_main_class(fed, fed.label_counts()).tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("clients", [700, 5 * COLUMNS])
def test_a_class_does_not_run_into_the_next_on_the_heat_map(clients):
    y = np.arange(clients) * 5 // clients
    x = np.zeros((clients, 2), np.float32)
    fed = muster.data.federate(x, y, list(np.arange(clients)[:, None]))
    fig = Figure(figsize=(11, 4), layout="constrained")
    draw_heat_map(fig, fed, fed.label_counts())
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    box = next(ax for ax in fig.axes if ax.images).get_window_extent()
    seen = np.asarray(canvas.buffer_rgba())[::-1][
        int(box.y0) + 5 : int(box.y1) - 5, int(box.x0) + 5 : int(box.x1) - 5
    ]
    assert len(np.unique(seen.reshape(-1, 4), axis=0)) == 2, "all of a client's rows, or none"


def federation_of(clients, classes, labels=None, alpha=5.0):
    draw = np.random.default_rng(0)
    y = draw.integers(0, classes, classes * 40)
    x = np.zeros((len(y), 2), np.float32)
    parts = muster.data.Dirichlet(alpha, min_rows=1).split(y, clients, 0)
    fed = muster.data.federate(x, y, parts)
    return replace(fed, labels=labels)


def drawn(fed, how=draw_heat_map):
    fig = Figure(figsize=(11, 6), layout="constrained")
    FigureCanvasAgg(fig)
    how(fig, fed, fed.label_counts())
    return fig


def test_the_scale_of_a_heat_map_is_that_of_the_data():
    fed = federation_of(100, 47)
    (image,) = [image for ax in drawn(fed).axes for image in ax.images]
    counts = fed.label_counts()
    largest = (counts / counts.sum(axis=1, keepdims=True)).max()
    assert image.norm.vmin == 0
    assert 0.05 < image.norm.vmax <= largest < 0.5


def test_a_client_that_sticks_out_does_not_make_the_others_pale():
    shares = np.full((10, 100), 0.1)
    shares[:, 0] = 0
    shares[3, 0] = 1.0
    assert heat_map_limit(shares) == pytest.approx(0.1)
    assert heat_map_limit(shares[:, 1:]) == pytest.approx(0.1)


def test_47_classes_are_rows_with_their_names(tmp_path):
    names = tuple(f"letter {i}" for i in range(47))
    fed = federation_of(12, 47, names)
    path = draw_federation(fed, fed.label_counts(), tmp_path / "f.svg", seed=0)
    text = path.read_text()
    for name in names:
        assert f"<!-- {name} -->" in text
    assert "<!-- share of the client's rows -->" in text, "a heat map: no one knows 47 colours"
    fed = federation_of(12, 5, ("a", "b", "c", "d", "e f"))
    text = draw_federation(fed, fed.label_counts(), tmp_path / "g.svg", seed=0).read_text()
    assert "<!-- training rows -->" in text
    assert "<!-- e f -->" in text


def test_colours_of_classes_are_distinguishable():
    def least(n):
        lab = to_lab(np.array(class_colours(n)))
        apart = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
        return apart[np.triu_indices(n, 1)].min()

    assert least(20) > 20
    assert least(47) > 10
    assert class_colours(47)[:20] == class_colours(20)
