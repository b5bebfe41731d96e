"""The study of one lying priority client: who is measured, and against what."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from muster.papers import lying_study
from muster.papers.lying_study import LyingCell, draw_honest, markdown, run_cell


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(lying_study, "ROUNDS", 4)


def test_the_liar_is_not_measured_and_alone_is_without_it():
    fed, honest = draw_honest(5, 0)
    assert honest.sum() == 4
    assert fed.priority[honest].all()
    kept = lying_study.train_without_liar(5, 0)
    again = run_cell(LyingCell(5, "alone", "nobody lies", 0))
    assert kept.shape == (4,)
    assert again["refused"] == 0.0
    lied = run_cell(LyingCell(5, "alone", "-3 x", 0))
    assert lied["mean"] < again["mean"] - 0.1
    assert lied["worst"] <= lied["mean"]


def test_a_client_is_measured_on_all_held_out_rows_of_its_classes():
    """By hand, for one client: the mean over its training rows of its classes' accuracies."""
    fed, honest = draw_honest(5, 0)
    run = lying_study.train(fed, lying_study.ALONE, 0)
    first = int(np.flatnonzero(honest)[0])
    answers = run.model()(fed.test.x.to(torch.float32)).argmax(-1).numpy()
    y, own = fed.test.y.numpy(), fed.train.client(first)[1].tolist()
    by_hand = np.mean([(answers[y == c] == c).mean() for c in own])
    assert lying_study.accuracies(run, fed, honest)[0] == pytest.approx(by_hand)


def test_the_table_has_a_line_for_each_rule_and_lie():
    rows = [
        {"priority": 5, "rule": rule, "lie": "-3 x", "seed": s, "mean": m, "worst": m - 0.1,
         "refused": 0.5}
        for rule in ("assist, trust", "alone")
        for s, m in enumerate((-0.1, -0.2))
    ]  # fmt: skip
    first, last = markdown(rows).splitlines()[-2:]
    assert first.startswith("| 5 | alone | -3 x | -15.0 ±"), "in the order of the rules"
    assert last.startswith("| 5 | assist, trust | -3 x | -15.0 ±")
    assert last.endswith("| 50 % | 2 |")
