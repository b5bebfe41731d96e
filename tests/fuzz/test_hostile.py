"""Folders of results that somebody made up, by every command that reads them: one line each, no
traceback, no hanging, nothing overwritten and nothing on the terminal but text."""

from __future__ import annotations

import shutil
from functools import partial

import polars as pl
import pytest
import tomli_w

import muster
from hostile import HOSTILE, make, marked
from muster.base.errors import UNSEEN
from muster.cli.main import main
from mutants import sums_again, undrawn
from mutation import finding

READING = [
    ["show", "run"],
    ["figure", "run"],
    ["report", "run"],
    ["watch", "run", "--once", "--page"],
    ["predict", "run", "data/client0.csv", "--client", "0"],
    ["export", "run", "--to", "model.pt", "--client", "0"],
    ["report", "run", "runs/half"],
]  # fmt: skip


@pytest.fixture
def here(base, tmp_path, monkeypatch):
    """A place with a sound run next to where a hostile one will be."""
    for name in ("data", "runs"):
        shutil.copytree(base / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with undrawn():
        yield tmp_path


def test_a_sound_folder_is_read_by_every_command(here):
    shutil.copytree(here / "runs" / "own", here / "run")
    for words in READING[:-1]:
        assert main(words) == 0, words


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_is_one_line(here, name, capfd):
    make(name, here / "runs" / "own", here / "run")
    for words in READING:
        assert finding(partial(main, words)) == "", words
    assert main(["predict", "run", "data/client0.csv", "--client", "0"]) == 2, "it was taken"


def test_a_figure_that_is_a_link_leaves_its_target_as_it_was(base, tmp_path, monkeypatch):
    shutil.copytree(base / "runs" / "half", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").write_text("theirs")
    for name in ("figure.png", "report.html", "paper.svg"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).symlink_to(tmp_path / "theirs")
    assert main(["figure", "run"]) == 0
    assert main(["report", "run"]) == 0
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (tmp_path / "run" / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_checkpoints_that_are_a_link_are_not_resumed(here, capsys):
    shutil.move(here / "runs" / "killed" / "checkpoints", here / "elsewhere")
    (here / "runs" / "killed" / "checkpoints").symlink_to(here / "elsewhere")
    before = sorted(p.name for p in (here / "elsewhere").rglob("*"))
    assert main(["run", "--resume", "runs/killed"]) == 2
    assert "checkpoints: a link" in capsys.readouterr().err
    assert sorted(p.name for p in (here / "elsewhere").rglob("*")) == before


@pytest.mark.parametrize("label", ["../own", "/etc", "a\0b", "x" * 400])
def test_a_comparison_whose_runs_lie_elsewhere_is_refused(here, label, capsys):
    marker = {"labels": [label], "seeds": [0], "made": {}}
    (here / "runs" / "both" / "comparison.toml").write_text(tomli_w.dumps(marker))
    assert main(["show", "runs/both"]) == 2
    assert "no plain name" in capsys.readouterr().err


MANY = [{"key": f"k{i}", "values": list(range(10))} for i in range(30)]


@pytest.mark.parametrize("marker", [
    {"over": MANY, "labels": ["a"], "seeds": [0]},
    {"over": [{"keys": 5, "values": [1]}], "labels": ["a"], "seeds": [0]},
    {"over": [{"key": "k", "values": 7}], "labels": ["a"], "seeds": [0]},
    {"over": {"k": 1}, "labels": ["a"], "seeds": [0]},
    {"over": [1], "labels": ["a"], "seeds": [0]},
    {"over": [], "labels": "a", "seeds": 0},
    {"over": [{"key": "k", "values": [1]}], "labels": ["../a"], "seeds": ["x"]},
    {},
])  # fmt: skip
def test_a_sweep_that_somebody_made_up_is_one_line(tmp_path, monkeypatch, marker):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "swept").mkdir()
    (tmp_path / "swept" / "sweep.toml").write_text(tomli_w.dumps(marker))
    for words in (["show", "swept"], ["report", "swept"], ["watch", "swept", "--once"]):
        assert finding(partial(main, words)) == "", words
        assert main(words) == 2


def test_more_runs_than_anybody_has_are_not_looked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "both").mkdir()
    many = {"labels": [f"l{i}" for i in range(2000)], "seeds": list(range(2000)), "made": {}}
    (tmp_path / "both" / "comparison.toml").write_text(tomli_w.dumps(many))
    for words in (["show", "both"], ["report", "both"], ["watch", "both", "--once"]):
        assert main(words) == 2
        assert "more than 1000000 runs" in capsys.readouterr().err


def test_names_and_notes_with_terminal_codes_are_shown_as_text(here, capsys):
    evil = "\x1b]0;owned\x07\x1b[2J\r\u202e"
    folder = here / "runs" / "own"
    marked(lambda t: t.update(method=f"m{evil}", note=f"note{evil}", config={}))(folder)
    marked(lambda t: t["facts"].update(doubts=[f"doubt{evil}"], engine_why=evil))(folder)
    final = pl.read_parquet(folder / "final.parquet")
    final.with_columns(name=pl.lit(f"client{evil}")).write_parquet(folder / "final.parquet")
    sums_again(folder)
    for words in (["show", "runs/own"], ["watch", "runs/own", "--once"], ["report", "runs/own"],
                  ["predict", "runs/own", "data/client0.csv"]):  # fmt: skip
        main(words)
        printed = capsys.readouterr()
        assert not UNSEEN.search(printed.out + printed.err), words
    assert muster.load(folder).note == f"note{evil}"
