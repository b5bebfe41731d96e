"""Figures of the studies: each drawn from its frame, with what a reader needs to read it."""

from __future__ import annotations

import polars as pl
import pytest

from muster.base.errors import MusterError
from muster.papers.theory import figures, study
from muster.papers.theory.study_bound import ENDS, FROM_OPTIMUM


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """A study's figure as matplotlib has it, and its caption."""
    seen = {}

    def written(fig, path, caption):
        seen.update(fig=fig, caption=caption)
        return path

    monkeypatch.setattr(figures, "_write", written)

    def draw(frame):
        figures.draw(frame, tmp_path / "a.png")
        return seen["fig"], seen["caption"]

    return draw


def test_every_study_is_drawn(bound, corollary2, toy, rate, tmp_path):
    frames = {
        "bound": bound.filter(pl.col("method") == "FedALIGN", pl.col("case") == "lam = 3"),
        "corollary2": corollary2.filter(pl.col("data") == "mirrored"),
        "toy": toy.filter(pl.col("clients") == "2"),
        "rate": rate,
        "weights": study.weights(),
    }
    assert set(frames) == set(study.STUDIES) == set(figures.FIGURES)
    for name, frame in frames.items():
        path = figures.draw(frame, tmp_path / "figures" / f"{name}.svg")
        assert path.stat().st_size > 10_000
    assert figures.draw_weights(study.weights(), tmp_path / "w.png").read_bytes()[1:4] == b"PNG"


def test_every_panel_says_what_is_along_its_axes(bound, corollary2, toy, rate, drawn):
    for frame in (bound, corollary2, toy, rate, study.weights()):
        fig, _ = drawn(frame)
        axes = [ax for ax in fig.axes if ax.get_visible()]
        assert all(ax.get_xlabel() for ax in axes)
        # In one row of panels with the same axis, the first says it.
        rows = {}
        for ax in axes:
            rows.setdefault(ax.get_subplotspec().rowspan.start, []).append(ax)
        assert all(row[0].get_ylabel() for row in rows.values())


def test_both_forms_of_a_bound_are_seen_where_they_are_equal(bound, drawn):
    """The repaired one is wider and pale, and the printed one lies on it."""
    fig, caption = drawn(bound)
    lines = {line.get_label(): line for line in fig.axes[0].lines}
    for E in (1, 5):
        wide, thin = (lines[f"{form} bound, E = {E}"] for form in ("repaired", "printed"))
        assert wide.get_linewidth() > 2 * thin.get_linewidth()
        assert wide.get_color() != thin.get_color()
        assert fig.axes[0].lines.index(wide) < fig.axes[0].lines.index(thin)
    titles = [ax.get_title() for ax in fig.axes if ax.get_visible()]
    assert f"FedALIGN\n{FROM_OPTIMUM}" in titles
    assert len(titles) == len(bound.select("case", "method").unique())
    assert "Mean over 4 seeds" in caption
    assert "from the optimum a single run" in caption
    assert "0 at T = 1." in caption
    _, caption = drawn(bound.filter(pl.col("case") == "lam = 3"))
    assert "optimum" not in caption


def test_a_schedule_that_ends_at_0_is_named_as_such(corollary2, drawn):
    fig, _ = drawn(corollary2)
    (legend,) = fig.legends
    assert f"eps_t: {ENDS}" in [text.get_text() for text in legend.get_texts()]


def test_appeal_is_drawn_by_powers_of_ten_and_heterogeneity_is_labelled(toy, drawn):
    fig, caption = drawn(toy)
    rows = [fig.axes[i : i + 3] for i in range(0, len(fig.axes), 3)]
    assert len(rows) == 4
    for appeal, small, large in rows:
        assert appeal.get_yscale() == "log"
        assert appeal.get_ylabel() == "appeal, share of clients"
        assert small.get_title().endswith("heterogeneity 0.5")
        assert large.get_title().endswith("heterogeneity 4")
    assert "ends where no draw appeals" in caption


def test_mistakes_are_explained(toy, tmp_path):
    with pytest.raises(MusterError, match=r"figure: .*bmp.*\.png, \.pdf, \.svg"):
        figures.draw(toy, tmp_path / "a.bmp")
    with pytest.raises(MusterError, match="give the frame of one study"):
        figures.draw(pl.DataFrame({"x": [1]}), tmp_path / "a.png")
    with pytest.raises(MusterError, match="did you mean 'toy'"):
        figures.draw(toy.with_columns(study=pl.lit("tyo")), tmp_path / "a.png")
