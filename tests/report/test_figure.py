"""Figures: panels of the measures asked for, and nobody's matplotlib disturbed."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import matplotlib
import matplotlib.axes
import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import muster
import reference
from helpers import federation
from muster.report.curves import (
    Curve,
    axis_limits,
    count_overlaps,
    draw_curves,
    marker_positions,
    mean_curve,
    needs_log_scale,
)
from muster.report.federation_figure import draw_federation
from muster.report.figure import (
    choose_panels,
    draw_figure,
    draw_figures,
    figure_caption,
    figure_heading,
)
from muster.report.style import LineStyle
from muster.results.measures import Measure, find_measures


@pytest.fixture(scope="module")
def fed():
    data, priority = reference.problem(0, clients=6)
    return federation(data, priority)


@pytest.fixture(scope="module")
def runs(fed):
    m = muster.methods
    methods = {"fedalign": m.fedalign(0.5), "_all $x$ [red]": m.fedavg()}
    return {
        label: [muster.simulate(fed, method, muster.models.Softmax(), 3, seed=s) for s in (0, 1)]
        for label, method in methods.items()
    }


def test_the_users_backend_and_open_figures_stay_as_they_are(fed, runs, tmp_path):
    before = matplotlib.get_backend()
    plt.switch_backend("svg")
    try:
        mine = plt.figure()
        draw_figure(runs, tmp_path / "runs.png")
        draw_federation(fed, fed.label_counts(), tmp_path / "data.png", seed=0)
        assert matplotlib.get_backend() == "svg"
        assert plt.get_fignums() == [mine.number]
        assert plt.gcf() is mine
    finally:
        plt.close("all")
        plt.switch_backend(before)
    for name in ("runs", "data"):
        assert matplotlib.image.imread(tmp_path / f"{name}.png").std() > 0.05


@pytest.mark.slow  # a process that trains and draws
def test_matplotlib_is_loaded_when_something_is_drawn_and_pyplot_never(tmp_path):
    code = (
        "import sys, muster\n"
        "assert 'matplotlib' not in sys.modules\n"
        "fed = muster.data.digits(clients=4)\n"
        "run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), 1)\n"
        "from muster.report.figure import draw_figure\n"
        f"draw_figure({{'a': [run]}}, {str(tmp_path / 'a.png')!r})\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "a.png").exists()


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_the_ending_says_the_format(runs, tmp_path, ending):
    path = draw_figure(runs, str(tmp_path / "new" / f"f.{ending}"))
    head = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[ending]
    assert path.read_bytes().startswith(head)


def words(path):
    """What an SVG says: words are drawn as outlines, and matplotlib leaves them in comments."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(), flags=re.S)


def test_panels_are_the_measures_asked_for(runs, tmp_path):
    def titles(**more):
        said = words(draw_figure(runs, tmp_path / "f.svg", **more))
        return [m.title for m in find_measures(TITLES) if m.title in said]

    assert titles() == ["priority training loss", "others admitted"]
    asked = titles(panels=["silent", "loss", "gm_appeal"])
    assert asked == ["priority training loss", "clients silent by choice"]
    assert titles(panels="failed") == ["clients that gave no answer"], "zeros are drawn if asked"
    assert len(choose_panels(runs, "loss,silent,failed,pool,steps,asked,joined")) == 7
    draw_figure(runs, tmp_path / "seven.png", "loss,silent,failed,pool,steps,asked,joined")


TITLES = "loss, test_accuracy, gm_appeal, admitted_nonpriority, silent, failed"


@pytest.mark.parametrize(
    ("path", "panels", "message"),
    [
        (
            "a.png",
            "loss, accuracy",
            "unknown panel 'accuracy'; did you mean 'test_accuracy'? ",
        ),
        ("a.gif", (), "figure: 'a.gif'; the file ending must be one of .png, .pdf, .svg"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(runs, tmp_path, monkeypatch, path, panels, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(muster.MusterError) as caught:
        draw_figure(runs, path, panels)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_gets_the_figure_in_every_format_asked_for(runs, tmp_path):
    drawn = draw_figures(runs, tmp_path, "png,svg", "loss")
    assert [path.name for path in drawn] == ["figure.png", "figure.svg"]
    assert all(path.stat().st_size > 5000 for path in drawn)


def test_the_figure_says_its_data_its_seeds_and_what_its_marks_mean(runs, tmp_path):
    said = words(draw_figure(runs, tmp_path / "f.svg"))
    assert "federation, 2 seeds" in said
    meaning = " ".join(" ".join(said).split())
    assert "band: 95 % interval of the mean" in meaning
    assert "paired difference, seed by seed, with its 95 % interval" in meaning
    assert "difference to fedalign, round 3" in meaning
    one = {label: mine[:1] for label, mine in runs.items()}
    assert figure_heading(one) == "federation, seed 0"
    assert figure_caption(one) == "One seed: differences have no interval."
    alone = {"fedalign": runs["fedalign"]}
    assert figure_heading(alone) == "federation, fedalign, 2 seeds"
    assert "difference" not in figure_caption(alone)
    noted = {"a": [replace(runs["fedalign"][0], note="a subset")]}
    assert "Data: a subset." in figure_caption(noted)


def test_nobody_is_a_priority_client_where_everybody_is(tmp_path):
    data, _ = reference.problem(0, clients=4)
    run = muster.simulate(
        federation(data), muster.methods.fedavg(), muster.models.Softmax(), 2, seed=0
    )
    said = words(draw_figure({"fedavg": [run]}, tmp_path / "f.svg"))
    assert "training loss" in said
    assert not any("priority" in word for word in said)


def test_differences_are_those_of_the_summary(runs, monkeypatch, tmp_path):
    drawn = {}
    errorbar = matplotlib.axes.Axes.errorbar
    monkeypatch.setattr(
        matplotlib.axes.Axes, "errorbar",
        lambda ax, x, y, **more: drawn.update({y: (x, more)}) or errorbar(ax, x, y, **more),
    )  # fmt: skip
    draw_figure(runs, tmp_path / "f.png", "loss")
    a, b = ([run.rounds["loss"][-1] for run in mine] for mine in runs.values())
    gap = [y - x for x, y in zip(a, b, strict=True)]
    x, more = drawn[0]
    assert x == pytest.approx(sum(gap) / 2)
    # Two values: t(0.975, 1) * |d0 - d1| / 2.
    assert more["xerr"] == pytest.approx(12.7062 * abs(gap[0] - gap[1]) / 2, rel=1e-4)
    clear = abs(x) > more["xerr"]
    assert (more["markerfacecolor"] == "white") == (not clear)


def drawn(runs, measure):
    ax = Figure().subplots()
    curves = {label: mean_curve(mine, measure) for label, mine in runs.items()}
    draw_curves(ax, curves, {label: LineStyle.of(i) for i, label in enumerate(runs)}, measure)
    return ax


def test_axes_end_where_a_measure_does(runs):
    low, high = drawn(runs, Measure("loss", "a share", share=True)).get_ylim()
    assert low >= -0.05
    assert high < 1.1, "a share ends at 1, whatever its band"
    assert drawn(runs, Measure("loss", "a loss")).get_ylim()[1] > 1.1
    assert drawn(runs, Measure("loss", "below zero", scale=-1.0)).get_ylim()[0] < 0
    kilo = drawn(runs, Measure("bytes_up", "kB", scale=1e-3)).get_ylim()
    plain = drawn(runs, Measure("bytes_up", "B")).get_ylim()
    assert kilo[1] == pytest.approx(plain[1] / 1e3)


def curve(values, half=0.0):
    values = np.asarray(values, np.float64)
    return Curve(np.arange(1.0, len(values) + 1), values, np.full(len(values), half))


ACCURACY = Measure("a", "an accuracy", share=True)


def test_an_axis_is_as_long_as_the_later_rounds_need():
    late = np.linspace(0.93, 0.96, 40)
    one = curve([0.35, 0.6, 0.8, 0.9, *late])
    other = curve([0.3, 0.6, 0.8, 0.9, *(late + 0.01)])
    low, high = axis_limits([one, other], ACCURACY)
    assert 0.9 < low < 0.94, "not from 0.3"
    assert 0.97 < high <= 1.0
    low, high = axis_limits([curve(np.linspace(2, 1, 40))], Measure("l", "a loss"))
    assert (low < 1, high > 2) == (True, True), "a plain fall is seen whole"
    low, high = axis_limits([curve([0, 0, 2, 2, 2, 2, 2, 2, 2, 2])], Measure("n", "a number"))
    assert (low < 0.01, high > 2) == (True, True), "later rounds all alike say nothing"
    low, high = axis_limits([curve(np.linspace(0.90, 0.91, 40), half=0.04)], ACCURACY)
    assert low < 0.87, "bands are seen"
    assert high > 0.94
    low, high = axis_limits([curve(np.linspace(0.90, 0.91, 40), half=0.5)], ACCURACY)
    assert low > 0.8, "those of two seeds do not flatten everything else"
    lead = curve([0.001, *[0.2] * 20], half=0.5)
    assert axis_limits([lead], ACCURACY)[0] >= -0.1
    assert axis_limits([lead], ACCURACY.difference)[0] < -0.1
    assert lead.band(ACCURACY.difference)[0].min() == pytest.approx(-0.499)
    assert not needs_log_scale([lead], ACCURACY.difference)
    left = curve([9, 0.5, *[0.1, 0.2] * 20])
    assert axis_limits([left], Measure("left", "clients that left", counts=True))[1] > 9
    assert axis_limits([left], Measure("l", "a loss"))[1] < 9
    assert axis_limits([], ACCURACY) == (0, 1)
    assert np.isfinite(axis_limits([curve([np.nan] * 5)], ACCURACY)).all()
    assert np.isfinite(axis_limits([curve([0.5])], ACCURACY)).all()


def test_rounds_are_whole_numbers(runs):
    ax = drawn(runs, *find_measures("loss"))
    assert len(ax.get_xticks()) > 0
    assert all(tick == int(tick) for tick in ax.get_xticks())
    assert ax.get_xlim()[1] < 3.5, "and there are three of them"
    for one in (1, 2):
        short = {k: [replace(r, rounds=r.rounds[:one]) for r in v] for k, v in runs.items()}
        ax = drawn(short, *find_measures("loss"))
        assert all(tick == int(tick) for tick in ax.get_xticks())
        assert all(len(line.get_xdata()) for line in ax.lines)


def test_methods_differ_by_more_than_their_colour():
    looks = [LineStyle.of(i) for i in range(35)]
    assert len({(look.colour, str(look.dashes)) for look in looks}) == 35
    assert len({look.colour for look in looks[:7]}) == 7


def test_curves_on_each_other_are_all_seen():
    """In every colour some of the picture: the widest below, dashes and markers above."""
    same = {name: curve(np.linspace(2, 1, 60)) for name in "abc"}
    assert count_overlaps(list(same.values()), 1.0) == [2, 1, 0]
    apart = [curve(np.linspace(2, 1, 60)), curve(np.linspace(1.9, 0.9, 60))]
    assert count_overlaps(apart, 1.0) == [0, 0]
    looks = {name: LineStyle.of(i) for i, name in enumerate("abc")}
    fig = Figure(figsize=(4, 3), dpi=130)
    canvas = FigureCanvasAgg(fig)
    ax = fig.subplots()
    draw_curves(ax, same, looks, Measure("l", "a loss"))
    widths = [line.get_linewidth() for line in ax.lines if line.get_linestyle() != "None"]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 3
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    for look in looks.values():
        colour = np.array(matplotlib.colors.to_rgb(look.colour)) * 255
        assert (np.abs(pixels - colour).max(axis=-1) < 12).sum() > 50, look
    turns = [set(marker_positions(60, i, 3)) for i in range(3)]
    assert not turns[0] & turns[1]
    assert not turns[1] & turns[2]


def test_names_are_outside_the_panels_and_written_as_they_are(runs, tmp_path, monkeypatch):
    kept = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda fig, *a, **more: kept.append(fig) or save(fig, *a, **more)
    )
    many = {f"a rather long name of method {i}": runs["fedalign"] for i in range(11)}
    draw_figure(runs | many, tmp_path / "f.png", "loss, silent")
    (fig,) = kept
    (legend,) = fig.legends
    said = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    assert said == ["fedalign", r"_all \$x\$ [red]", *many]
    left = legend.get_window_extent().x0
    assert all(ax.get_window_extent().x1 < left for ax in fig.axes)
    assert legend.get_window_extent().y0 > 0, "all of it is on the page"
