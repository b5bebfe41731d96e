"""Texts over a network: the terms name the column, each node's owner names the tokenizer."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import muster
from flower_grid import LocalGrid, Node
from flower_parity import assert_same
from flower_setup import Setup
from muster.base.errors import MusterError
from muster.cli.main import main
from muster.config.experiment import load
from muster.config.network import Network, members_of
from muster.flower.client.node_data import read_own_data
from muster.flower.local.local_data import write_node_files

WORDS = ["", "a", "bad", "film", "fine", "good", "one", "poor"]
TERMS = {"label": "liked", "classes": ["no", "yes"], "text": "review", "length": 6,
         "enrolment_timeout": 0.2, "timeout": 0.3}  # fmt: skip


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    """A module of the user's."""
    module = types.ModuleType("mine")
    module.tokens = lambda text: [WORDS.index(word) for word in text.split()]
    module.others = lambda text: [len(WORDS) - 1 - t for t in module.tokens(text)]
    monkeypatch.setitem(sys.modules, "mine", module)
    return module


def reviews(seed, n=30):
    draw = np.random.default_rng(seed)
    liked = draw.integers(0, 2, n)
    said = [["bad", "poor"], ["fine", "good"]]
    texts = [
        " ".join([*draw.choice(["a", "film", "one"], draw.integers(1, 7)), draw.choice(said[y])])
        for y in liked
    ]
    return pl.DataFrame({"review": texts, "stars": 3, "liked": np.array(["no", "yes"])[liked]})


class Texts(Setup):
    def __init__(self, folder, tokenizers=("mine:tokens",) * 3, **network):
        self.folder = folder
        (folder / "shops").mkdir()
        for k in range(3):
            reviews(k).write_csv(folder / "shops" / f"shop{k}.csv")
        self.chosen = load({
            "name": "test", "rounds": 4, "dtype": "float64", "trust": False,
            "data": {"name": "folder", "path": str(folder / "shops"), "label": "liked",
                     "priority": 2, "tokenizer": "mine:tokens"},
            "model": {"name": "bag", "vocabulary": len(WORDS), "width": 4},
            "method": {"name": "fedalign", "epsilon": 0.5, "warmup": 0},
            "local": {"steps": 5, "batch_size": 8, "lr": 1.0},
            "network": TERMS | network,
        }, trusted=True)  # fmt: skip
        self.fed = self.chosen.federation(0)
        self.network, self.declared = self.chosen.network, True
        owners = [{"data-path": str(folder / "shops" / f"shop{k}.csv")} for k in range(3)]
        for owner, tokenizer in zip(owners, tokenizers, strict=True):
            owner |= {"tokenizer": tokenizer} if tokenizer else {}
        self.nodes = [Node(owner) for owner in owners]


def test_a_federation_of_texts_is_the_simulated_one(tmp_path, capsys):
    case = Texts(tmp_path)
    real = case.run()
    assert_same(real, case.simulate())
    reviews(9, 4).select("review").write_csv(tmp_path / "new.csv")
    words = ["predict", str(tmp_path / "run"), str(tmp_path / "new.csv")]
    assert main(words) == 2
    assert "by what its nodes have, your own code" in capsys.readouterr().err
    assert main([*words, "--tokenizer", "mine:tokens"]) == 0
    said = pl.read_csv(capsys.readouterr().out.encode())
    assert said["prediction"].is_in(["no", "yes"]).all()


def test_who_makes_other_tokens_is_left_out(tmp_path):
    case = Texts(tmp_path, ("mine:tokens", "mine:tokens", "mine:others"))
    real = case.run()
    assert any("without shop2: its columns differ" in line for line in case.said)
    assert any("its tokenizer makes other tokens" in line for line in case.said)
    assert real.final.filter(pl.col("rows") > 0)["name"].to_list() == ["shop0", "shop1"]


def test_a_node_without_a_tokenizer_fails_and_says_how_to_give_one(tmp_path):
    case = Texts(tmp_path, ("mine:tokens", "mine:tokens", None))
    case.run()
    assert any(re.search("without shop2: .*--tokenizer MODULE:NAME", line) for line in case.said)


def test_the_terms_import_nothing_and_a_manifest_neither(tmp_path):
    with pytest.raises(MusterError, match=r"unknown key 'network.tokenizer'"):
        Texts(tmp_path, tokenizer="mine:tokens")
    reviews(0).write_csv(tmp_path / "a.csv")
    (tmp_path / "a.manifest.toml").write_text('tokenizer = "mine:tokens"')
    config = {"data-path": str(tmp_path / "a.csv")}
    with pytest.raises(MusterError, match="start the node with --tokenizer"):
        read_own_data(config, Network(**{**TERMS, "classes": ("no", "yes")}), 0)


@pytest.mark.parametrize("also", [{"scale": "pooled"}, {"columns": ["stars"]}, {"missing": "mean"}])
def test_a_text_is_all_a_model_reads(also):
    with pytest.raises(MusterError, match=r"network\.text: given together with"):
        load({"network": {**TERMS, **also}})


def test_on_this_machine_nodes_are_given_their_texts(tmp_path):
    case = Texts(tmp_path)
    (tmp_path / "work").mkdir()
    given = write_node_files(case.chosen, case.fed, tmp_path / "work")
    case.nodes, case.network = [Node(owner) for owner in given.owners], given.network
    assert pl.read_parquet(given.owners[0]["data-path"])["review"].dtype == pl.String
    assert_same(case.run(LocalGrid(case.nodes)), case.simulate())


def test_a_bag_is_torchs_own_and_says_what_it_takes(tmp_path):
    import torch

    fed = Texts(tmp_path).fed
    module = muster.models.Bag(len(WORDS), 4).build(fed, 0)
    x = fed.train.x[:9]
    torchs = torch.nn.EmbeddingBag.from_pretrained(
        module[0].vectors.weight.detach(), mode="mean", padding_idx=0
    )
    torch.testing.assert_close(module[0](x), torchs(x))
    with pytest.raises(MusterError, match="takes texts, as rows of tokens"):
        muster.models.Bag().build(muster.data.digits(), 0)
    with pytest.raises(MusterError, match=r"tokens up to 7: index out of range"):
        muster.simulate(fed, muster.methods.fedavg(), muster.models.Bag(5, 4), rounds=1)


def test_the_padding_of_texts_is_set_in_one_place(tmp_path):
    """The data's, the network's and the model's token are one."""
    case = Texts(tmp_path, pad=3)
    assert case.fed.pad == 3
    assert muster.models.Bag(len(WORDS), 4).build(case.fed, 0)[0].pad == 3
    with pytest.raises(MusterError, match=r"model\.pad: 5, and the data's texts are .* with 3"):
        muster.models.Bag(len(WORDS), 4, pad=5).build(case.fed, 0)
    assert_same(case.run(), case.simulate())
    kept = muster.load(tmp_path / "run")
    assert kept.model()[0].pad == 3
    data = case.chosen.data | {"pad": 0}
    with pytest.raises(MusterError, match=r"data\.pad: 0, and network\.pad is 3; leave the first"):
        replace(case.chosen, data=data).federation(0)


def test_nodes_that_are_given_tokens_know_what_fills_them_up(tmp_path):
    case = Texts(tmp_path)
    data = case.chosen.data | {"text": "review", "length": 6, "pad": 3}
    terms = Network(enrolment_timeout=0.2, timeout=0.3)
    case.chosen = replace(case.chosen, data=data, network=terms)
    case.fed = case.chosen.federation(0)
    (tmp_path / "work").mkdir()
    given = write_node_files(case.chosen, case.fed, tmp_path / "work")
    case.nodes, case.network = [Node(owner) for owner in given.owners], given.network
    assert given.owners[0]["data-path"].endswith(".npz")
    assert_same(case.run(LocalGrid(case.nodes)), case.simulate())


def test_members_are_those_of_the_shops(tmp_path):
    case = Texts(tmp_path)
    members = members_of(case.fed, [node.key.decode() for node in case.nodes])
    assert [m.name for m in replace(case.chosen, members=members).members][2] == "shop2"
