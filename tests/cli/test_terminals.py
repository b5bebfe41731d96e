"""On a terminal that knows only ASCII every command says what it has to say, and none fails."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from muster.report.text_format import NEAREST, to_ascii

ASCII = {**os.environ, "PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C", "COLUMNS": "60"}


def ran(here, *words):
    """What a command prints, on both streams, as ASCII."""
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli", *words], cwd=here, env=ASCII, capture_output=True
    )
    printed = (done.stdout + done.stderr).decode("ascii")  # anything else is an error
    assert "Traceback" not in printed
    assert "UnicodeEncodeError" not in printed
    return done.returncode, printed


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with data of clients called Zürich and 東京, and results on them."""
    folder = tmp_path_factory.mktemp("ascii")
    (folder / "data").mkdir()
    for name in ("Zürich", "東京"):
        rows = "age,label\n" + "1,krank\n2,gesünder\n" * 10
        (folder / "data" / f"{name}.csv").write_text(rows, encoding="utf-8")
    (folder / "c.toml").write_text(
        'name = "größe"\nrounds = 2\nseeds = 2\ndata = "digits"\n'
        '[[methods]]\nname = "fedalign"\nlabel = "ausgewählt"\n'
        '[[methods]]\nname = "fedavg"\nlabel = "alle ± viele"\n',
        encoding="utf-8",
    )
    return folder


def test_a_comparison_and_what_is_shown_of_it(here):
    code, out = ran(here, "compare", "c.toml")
    assert code == 0
    assert "ausgewahlt" in out
    assert "mean +- 95 %, 2 seeds, each a new deal" in " ".join(out.split())
    assert "alle +- viele" in out
    code, again = ran(here, "show", "runs/größe", "--figure", "bild.pdf")
    assert code == 0
    assert again.partition("figure:")[0].strip() in out.replace("\r", "")
    assert (here / "bild.pdf").read_bytes().startswith(b"%PDF")
    assert "figure:  bild.pdf" in again


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ["run", "--data", "digits", "--rounds", "1", "--name", "eins"],
            "0 of 1 round in all",
            marks=pytest.mark.slow,
        ),
        (["methods"], "fedalign"),
        (["data", "show", "data"], "Zurich"),
        pytest.param(
            ["data", "show", "digits", "--clients", "5"], "labels", marks=pytest.mark.slow
        ),
        *(
            pytest.param(words, said, marks=pytest.mark.slow)
            for words, said in (
                (["data"], "fmnist"),
                (["--help"], "muster compare"),
                (["run", "--help"], "--panels"),
                (["data", "show", "--help"], "digits"),
            )
        ),
    ],
)
def test_no_command_fails(here, words, said):
    code, out = ran(here, *words)
    assert code == 0
    assert said in out


def test_errors_are_printed(here):
    code, out = ran(here, "run", "größe.toml")
    assert code == 2
    assert out == "muster: grosse.toml: no such file; give a TOML configuration\n"


def test_letters_become_what_is_nearest():
    assert all(value.isascii() for value in NEAREST.values())
    assert to_ascii("Ærø…") == "?ro..."
    assert to_ascii("plain") == "plain"
