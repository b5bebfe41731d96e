"""Columns of text: tokens by a function of the user's, which a run names and never imports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import muster
from muster.cli.main import main
from muster.config.experiment import load
from muster.federation import Inputs, TextEncoder

WORDS = ["<pad>", "good", "bad", "fine", "poor", "a", "film"]
CODE = f"""
from dataclasses import dataclass

from torch import nn

WORDS = {WORDS}


def words(text):
    return [WORDS.index(word) for word in text.split()]


@dataclass(frozen=True)
class Reader:
    def build(self, of, seed):
        return net()


def net():
    return nn.Sequential(nn.Embedding({len(WORDS)}, 4), nn.Flatten(), nn.Linear(16, 2))
"""
ROWS = [("a good film", 1), ("a bad film", 0), ("fine film", 1), ("poor film", 0)] * 4


def words(text):
    return [WORDS.index(word) for word in text.split()]


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pl.DataFrame({
        "review": [text for text, _ in ROWS], "label": [y for _, y in ROWS],
        "stars": range(len(ROWS)), "client": ["a", "b", "b", "a"] * 4,
    })  # fmt: skip
    table.write_csv("reviews.csv")
    Path("mywords.py").write_text(CODE)
    yield table
    import sys

    sys.modules.pop("mywords", None)


HOW = {"text": "review", "length": 4, "test_fraction": 0}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(len(WORDS), 4), nn.Flatten(), nn.Linear(16, 2))


def test_texts_become_tokens_of_one_length(reviews):
    fed = muster.Federation.from_folder("reviews.csv", tokenizer=words, **HOW)
    x = fed.train.x.numpy()
    assert (x.dtype, x.shape) == (np.int64, (16, 4))
    assert x[:3].tolist() == [[5, 1, 6, 0], [5, 2, 6, 0], [3, 6, 0, 0]]
    short = muster.Federation.from_folder(
        "reviews.csv", tokenizer=lambda text: np.array(words(text)), **{**HOW, "length": 2}, pad=9
    )
    assert short.train.x[2].tolist() == [3, 6]
    assert short.train.x[0].tolist() == [5, 1], "what is longer loses its end"
    one = {**HOW, "length": 3}
    assert muster.Federation.from_folder("reviews.csv", tokenizer=words, pad=9, **one).train.x[
        2
    ].tolist() == [3, 6, 9]
    plain = {**HOW, "length": None}
    assert muster.Federation.from_folder("reviews.csv", tokenizer=words, **plain).shape == (64,)


def test_a_run_reads_new_texts_as_it_did(reviews):
    fed = muster.Federation.from_folder("reviews.csv", tokenizer=words, **HOW)
    work = muster.Local(steps=5, batch_size=8, lr=0.5)
    run = muster.simulate(fed, muster.methods.fedavg(), net(), rounds=20, local=work)
    said = run.predict(["a fine film", "bad"])
    assert said["prediction"].to_list() == ["1", "0"]
    tokens = torch.tensor([[5, 3, 6, 0], [2, 0, 0, 0]])
    p = torch.softmax(run.model()(tokens), 1).detach().numpy()
    np.testing.assert_allclose(said.select("p_0", "p_1").to_numpy(), p, atol=1e-6)
    assert run.predict(tokens.numpy())["p_1"].to_list() == said["p_1"].to_list()
    _, known = run.predict_and_score("reviews.csv")
    assert known["accuracy"] == 1.0
    muster.save(run, "runs/r")
    back = muster.load("runs/r")
    with pytest.raises(muster.MusterError, match=r"read its texts by .*:words, your own code"):
        back.predict(["good"], build=net)
    assert back.predict(["a fine film", "bad"], build=net, tokenizer=words).equals(said)
    with pytest.raises(muster.MusterError, match="column 'review', row 1: the tokenizer fails"):
        run.predict(["a wonderful film"])


def test_from_the_command_line_by_import_path(reviews, capsys):
    flags = ["--data.text", "review", "--data.tokenizer", "mywords:words", "--data.length", "4"]
    assert main(["run", "--data", "reviews.csv", *flags, "--model", "mywords:Reader",
                 "--rounds", "2", "--name", "r"]) == 0  # fmt: skip
    inputs = json.loads(Path("runs/r/model.json").read_text())["inputs"]
    assert inputs["text"] == {"column": "review", "length": 4, "pad": 0, "called": "mywords:words"}
    pl.DataFrame({"review": ["good film"]}).write_csv("new.csv")
    capsys.readouterr()
    line = ["predict", "runs/r", "new.csv", "--model", "mywords:net"]
    assert main(line) == 2
    assert "read its texts by mywords:words" in capsys.readouterr().err
    assert main([*line, "--tokenizer", "mywords:words"]) == 0
    assert capsys.readouterr().out.startswith("row,prediction,p_0,p_1\n1,")


def test_nothing_is_imported_because_data_or_a_network_says_so(reviews):
    Path("reviews.manifest.toml").write_text('tokenizer = "os:system"\ntext = "review"\n')
    with pytest.raises(muster.MusterError, match="a manifest is data, and no code is imported"):
        muster.Federation.from_folder("reviews.csv")
    table = {"data": {"name": "folder", "path": "reviews.csv", "tokenizer": "mywords:words"}}
    with pytest.raises(muster.MusterError, match="'mywords:words' is an import path"):
        load(table)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"tokenizer": None}, "tokenizer: missing; give a function from a text"),
        ({"text": "reveiw"}, "no feature column 'reveiw'; did you mean 'review'"),
        ({"text": None}, "tokenizer: it is for texts; name their column: text ="),
        ({"features": ("stars",)}, "features: given together with text"),
        ({"scale": "pooled"}, "scale: given together with text"),
        ({"length": 0}, "length: 0; allowed"),
        ({"pad": -1}, "pad: -1; allowed"),
        ({"tokenizer": 3}, "tokenizer: int; give a function of a text, or its import path"),
        ({"tokenizer": "mywords:wrods"}, "tokenizer: 'mywords:wrods' cannot be imported"),
        ({"tokenizer": str.split}, "row 1: the tokenizer gives list; it must give a sequence of"),
        ({"tokenizer": lambda t: {"input_ids": [1]}}, "gives dict; .* take its method encode"),
        ({"tokenizer": lambda t: [-1]}, "row 1: the tokenizer gives -1; tokens are 0 or more"),
    ],
)
def test_what_cannot_be_is_one_line(reviews, how, says):
    with pytest.raises(muster.MusterError, match=says) as error:
        muster.Federation.from_folder("reviews.csv", **{**HOW, "tokenizer": words, **how})
    assert "\n" not in str(error.value)


def test_an_empty_text_is_missing(reviews):
    reviews.with_columns(review=pl.lit("")).write_csv("reviews.csv")
    with pytest.raises(muster.MusterError, match="column 'review', row 1: is missing"):
        muster.Federation.from_folder("reviews.csv", tokenizer=words, **HOW)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
def test_exported_it_takes_tokens(reviews):
    fed = muster.Federation.from_folder("reviews.csv", tokenizer=words, **HOW)
    run = muster.simulate(fed, muster.methods.fedavg(), net(), rounds=2)
    run.export("m.ts")
    p = torch.jit.load("m.ts")(torch.tensor([[5, 3, 6, 0]]))[0].tolist()
    assert p == pytest.approx(run.predict(["a fine film"]).row(0)[2:], abs=1e-6)
    taken = json.loads(Path("m.ts.json").read_text())["about"]["takes"]
    assert (taken["dtype"], taken["text"]["length"]) == ("int64", 4)


def test_it_survives_being_written_down():
    text = TextEncoder("review", 4, 0, "mine:words", words)
    again = Inputs.from_dict(Inputs((4,), 2, columns=("review",), text=text).to_dict()).text
    assert vars(again) == {**vars(text), "tokenizer": None}
