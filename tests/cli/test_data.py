"""`muster data` as a person uses it: the listing, getting a data set, and every wrong word."""

from __future__ import annotations

import re

import pytest

from muster.cli.main import main
from muster.config import load, override
from muster.data.sources.catalogue import CATALOGUE
from muster.data.sources.download import Http
from muster.data.sources.readers import MNIST_FILES
from small_data import ROOT, http_server, left_behind, small, write_idx


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path / "cache"


@pytest.fixture
def entry(root, tmp_path, monkeypatch):
    """A small data set in the catalogue, with an HTTP address on this machine."""
    write_idx(tmp_path / "home")
    with http_server(tmp_path / "home", monkeypatch) as address:
        home = Http(address, tuple(f"{n}.gz" for n in MNIST_FILES))
        data = small(tmp_path, sources=(home,))
        monkeypatch.setitem(CATALOGUE, "small", data)
        yield data


def row(text, name):
    """What the listing says of one data set, to the next one's row."""
    return re.split(r"\n ?(?=\w)", text[re.search(rf"^ ?{name} ", text, re.M).start() + 1 :])[0]


def test_the_listing_has_everything_about_everything(root, entry, capsys):
    assert main(["data"]) == 0
    out = capsys.readouterr().out
    for name, data in CATALOGUE.items():
        mine = row(out, name)
        for said in (data.title, data.about, data.licence, data.command):
            assert said in mine, (name, said)
    assert re.search(r"small +no +1.0 kB", out)
    assert re.search(r"digits +always", out)
    assert f"{root}/arrays/NAME" in out
    assert not root.exists(), "looking must not write"


def test_get_stores_it_once_and_the_listing_shows_it(root, entry, capsys):
    assert main(["data", "get", "small"]) == 0
    out = capsys.readouterr().out
    assert "small: verified, 40 + 40 rows (sha256 of the arrays and counts)" in out
    assert f"in {root}/arrays/small" in out
    assert left_behind(root) == ["small"]
    assert main(["data", "get", "small"]) == 0
    assert "small: already there, 40 + 40 rows" in capsys.readouterr().out
    assert main(["data"]) == 0
    mine = row(capsys.readouterr().out, "small")
    assert re.search(r"small +yes", mine)
    assert f"in {root}/arrays/small" in mine


@pytest.mark.parametrize("form", [["--folder", "{}"], ["--folder={}"]])
def test_get_from_a_folder(root, entry, tmp_path, form, capsys):
    folder = write_idx(tmp_path / "own")
    assert main(["data", "get", *(word.format(folder) for word in form), "small"]) == 0
    assert left_behind(root) == ["small"]


def test_a_damaged_copy_is_shown_as_such_and_fetched_again(root, entry, capsys):
    main(["data", "get", "small"])
    (root / "arrays" / "small" / "x.npy").write_bytes(b"")
    main(["data"])
    assert re.search(r"small +damaged", capsys.readouterr().out)
    assert main(["data", "get", "small"]) == 0
    assert "small: verified" in capsys.readouterr().out


def test_get_looks_at_every_byte_of_a_copy(root, entry, capsys):
    main(["data", "get", "small"])
    path = root / "arrays" / "small" / "x.npy"
    right = path.read_bytes()
    path.write_bytes(right[:-1] + b"\7")
    capsys.readouterr()
    assert main(["data", "get", "small"]) == 0
    assert "small: verified" in capsys.readouterr().out
    assert path.read_bytes() == right
    assert main(["data", "get", "small"]) == 0
    assert "small: already there" in capsys.readouterr().out


def test_every_data_set_is_shown_by_its_name_or_says_how():
    for name, data in CATALOGUE.items():
        shown, *flags = (data.shown_by or name).split()
        load(override({"data": shown}, [(f"data.{flags[0][2:]}", flags[1])] if flags else []))


def test_a_folder_without_the_files_lists_all_names_they_may_have(root, tmp_path, capsys):
    assert main(["data", "get", "emnist_byclass", "--folder", str(tmp_path)]) == 2
    assert (
        "(gzip.zip or emnist-byclass-train-images-idx3-ubyte and 3 more or emnist_byclass_test.npz)"
        in capsys.readouterr().err
    )


def test_what_is_always_there_needs_no_getting(root, capsys):
    assert main(["data", "get", "digits"]) == 0
    assert "always there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["get", "smal"], "unknown data set 'smal'; did you mean 'small'?"),
        (["get"], f"data get: give one data set; known: {sorted(CATALOGUE)[0]}, "),
        (["get", "small", "mnist"], "data get: give one data set"),
        (["get", "small", "--folder"], "--folder: its value is missing"),
        (["get", "small", "--folder", "nowhere"], "--folder: nowhere is no folder"),
        (["get", "small", "--foldr", "x"], "unknown flag '--foldr'; did you mean '--folder'?"),
        (
            ["get", "emnist"],
            "data get: emnist has parts; get them one by one: emnist_balanced",
        ),
        (
            ["show", "emnist_byclass"],
            "emnist_byclass: run `muster data show emnist --split byclass`",
        ),
        (["show", "glove"], "glove: run `muster data show sent140`"),
        (["got"], "unknown data command 'got'; did you mean 'get'?"),
        (["get", "small", "--folder", "."], "Small (train-images-idx3-ubyte and 3 more) is not in"),
    ],
)
def test_wrong_arguments_are_a_one_line_error(
    root, entry, tmp_path, monkeypatch, words, line, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["data", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"muster: {line}")
    assert error.count("\n") == 1
    assert left_behind(root) == []


def test_a_home_that_gives_other_bytes_leaves_nothing(root, entry, tmp_path, capsys):
    write_idx(tmp_path / "home", rows=50)
    assert main(["data", "get", "small"]) == 2
    error = capsys.readouterr().err
    assert "x has shape (50, 784), that of Small is (40, 784)" in error
    assert error.count("\n") == 1
    assert left_behind(root) == []


def test_the_table_in_the_docs_is_current(capsys):
    assert main(["data", "--markdown"]) == 0
    text = (ROOT / "docs" / "data.md").read_text()
    table = text.split("<!-- data sets -->\n")[1].split("<!-- end data sets -->")[0]
    assert table == capsys.readouterr().out, "run: muster data --markdown, and paste"


def test_help_shows_the_forms(capsys):
    with pytest.raises(SystemExit):
        main(["data", "--help"])
    assert "muster data get NAME [--folder PATH]" in capsys.readouterr().out
