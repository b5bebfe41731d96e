"""What `predict` says for every task, and its scores, against a few lines of numpy and
scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn import metrics

import muster
import tasks
from muster.cli.main import main

M = muster.methods


def trained(kind, tmp_path):
    """A run of a kind, saved and loaded; the rows of a client, and the model's outputs for them."""
    fed = tasks.of(kind)
    run = muster.simulate(fed, M.fedavg(), tasks.model_of(kind), rounds=3, dtype="float64",
                          task=tasks.TASKS[kind][0])  # fmt: skip
    muster.save(run, tmp_path / "run")
    x, y = (t.numpy() for t in fed.test.client(1))
    z = run.model()(torch.from_numpy(x)).detach().numpy()
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    np.savez(tmp_path / "bare.npz", x=x)
    return run, x, y, z


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def test_several_labels_have_a_probability_each(tmp_path, capsys):
    run, _, y, z = trained("multilabel", tmp_path)
    build = lambda: tasks.model_of("multilabel")  # noqa: E731
    said, known = muster.load(tmp_path / "run").predict_and_score(
        tmp_path / "rows.npz", build=build
    )
    heads = [*(f"label_{i}" for i in range(3)), *(f"p_{i}" for i in range(3))]
    assert said.columns == ["row", *heads]
    np.testing.assert_allclose(said.select("^p_.*$").to_numpy(), sigmoid(z), atol=1e-9)
    assert (said.select("^label_.*$").to_numpy() == y).all()
    assert known["accuracy"] == pytest.approx(((z > 0) == y).mean())
    auc = [metrics.roc_auc_score(y[:, i], z[:, i]) for i in range(3)]
    assert known["AUC"] == pytest.approx(np.mean(auc))
    entropy = -(y * np.log(sigmoid(z)) + (1 - y) * np.log(sigmoid(-z))).mean()
    assert known["loss"] == pytest.approx(entropy)
    bare, nothing = run.predict_and_score(tmp_path / "bare.npz")
    assert bare.columns == ["row", "p_0", "p_1", "p_2"]
    assert nothing is None


def test_the_next_token_and_its_probability(tmp_path):
    run, x, y, z = trained("next_token", tmp_path)
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    said = run.predict(x)
    assert said.columns == ["row", "prediction", "p"]
    assert said["prediction"].to_list() == z[:, -1].argmax(-1).tolist()
    np.testing.assert_allclose(said["p"], p[:, -1].max(-1), atol=1e-9)
    said, known = run.predict_and_score(tmp_path / "rows.npz")
    assert said["label"].to_list() == y[:, -1].tolist()
    of_row = [
        np.mean([-np.log(p[i, j, t]) for j, t in enumerate(row) if t >= 0])
        for i, row in enumerate(y)
    ]
    assert known["loss"] == pytest.approx(np.mean(of_row))
    assert known["perplexity"] == pytest.approx(np.exp(np.mean(of_row)))


def test_log_risks_of_survival_and_their_score(tmp_path):
    run, _, y, z = trained("survival", tmp_path)
    said, known = run.predict_and_score(tmp_path / "rows.npz")
    assert said.columns == ["row", "label_0", "label_1", "log_risk"]
    np.testing.assert_allclose(said["log_risk"], z[:, 0], atol=1e-9)
    every = list(itertools.product(range(len(y)), repeat=2))
    # Of an event, whoever is known to have lived longer: last seen later, or at that time.
    lived = [(y[j, 0] > y[i, 0]) | ((y[j, 0] == y[i, 0]) & ~y[j, 1].astype(bool)) for i, j in every]
    pairs = [pair for pair, longer in zip(every, lived, strict=True) if y[pair[0], 1] and longer]
    right = np.mean([(z[i, 0] > z[j, 0]) + (z[i, 0] == z[j, 0]) / 2 for i, j in pairs])
    assert known["C-index"] == pytest.approx(right)


def test_several_numbers(tmp_path):
    run, _, y, z = trained("outputs", tmp_path)
    said, known = run.predict_and_score(tmp_path / "rows.npz")
    assert said.columns == ["row", "label_0", "label_1", "prediction_0", "prediction_1"]
    np.testing.assert_allclose(said.select("^prediction_.$").to_numpy(), z, atol=1e-9)
    assert known["R2"] == pytest.approx(metrics.r2_score(y, z))
    np.savez(tmp_path / "one.npz", x=np.zeros((2, 4)), y=np.zeros(2))
    with pytest.raises(muster.MusterError, match=r"targets are numbers of shape \(rows, 2\)"):
        run.predict(tmp_path / "one.npz")


def test_a_loss_of_ones_own_gives_its_outputs(tmp_path, capsys, monkeypatch):
    fed = tasks.of("custom")

    def absolute(z, y):
        return (z[:, 0] - y).abs() + 0.0 * z[:, 1]

    run = muster.simulate(
        fed,
        M.fedavg(),
        tasks.network(2),
        rounds=2,
        task=muster.tasks.custom(absolute, absolute, "mae", False),
    )
    x, y = (t.numpy() for t in fed.test.client(0))
    said, known = run.predict_and_score(x)
    assert said.columns == ["row", "output_0", "output_1"]
    assert known is None
    z = run.model()(torch.from_numpy(x).float()).detach().numpy()
    np.testing.assert_allclose(said.select("^output_.$").to_numpy(), z, atol=1e-7)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mynet.py").write_text("from tasks import network\n\n\ndef net():\n"
                                       "    return network(2)\n")  # fmt: skip
    muster.save(run, "run")
    np.savez("rows.npz", x=x, y=y)
    assert main(["predict", "run", "rows.npz", "--model", "mynet:net"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("row,label,output_0,output_1\n1,")
    assert printed.err == ""


def test_the_scores_of_yes_or_no_are_those_of_its_task(tmp_path):
    run, _, y, z = trained("binary", tmp_path)
    said, known = run.predict_and_score(tmp_path / "rows.npz")
    assert list(known) == ["accuracy", "AUC", "loss"]
    assert known["AUC"] == pytest.approx(metrics.roc_auc_score(y, z[:, 0]))
    assert (said["prediction"] == said["label"]).mean() == pytest.approx(known["accuracy"])
