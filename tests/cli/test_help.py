"""Help: every command and every key, from the signatures themselves."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path

import pytest

import muster.cli.options as options
from blank_figures import leave_out_figures
from helpers import cut_short
from muster.base.registry import kinds, roles
from muster.base.schema import describe_parameters
from muster.cli.help import format_value
from muster.cli.main import EXAMPLES, build_parser, main
from muster.config.experiment import Experiment, load
from muster.config.network import Network
from muster.config.settings import Settings
from muster.methods import METHODS
from muster.results.measures import MEASURES
from muster.tasks.scores import SCORES


def help_of(*line, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*line, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def commands():
    top = build_parser().commands
    return [(name,) for name in top] + [
        (name, inner) for name in top for inner in top[name].load().commands
    ]


@pytest.mark.parametrize("line", commands(), ids=" ".join)
def test_every_command_has_help(line, capsys):
    out = help_of(*line, capsys=capsys)
    assert out.startswith(f"usage: muster {' '.join(line)}")
    command = build_parser()
    for name in line:
        command = command.commands[name].load()
    for flag in command.flags:
        assert re.search(rf"^ .*{flag}\b", out, re.MULTILINE)


def test_every_key_is_there_with_its_default(capsys):
    out = help_of("run", capsys=capsys)
    for field in dataclasses.fields(Settings):
        assert re.search(rf"^  {field.name} .*", out, re.MULTILINE), field.name
    for key in ("data", "model", "method", "methods", "local", "requirement", "network", "clients"):
        assert re.search(rf"^  {key}  ", out, re.MULTILINE), key
    for line in (
        r"rounds .*\[200\]", r"dtype .*\[float32\]", r"seeds .*\[5\]", r"attack .*\[none\]",
        r"data .*\[synth\]", r"model .*\[softmax\]", r"method .*\[fedalign\]",
        r"local\.steps +minibatch steps a round \[5\]", r"local\.lr +[^[]*\[0\.1\]",
        r"requirement\.rounds +rounds of work alone",
        r"network\.timeout .*",
    ):  # fmt: skip
        assert re.search(f"^  {line}", out, re.MULTILINE), line
    assert "results go to OUT/NAME" in out
    for field in dataclasses.fields(Network):
        assert f"network.{field.name} " in out
    text = " ".join(out.split())
    for role in roles():
        for name in kinds(role):
            assert re.search(rf"\b{name}\b", text), name
    for name, measure in MEASURES.items():
        if measure.score in ("", "accuracy"):
            assert f"  {name} " in out
    assert all(score in text for score in SCORES)  # a run adds those of tasks of the user's own
    assert "epsilon=0.2, criterion=loss" in text
    assert "partition=shards(per_client=2, size=500, shared=false)" in text


def test_what_help_says_of_keys_is_what_the_configuration_takes():
    """A key that is documented and unknown, or known and not documented, is a mistake."""
    assert set(describe_parameters(Settings)) == {
        field.name for field in dataclasses.fields(Settings)
    }
    assert set(describe_parameters(Network)) == {
        field.name for field in dataclasses.fields(Network)
    }
    for key in describe_parameters(Experiment):
        load({key: [] if key == "clients" else ["fedavg"] if key == "methods" else
                    {} if key in ("local", "network", "requirement") else
                    {"data": "digits", "model": "mlp", "method": "fedavg"}[key]})  # fmt: skip


def test_defaults_are_shown_as_they_would_be_typed():
    from muster.data import Dirichlet

    assert format_value(Dirichlet(0.5)).startswith("dirichlet(alpha=0.5")
    assert format_value(True) == "true"
    assert format_value(()) == "none"


def test_every_parameter_of_every_method_is_explained(capsys):
    for name, target in METHODS.items():
        taken = list(inspect.signature(target).parameters)
        assert list(describe_parameters(target)) == taken, name
        assert main(["methods", name]) == 0
        out = " ".join(capsys.readouterr().out.split())
        for key, text in describe_parameters(target).items():
            assert f"{key} {text}" in out
    assert main(["methods", "fedalgin"]) == 2
    assert "did you mean 'fedalign'" in capsys.readouterr().err


def test_the_first_example_runs_where_there_is_nothing(tmp_path, monkeypatch, capsys):
    """It once named a file that a checkout has, and an installed package has not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "load", cut_short)
    leave_out_figures(monkeypatch)
    first = re.findall(r"^  muster (.*?)(?:  |$)", EXAMPLES, re.MULTILINE)[0]
    assert main(first.split()) == 0
    assert "report:  runs/run/report.html" in capsys.readouterr().out


def test_files_that_examples_name_are_in_the_package():
    package = Path(__file__).parents[2] / "pyproject.toml"
    shipped = tomllib.loads(package.read_text())["tool"]["setuptools"]["package-data"]["muster"]
    named = set(re.findall(r"\S+\.toml", EXAMPLES))
    assert named
    for name in named:
        assert (files("muster") / name).is_file(), name
        assert any(fnmatch(name, pattern) for pattern in shipped), name


def test_examples_of_comparisons_compare_something():
    for line in re.findall(r"^  muster (?:compare|sweep) .*", EXAMPLES, re.MULTILINE):
        assert line.count("--method ") != 1, line


def test_help_has_a_value_for_every_default(capsys):
    assert "then=scale_update(fraction=0.05, factor=-1.0" in " ".join(
        help_of("run", capsys=capsys).split()
    )


def test_a_method_is_described_with_its_parts(capsys):
    assert main(["methods", "local"]) == 0
    assert re.search(r"parts +solver=Solo\(\), step=Stay\(\)", capsys.readouterr().out)
