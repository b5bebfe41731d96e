"""The one reader of command lines."""

from __future__ import annotations

import re

import pytest

import muster
from muster.base.errors import MusterError
from muster.cli.arguments import attach_negatives
from muster.cli.main import build_parser, main
from muster.cli.options import read_configuration
from muster.config.experiment import load


def read(*line):
    return build_parser().parse(list(line))


def test_arguments_may_come_in_any_order():
    for line in (
        ("run", "x.toml", "--rounds", "1", "--resume", "r"),
        ("run", "--rounds", "1", "x.toml", "--resume=r"),
        ("run", "--resume", "r", "--rounds=1", "x.toml"),
    ):
        words = read(*line)
        assert (words.config, words.resume, words.keys) == ("x.toml", "r", {"rounds": "1"})


def test_a_flag_is_any_key_of_the_configuration():
    words = read("run", "--method.epsilon.kind", "linear", "--report-at=[2, 3]", "--a.b-c", "x=y")
    assert words.keys == {"method.epsilon.kind": "linear", "report_at": "[2, 3]", "a.b_c": "x=y"}
    # Keys that are called like something of the command's own are keys all the same.
    words = read("run", "--config", "a", "--keys", "b", "--handle", "c", "--commands", "d")
    assert words.keys == {"config": "a", "keys": "b", "handle": "c", "commands": "d"}
    assert words.config is None


@pytest.mark.parametrize("number", ["-1", "-0.5", "-1e-3", "-inf", "-.5"])
def test_negative_numbers_are_values(number):
    assert read("run", "--seed", number, "x.toml").keys == {"seed": number}
    assert read("run", f"--seed={number}").keys == {"seed": number}


def test_only_a_number_stays_with_the_flag_before_it():
    assert attach_negatives(["--a=1", "-2", "-x", "--b", "--c", "-3"]) == [
        "--a=1",
        "-2",
        "-x",
        "--b",
        "--c=-3",
    ]


@pytest.mark.parametrize(
    "line",
    [
        ("run", "--rounds", "1", "--rounds", "1"),
        ("run", "--report-at", "1", "--report_at", "1"),
        ("run", "--resume", "a", "--resume", "a"),
        ("compare", "--data.noise", "low", "--data.noise", "high"),
        ("data", "get", "x", "--folder", "a", "--folder", "b"),
        ("data", "show", "x", "--seed", "1", "--seed", "2"),
        ("federate", "--local", "2", "--local", "3"),
    ],
)
def test_a_flag_given_twice_is_an_error(line):
    with pytest.raises(muster.MusterError, match=f"^{line[-2]}: given twice; give it once$"):
        read(*line)


BAD = {
    ("run", "--rounds"): "--rounds: its value is missing",
    ("run", "--rounds", "--seed", "1"): "--rounds: its value is missing",
    ("keys", "d", "--clients"): "--clients: its value is missing",
    ("run", "a.toml", "b.toml"): "'b.toml': not understood; flags look like --method.epsilon 0.3",
    ("run", "-x"): "'-x': not understood; flags look like --method.epsilon 0.3",
    ("run", "--=1"): "'--=1': not understood; flags look like --method.epsilon 0.3",
    ("show", "a", "b"): "'b': not understood",
    ("show", "a", "--measurs", "x"): "unknown flag '--measurs'; did you mean '--measures'? known",
    ("methods", "--lines=1"): "unknown flag '--lines'; known: --help, --markdown",
    ("--verbose",): "unknown flag '--verbose'; did you mean '--version'?",
    ("-v",): "'-v': not understood",
    ("data", "--lines", "1"): "unknown flag '--lines'",
    ("data", "shwo"): "unknown data command 'shwo'; did you mean 'show'?",
    ("methods", "--markdown=yes"): "--markdown: ignored explicit argument 'yes'",
    (
        "run",
        "--method",
        "a",
        "--method",
        "b",
    ): "--method: given 2 times; `muster run` runs one; use",
    ("federate", "x.toml", "--local", "2", "--method", "a", "--method", "b"): (
        "--method: given 2 times; a federation runs one"
    ),
}


@pytest.mark.parametrize("line", BAD, ids=" ".join)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(line, capsys):
    assert main(list(line)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"muster: {BAD[line]}")
    assert said.err.count("\n") == 1


ROUNDS = (
    "muster run, muster compare, muster sweep, muster tune, muster advise, muster federate, "
    "muster trust"
)
SHARED = "muster compare, muster sweep, muster tune, muster reproduce"
JOBS = "muster compare, muster sweep, muster tune, muster advise, muster reproduce"
OTHERS = {
    "run --jobs 2": JOBS,
    "run --share=1/2": SHARED,
    "run --data digits --on ray": SHARED,
    "sweep --profile": "muster run",
    "show runs/x --jobs 2": JOBS,
    "data show digits --every x": "muster watch",
    "methods --rounds=1": ROUNDS,
    "data check x --version": "muster",
    "run --quick": "muster reproduce",
}


@pytest.mark.parametrize("line", OTHERS)
def test_a_flag_of_other_commands_is_named_as_theirs(line, capsys):
    assert main(line.split()) == 2
    (flag,) = re.findall(r"--(?!data)[a-z]+", line)
    command = " ".join(re.findall("^(?:data )?[a-z]+", line))
    assert capsys.readouterr().err == (
        f"muster: {flag}: a flag of {OTHERS[line]}; muster {command} does not take it\n"
    )


def test_a_key_stays_a_key_where_another_command_has_a_flag_of_its_name():
    line = ["--out", "o", "--measure", "loss", "--panels", "loss", "--seeds", "2", "--local", "3"]
    assert set(read("compare", *line).keys) == {"out", "measure", "panels", "seeds", "local"}


def test_muster_alone_is_a_request_for_help(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "usage: muster" in out
    assert "muster compare examples/demo.toml" in out


def test_several_methods_take_the_place_of_the_files(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text("methods = ['maxfl', 'local']\n")
    more = ("--method", "fedalign", "--method", "{name = 'fedprox', mu = 0.5}")
    table = read_configuration(read("compare", str(file), *more))
    assert table == {"name": "x", "methods": ["fedalign", {"name": "fedprox", "mu": 0.5}]}
    assert read_configuration(read("compare", *more))["methods"] == table["methods"]
    file.write_text("method = 'maxfl'\n")
    assert read_configuration(read("compare", str(file), *more)) == table
    assert read_configuration(read("run", str(file), "--method", "local"))["method"] == {
        "name": "local"
    }


def test_fewer_rounds_by_a_flag_leave_out_what_a_file_prints_of_later_ones(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text("rounds = 100\nreport_at = [10, 50, 100]\n")
    assert read_configuration(read("compare", str(file), "--rounds", "50"))["report_at"] == [10, 50]
    assert read_configuration(read("compare", str(file), "--rounds", "5"))["report_at"] == []
    said = read_configuration(read("compare", str(file), "--rounds", "5", "--report_at", "[10]"))
    assert said["report_at"] == [10]  # and is refused: it was asked for
    with pytest.raises(MusterError, match="report_at: 10; allowed: whole numbers from 1 to 5"):
        load(said)


def test_one_number_is_a_list_of_one(tmp_path):
    assert load(read_configuration(read("run", "--report_at", "3"))).settings.report_at == (3,)


def test_what_refines_a_choice_may_come_before_it():
    line = ("--method.epsilon", "0.3", "--data.partition.alpha", "1", "--method", "fedalign",
            "--data.partition", "dirichlet", "--data", "digits")  # fmt: skip
    table = read_configuration(read("run", *line))
    assert table["method"] == {"name": "fedalign", "epsilon": 0.3}
    assert table["data"] == {"name": "digits", "partition": {"kind": "dirichlet", "alpha": 1}}


@pytest.mark.parametrize(
    ("line", "method"),
    [
        (("--method.epsilon.kind", "linear"), {"epsilon": {"kind": "linear"}}),
        (("--method.invite.kind", "fraction"), {"invite": {"kind": "fraction"}}),
        (("--method.warmup", "3"), {"warmup": 3}),
    ],
)
def test_a_method_is_refined_without_naming_it_again(line, method, tmp_path):
    assert read_configuration(read("run", *line))["method"] == {"name": "fedalign", **method}
    file = tmp_path / "x.toml"
    file.write_text("[[methods]]\nname = 'fedalign'\nprox = 1.0\n")
    table = read_configuration(read("run", str(file), *line))
    assert table["method"] == {"name": "fedalign", "prox": 1.0, **method}


@pytest.mark.parametrize("word", ["2026-11-19", "5", "true", "inf", "nan", "1e3"])
def test_a_key_that_takes_text_takes_its_word_as_it_is(word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = load(read_configuration(read("run", "--name", word, "--out", word))).settings
    assert (chosen.name, chosen.out) == (word, word)
    (tmp_path / word).mkdir()
    table = read_configuration(read("run", "--data", word, "--data.label", word, "--rounds", "5"))
    assert load(table).data == {"name": "folder", "path": word, "label": word}
    assert table["rounds"] == 5
    quoted = read_configuration(read("run", "--name", f'"{word}"', "--network.label", word))
    assert (quoted["name"], quoted["network"]["label"]) == (word, word)


def test_keys_that_take_more_than_text_are_read_as_before():
    line = (
        "--data",
        '{name = "digits", clients = 6}',
        "--data.priority",
        "2",
        "--model",
        "softmax",
    )
    table = read_configuration(read("run", *line, "--measures", '["loss", "fairness"]'))
    assert table["data"] == {"name": "digits", "clients": 6, "priority": 2}
    assert table["measures"] == ["loss", "fairness"]
    own = read_configuration(read("run", "--data", "mine:make", "--data.label", "5"))
    assert own["data"]["label"] == 5


@pytest.mark.parametrize(("given", "name"), [("assist", "assist"), ("assist,fedavg", "NAME")])
def test_methods_as_a_word_points_to_method(given, name, capsys):
    for line in (("--methods", given), ("--methods", given, "--method.epsilon", "1")):
        assert main(["compare", "--data", "digits", *line]) == 2
        assert f"give --method {name}, several times for several" in capsys.readouterr().err
