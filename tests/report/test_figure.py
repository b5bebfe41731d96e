"""Figures: panels of the measures asked for, and nobody's matplotlib disturbed."""

from __future__ import annotations

import subprocess
import sys

import matplotlib
import matplotlib.image
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import muster
import reference
from helpers import federation
from muster.report.figure import draw, figure
from muster.report.picture import draw as draw_federation
from muster.run.measures import Measure, named


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
        figure(runs, tmp_path / "runs.png")
        draw_federation(fed, fed.label_counts(), tmp_path / "data.png", seed=0)
        assert matplotlib.get_backend() == "svg"
        assert plt.get_fignums() == [mine.number]
        assert plt.gcf() is mine
    finally:
        plt.close("all")
        plt.switch_backend(before)
    for name in ("runs", "data"):
        assert matplotlib.image.imread(tmp_path / f"{name}.png").std() > 0.05


def test_matplotlib_is_loaded_when_something_is_drawn_and_pyplot_never(tmp_path):
    code = (
        "import sys, muster\n"
        "assert 'matplotlib' not in sys.modules\n"
        "fed = muster.data.digits(clients=4)\n"
        "run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), 1)\n"
        "from muster.report.figure import figure\n"
        f"figure({{'a': [run]}}, {str(tmp_path / 'a.png')!r})\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "a.png").exists()


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_the_ending_says_the_format(runs, tmp_path, ending):
    path = figure(runs, str(tmp_path / "new" / f"f.{ending}"))
    head = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[ending]
    assert path.read_bytes().startswith(head)


def test_panels_are_the_measures_asked_for(runs, tmp_path):
    def words(**more):
        text = figure(runs, tmp_path / "f.svg", **more).read_text()
        return [m.title for m in named(TITLES) if f"<!-- {m.title} -->" in text]

    assert words() == ["priority training loss", "others admitted"]
    asked = words(measures=["silent", "loss", "gm_appeal"])
    assert asked == ["priority training loss", "clients silent by choice"]
    assert words(measures="failed") == ["clients that gave no answer"], "zeros are drawn if asked"


TITLES = "loss, test_accuracy, gm_appeal, admitted_nonpriority, silent, failed"


def test_axes_end_where_a_measure_does(runs):
    def limits(measure):
        ax = Figure().subplots()
        draw(ax, runs, measure)
        return ax.get_ylim()

    low, high = limits(Measure("loss", "a share", share=True))
    assert (low >= 0, high) == (True, 1.0), "a share ends at 1, whatever its band"
    _, high = limits(Measure("loss", "a loss"))
    assert high > 1.0
    low, _ = limits(Measure("loss", "below zero", scale=-1.0))
    assert low < 0
    kilo, plain = limits(Measure("bytes_up", "kB", scale=1e-3)), limits(Measure("bytes_up", "B"))
    assert kilo[1] == pytest.approx(plain[1] / 1e3)


def test_labels_are_written_as_they_are(runs):
    ax = Figure().subplots()
    draw(ax, runs, *named("loss"))
    assert [line.get_label() for line in ax.lines] == ["fedalign", r"_all \$x\$ [red]"]
