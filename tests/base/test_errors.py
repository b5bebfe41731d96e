"""What errors are made of: lists of names, and numbers of things."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

import muster
from muster.base.errors import command_line, list_names, nearest, plural, unknown_name
from muster.cli.main import COMMANDS


def test_a_list_of_nothing_says_so():
    assert str(unknown_name("key", "x", [])) == "unknown key 'x'; there are none"
    assert nearest("x", []) == "there are none"
    assert list_names(["b", "a"]) == "known: a, b"
    assert list_names(f"n{i:02}" for i in range(50)).endswith("n39 and 10 more")


def test_an_unknown_key_of_what_takes_none():
    with pytest.raises(muster.MusterError) as caught:
        muster.config.load({"model": {"name": "softmax", "width": 3}})
    assert "known:" not in str(caught.value) or not str(caught.value).rstrip().endswith("known:")
    assert str(caught.value) == "unknown key 'model.width'; there are none"


# What stands in a command as it is: names that the project gives, identifiers and numbers.
PLAIN = {
    "CATALOGUE[name].shown_by", "data.name", "experiment.id", "len(content.all_runs[0].final)",
    "name", "self.name",
}  # fmt: skip


def commands(tree):
    """The expressions that f-strings put into a command."""
    for text in ast.walk(tree):
        if isinstance(text, ast.JoinedStr):
            before = ""
            for part in text.values:
                if isinstance(part, ast.Constant):
                    before += str(part.value)
                elif re.search(rf"(muster ({'|'.join(COMMANDS)})( \S+)*|flwr run) $", before):
                    yield ast.unparse(part.value)


def test_what_a_command_is_given_is_quoted_for_the_shell():
    words = ["muster", "sweep", "--resume", "/tmp/Ordner mit Umläut/mein aus/zwei ü", "it's", "$x"]
    assert shlex.split(command_line(*words)) == words
    assert command_line("muster", "run", "--resume", Path("runs/a=1,b=2")) == (
        "muster run --resume runs/a=1,b=2"
    )
    sources = [path.read_text() for path in Path(muster.__file__).parent.rglob("*.py")]
    assert {value for text in sources for value in commands(ast.parse(text))} == PLAIN


def test_one_thing_is_one_thing():
    assert [plural(n, "round") for n in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]
    fed = muster.Federation.from_arrays([([[0.0], [1.0]], [0, 1])])
    assert repr(fed) == "Federation(1 client, 1 priority, 2 rows, 2 classes)"
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), 1)
    assert repr(run) == "Run(fedavg, seed 0, 1 round)"


def test_a_known_name_is_listed_once():
    assert nearest("x", ["b", "a", "b"]) == "known: a, b"
    error = unknown_name("key", "lr", ["lrs", "lrs", "eps"])
    assert str(error) == "unknown key 'lr'; did you mean 'lrs'? known: eps, lrs"
