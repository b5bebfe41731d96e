"""`muster data show`: the table says what the clients hold, and the picture is one."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.image
import numpy as np
import polars as pl
import pytest
from rich.console import Console

import muster
from muster.cli.data_show import format_heading
from muster.cli.main import build_parser


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(*words):
    """What the command prints."""
    console = Console(width=160, file=io.StringIO())
    read = build_parser().parse(["data", "show", *words])
    assert read.execute(read, console) == 0
    return console.file.getvalue()


def row(text, name):
    """The cells of a client's row, the bar aside."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [name])


def test_the_table_says_what_each_client_holds(here):
    flags = [
        "--clients",
        "6",
        "--partition",
        "dirichlet",
        "--partition.alpha",
        "0.5",
        "--seed",
        "4",
    ]
    text = shown("digits", *flags)
    fed = muster.data.digits(clients=6, partition=muster.data.Dirichlet(0.5), seed=4)
    assert "digits: 6 clients, 2 priority; " in text
    for k in range(6):
        _, y = fed.train.client(k)
        role = "priority" if k < 2 else "-"
        held = len(np.unique(y.numpy()))
        cells = [str(k), role, str(len(y)), str(fed.test.sizes[k]), str(held)]
        assert row(text, str(k))[:5] == cells
    assert "figure: digits-data.png" in text
    assert "more clients" not in text


def test_the_bar_is_highest_at_the_main_class(here):
    rows = "age,label\n" + "1,0\n" * 8 + "1,2\n" * 4 + "1,3\n"
    Path("north.csv").write_text(rows)
    text = shown("./north.csv", "--test_fraction", "0")
    line = next(line for line in text.splitlines() if line.split()[:1] == ["north"])
    assert line.rstrip().endswith("█ ▄▁")


def test_many_clients_are_summed_up_in_quantiles(here):
    text = shown("digits", "--clients", "90", "--partition", "iid", "--out", "some.png")
    assert "... and 70 more clients; of all 90:" in text
    fed = muster.data.digits(clients=90, partition=muster.data.IID())
    median = row(text, "median")
    assert float(median[1]) == np.median(fed.train.sizes)
    held = [len(np.unique(fed.train.client(k)[1].numpy())) for k in range(90)]
    assert float(median[3]) == np.median(held)
    assert matplotlib.image.imread("some.png").std() > 0.05


def test_names_roles_and_requirements_of_your_own_data(here):
    Path("h").mkdir()
    for name in ("north", "south"):
        rows = pl.DataFrame({"age": np.arange(10), "sick": ["yes", "no"] * 5})
        rows.write_csv(f"h/{name}.csv")
    Path("h/manifest.toml").write_text(
        "label = 'sick'\n[clients.north]\npriority = true\nrequirement = 0.35\n"
        "[clients.south]\nrequirement = 0.5\nimportance = 0.25\n"
    )
    text = shown("h", "--out", "h.svg")
    assert row(text, "north")[:6] == ["north", "priority", "8", "2", "0.35", "2"]
    assert row(text, "south")[:5] == ["south", "helps,", "0.25", "8", "2"]
    assert "labels, from left to right: no, yes" in text
    picture = Path("h.svg").read_text()
    assert picture.startswith("<?xml")
    # Names are drawn as outlines; matplotlib leaves the words in comments.
    for word in ("north", "south", "yes", "no", "training rows"):
        assert f"<!-- {word} -->" in picture


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "data show: of which data? give a path, or one of "),
        (["digist"], "data.name: 'digist' is unknown; did you mean 'digits'"),
        (["no/where"], "no/where: no such file or folder"),
        (["digits", "--client", "3"], "unknown key 'data.client'; did you mean 'clients'"),
        (["digits", "--clients", "few"], "data.clients: 'few'; allowed: a whole number"),
        (["digits", "--partition", "dirichlt"], "did you mean 'dirichlet'"),
        (["digits", "--partition", "dirichlet", "--partition.alfa", "1"], "did you mean 'alpha'"),
        (["digits", "--seed", "x"], "seed: 'x'; allowed: a whole number"),
        (["digits", "--out", "a.doc"], "--out: 'a.doc'; the file ending must be one of .png"),
        (["digits", "--out"], "--out: its value is missing"),
        (["digits", "more"], "'more': not understood"),
    ],
)
def test_bad_arguments_are_a_one_line_error(here, words, message):
    with pytest.raises(muster.MusterError) as caught:
        shown(*words)
    assert message in str(caught.value)
    assert not list(here.iterdir())


def test_weighted_test_rows_are_counted_as_they_are(here):
    x, y = np.zeros((12, 2)), np.arange(12) % 2
    np.savez("a.npz", x=x, y=y, x_test=x[:4], y_test=y[:4], weight_test=np.arange(1.0, 5))
    assert "12 training rows, 4 test rows; rows of" in shown("a.npz")
    x, y = np.eye(12), np.arange(12) % 2
    halves = [np.arange(6), np.arange(6, 12)]
    fed = muster.data.federate(x, y, halves, test=(x[:4], y[:4]))
    assert "12 training rows, 4 test rows for everyone; rows of" in format_heading(fed)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_table_has_every_number_and_bar(here, width):
    Path("h").mkdir()
    for name in ("the hospital of a small town in the north", "the other one"):
        rows = pl.DataFrame({"age": np.arange(80), "sick": np.arange(80) % 40})
        rows.write_csv(f"h/{name}.csv")
    Path("h/manifest.toml").write_text(
        "label = 'sick'\n[clients.'the other one']\nrequirement = 0.3512\n"
        "[clients.'the hospital of a small town in the north']\nrequirement = 0.2748\n"
    )

    def words(width):
        console = Console(width=width, file=io.StringIO())
        read = build_parser().parse(["data", "show", "h"])
        assert read.execute(read, console) == 0
        return console.file.getvalue()

    out, whole = words(width), words(400)
    for sign in ("█", "▁", "0.3512", "0.2748"):
        assert out.count(sign) == whole.count(sign)
    assert "…" not in out
