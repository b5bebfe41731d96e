"""A table that came from elsewhere reaches installed parts only: nothing it names is imported."""

from __future__ import annotations

import inspect
import sys
import types
import typing

import pytest

import muster
from muster.base import registry
from muster.base.registry import Code, catalogue, is_role, kinds
from muster.base.schema import parameter_types
from muster.cli.main import main
from muster.config import load
from muster.config.experiment import Experiment
from muster.config.network import Member, Network
from muster.config.settings import Settings
from muster.federation import Federation
from muster.flower.terms import check_terms, read_terms, shared_terms
from muster.local import Local
from muster.methods import Method
from muster.models.specs import Spec

TRAP = "trap_of_a_stranger"
PATHS = (
    "os:system",
    f"{TRAP}:boom",
    f"site-packages.{TRAP}:os.system",  # no identifier, and still importable
    f"{TRAP}:",
    f" {TRAP}:boom ",
    f"{TRAP}:boom\n",
)
DEEPEST = 2  # parts within parts


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module in the current folder that says so when it is imported."""
    (tmp_path / f"{TRAP}.py").write_text("open('sprung', 'w').close()\ndef boom(**k): boom.ran = 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        registry, "import_object", lambda path, where: pytest.fail(f"{where}: {path}")
    )
    yield
    assert not (tmp_path / "sprung").exists()
    assert TRAP not in sys.modules


def kinds_in(kind):
    """The roles, and code, that a type admits."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) in (typing.Union, tuple, list):
        return [inner for arg in typing.get_args(kind) for inner in kinds_in(arg)]
    return [kind] if is_role(kind) or kind is Code else []


def within(target, depth=DEEPEST):
    """Tables of a part's settings, each with PATH in one place where a part or code can stand."""
    for name, kind in parameter_types(target).items():
        for role in kinds_in(kind):
            yield {name: "PATH"}
            if role is Code:
                continue
            yield {name: {"kind": "PATH"}}
            for part, maker in kinds(role).items() if depth else ():
                for table in within(maker, depth - 1):
                    yield {name: {"kind": part, **table}}


def tables():
    """Every table of an experiment with PATH in one place."""
    catalogue(trusted=False)
    yield from within(Settings)
    for key, role in (("data", Federation), ("model", Spec), ("method", Method)):
        yield {key: "PATH"}
        yield {key: {"name": "PATH"}}
        for name, maker in kinds(role).items():
            for table in within(maker):
                yield {key: {"name": name, **table}}
    for key in ("local", "requirement"):
        yield from ({key: {"steps": 1, **table}} for table in within(Local))
    yield {"methods": ["PATH"]}
    yield {"methods": ["fedavg", {"name": "PATH", "label": "b"}]}
    for table in within(Method):
        yield {"methods": [{"name": "compose", **table}]}
    for table in within(Local):
        yield {"methods": [{"name": "fedavg", "local": table}]}
    yield from ({"network": table} for table in within(Network))
    yield from ({"clients": [{"name": "a", "key": "k", **table}]} for table in within(Member))
    yield {"trust": True, "method": "PATH"}


def put(value, path):
    if isinstance(value, dict):
        return {key: put(inner, path) for key, inner in value.items()}
    if isinstance(value, list):
        return [put(inner, path) for inner in value]
    return path if value == "PATH" else value


def test_no_path_at_any_place_of_a_table_is_imported(trap):
    every = list(tables())
    # Every role is reached, so that none is left out by how these tables are made.
    assert len(every) > 200
    text = repr(every)
    for key in ("'task'", "'attack'", "'optimizer'", "'step'", "'participation'", "'partition'",
                "'tokenizer'", "'partitioner'", "'solver'", "'lr'", "'then'"):  # fmt: skip
        assert key in text, key
    for i, table in enumerate(every):
        hostile = put(table, PATHS[i % len(PATHS)])
        with pytest.raises(muster.MusterError) as error:
            load(hostile)
        assert "\n" not in str(error.value).replace("\\n", ""), hostile


@pytest.mark.parametrize("path", PATHS)
def test_every_spelling_of_a_path_is_refused_where_one_slipped_through(trap, path):
    for table in (
        {"task": {"kind": path, "command": "touch sprung"}},
        {"task": path},
        {"method": {"name": "fedavg", "step": {"kind": path, "command": "touch sprung"}}},
        {"attack": {"kind": path}},
        {"local": {"optimizer": {"kind": path}}},
    ):
        with pytest.raises(muster.MusterError, match="is an import path"):
            load(table)


def test_a_part_that_was_imported_for_its_user_is_no_part_for_others(tmp_path, monkeypatch):
    (tmp_path / "own_halves.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Half:\n"
        "    x: float = 1.0\n"
        "    def __call__(self, round): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    table = {"method": {"name": "fedavg", "weigh": "own_halves:Half"}}
    with registry.temporary_parts():
        assert load(table, trusted=True).job.method.weigh.x == 1.0
        with pytest.raises(muster.MusterError, match="is an import path"):
            load(table)
    sys.modules.pop("own_halves")


def test_terms_are_compared_before_anything_is_built(trap, monkeypatch):
    agreed = shared_terms(load({"network": {}}))
    monkeypatch.setattr("muster.flower.terms.load", lambda *a: pytest.fail("built"))
    monkeypatch.setattr("muster.base.schema.build", lambda *a, **k: pytest.fail("built"))
    hostile = f'{agreed}\n[task2]\nkind = "{TRAP}:boom"'
    for said in (
        hostile,
        agreed.replace('kind = "multiclass"', f'kind = "{TRAP}:boom"'),
        agreed.replace("[local]", f'[local.optimizer2]\nkind = "{TRAP}:boom"\n[local]'),
    ):
        assert said != agreed
        with pytest.raises(muster.MusterError, match="terms: the server's request differs"):
            check_terms(said, agreed)


@pytest.mark.parametrize(
    "text", ["x" * (2**20 + 1), "a = [" * 5000, ".".join("a" * 60) + " = 1", "a = ", "network = 3"]
)
def test_terms_that_are_no_terms_are_one_line(text):
    agreed = shared_terms(load({}))
    for read in (read_terms, lambda said: check_terms(said, agreed)):
        with pytest.raises(muster.MusterError) as error:
            read(text)
        assert "\n" not in str(error.value)


def test_the_catalogue_for_others_has_no_way_to_import():
    source = inspect.getsource(registry.Catalogue)
    assert "import" not in source.replace("import path", "").replace("imports nothing", "").replace(
        "to import anything", ""
    )
    assert Experiment.parts is registry.INSTALLED, "the default is the closed one"


def test_resuming_a_folder_runs_its_code_only_if_it_is_trusted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_share.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Share:\n"
        "    def __call__(self, replies, extent, server):\n"
        "        return replies.roster.weight(extent)\n"
    )
    flags = ["--data", "digits", "--data.clients", "4", "--rounds", "2", "--method", "fedavg",
             "--method.weigh", "own_share:Share", "--name", "mine"]  # fmt: skip
    with registry.temporary_parts():
        assert main(["run", *flags]) == 0
    for name in ("run.toml", "weights.safetensors"):
        (tmp_path / "runs/mine" / name).unlink()
    sys.modules.pop("own_share")
    capsys.readouterr()
    with registry.temporary_parts():
        assert main(["run", "--resume", "runs/mine"]) == 2
        said = capsys.readouterr().err
        assert "'own_share:Share' is an import path" in said
        assert "--trust-code" in said
        assert "own_share" not in sys.modules
        assert main(["run", "--resume", "runs/mine", "--trust-code"]) == 0
    sys.modules.pop("own_share")


@pytest.mark.parametrize("command", ["sweep", "tune"])
def test_so_do_sweeps_and_tunings(tmp_path, monkeypatch, capsys, trap, command):
    folder = tmp_path / "received"
    folder.mkdir()
    lists = {
        "sweep": '"method.weigh" = ["PATH", "uniform"]',
        "tune": '"method.weigh" = ["PATH", "uniform"]',
    }
    (folder / "config.toml").write_text(
        f'method = "fedavg"\n[{command}]\n{lists[command]}\n'.replace("PATH", f"{TRAP}:boom")
    )
    if command == "sweep":
        from muster.study.sweep_result import write_marker

        write_marker(folder, {"method.weigh": ["a"]}, labels=("fedavg",), seeds=(0,), measures=())
    assert main([command, "--resume", str(folder)]) == 2
    assert "is an import path" in capsys.readouterr().err
