"""Figures for a paper."""

from __future__ import annotations

import re

import numpy as np
import pytest

import muster
from big_run import big_run
from muster.cli.main import main
from muster.report import paper_figure
from muster.results.measures import MEASURES


@pytest.fixture(scope="module")
def runs():
    return {f"method {i}": [big_run(4, 12, seed=10 * i + s) for s in range(3)] for i in range(3)}


def inches(svg):
    width, height = (re.search(rf'{side}="([\d.]+)pt"', svg)[1] for side in ("width", "height"))
    return float(width) / 72, float(height) / 72


def test_it_is_as_wide_as_a_column_and_its_text_is_text(runs, tmp_path):
    svg = paper_figure.draw_paper_figure(runs, tmp_path / "a.svg").read_text()
    assert inches(svg)[0] == pytest.approx(paper_figure.COLUMN)
    for said in ("method 0", "method 2", "priority training loss", "priority test accuracy"):
        assert f"{said}</text>" in svg or f">{said}<" in svg
    sizes = {float(s) for s in re.findall(r"font-size: ([\d.]+)px", svg)}
    assert sizes, "text has a size"
    assert min(sizes) >= 7
    wide = paper_figure.draw_paper_figure(runs, tmp_path / "b.svg", wide=True).read_text()
    assert inches(wide)[0] == pytest.approx(paper_figure.PAGE)
    assert inches(wide)[1] < inches(svg)[1], "measures stand next to each other"


def test_the_same_runs_give_the_same_file(runs, tmp_path):
    one, two = (
        paper_figure.draw_paper_figure(runs, tmp_path / f"{i}.pdf", "loss").read_bytes()
        for i in range(2)
    )
    assert one == two
    assert one.startswith(b"%PDF")


def test_differences_are_taken_seed_by_seed(runs):
    first, other = runs["method 0"], runs["method 1"]
    curve = paper_figure.difference_curve(other, first, MEASURES["loss"])
    gaps = np.stack([
        (b.rounds["loss"] - a.rounds["loss"]).to_numpy() for a, b in zip(first, other, strict=True)
    ])  # fmt: skip
    assert curve.mean == pytest.approx(gaps.mean(0))
    same = paper_figure.difference_curve(first, first, MEASURES["loss"])
    assert (same.mean == 0).all()
    assert (same.half == 0).all()


def test_names_at_the_ends_never_lie_on_each_other():
    room = {"a": 0.1, "b": 0.2, "c": 0.1}
    at = paper_figure.spread_out({"a": 0.99, "b": 0.98, "c": 0.2}, room)
    assert at["c"] == pytest.approx(0.2)
    assert at["a"] - at["b"] >= 0.15 - 1e-9
    assert at["a"] <= 0.95 + 1e-9, "nor outside the panel"


def test_many_methods_have_a_legend(tmp_path):
    many = {f"method {i}": [big_run(4, 6, seed=i)] for i in range(6)}
    svg = paper_figure.draw_paper_figure(many, tmp_path / "a.svg", "loss").read_text()
    assert svg.count("method 5") == 1


def test_the_command_writes_both_formats(tmp_path, capsys):
    fed = muster.data.digits(clients=4, priority=2)
    m = muster.methods
    muster.compare(fed, [m.fedalign(), m.fedavg()], muster.models.Softmax(), 2, seeds=2,
                   folder=tmp_path / "r")  # fmt: skip
    assert main(["figure", str(tmp_path / "r"), "--paper", "--panels", "loss"]) == 0
    assert (tmp_path / "r" / "paper.pdf").exists()
    assert (tmp_path / "r" / "paper.svg").exists()
    words = ["--panels", "loss", "--out", str(tmp_path / "x.png")]
    assert main(["figure", str(tmp_path / "r"), *words]) == 0
    assert (tmp_path / "x.png").exists()
    assert main(["figure", str(tmp_path / "r"), "--wide"]) == 2
    assert "--wide: is for --paper" in capsys.readouterr().err
