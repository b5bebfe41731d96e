"""Every part can be named in a table: a composition needs no Python, and runs to the same bits."""

from __future__ import annotations

import re
import sys
import textwrap
import tomllib

import numpy as np
import pytest
import tomli_w

import muster
from muster.base import registry
from muster.base.schema import convert
from muster.config import load, override
from muster.methods import METHODS
from muster.parts import (
    SGD,
    Admit,
    Aligned,
    Available,
    Band,
    Claim,
    DataShare,
    Effort,
    Invite,
    Join,
    Momentum,
    Objective,
    Sample,
    Solver,
    Step,
    Weigh,
)
from muster.schedules import Linear, Schedule

DATA = {"name": "digits", "clients": 6, "priority": 2}
BASE = {"data": DATA, "rounds": 3, "local": {"steps": 2, "batch_size": 8}, "dtype": "float64"}


def one(method, **more):
    return load({**BASE, **more, "method": method}, trusted=True)


def run(chosen):
    """The run of an experiment's first method."""
    fed = chosen.federation(0)
    if fed.requirement is None:
        fed = muster.with_solo(fed, chosen.spec, 1, muster.Local(steps=5))
    return muster.run_job(fed, chosen.job, compute=chosen.settings.compute)


def timeless(frame):
    return frame.drop("seconds", strict=False)


def same(a, b):
    frames = all(
        getattr(a, n)
        .drop("seconds", strict=False)
        .equals(getattr(b, n).drop("seconds", strict=False))
        for n in ("rounds", "clients", "final")
    )
    return frames and all(np.array_equal(a.weights[n], b.weights[n]) for n in a.weights)


COMPOSED = {
    "name": "compose",
    "invite": {"kind": "sample", "m": 4},
    "join": {"kind": "available", "probability": 0.9, "then": {"kind": "aligned"}},
    "solver": {"kind": "sgd", "prox": 0.1},
    "admit": "band",
    "weigh": "data_share",
    "step": {"kind": "momentum", "beta": 0.5},
    "epsilon": {"kind": "linear", "start": 0.4},
    "warmup": 1,
}


def test_a_whole_method_from_a_table():
    method = one(COMPOSED).jobs["compose"].method
    assert method == muster.Method(
        "compose",
        invite=Sample(4),
        join=Available(0.9, Aligned("loss")),
        solver=SGD(prox=0.1),
        admit=Band("loss"),
        weigh=DataShare(),
        step=Momentum(beta=0.5),
        epsilon=Linear(0.4),
        warmup=1,
    )


def test_any_part_of_a_named_method_can_be_replaced():
    method = one({"name": "fedalign", "epsilon": 0.3, "solver": {"kind": "ditto", "lam": 2.0}})
    made = method.jobs["fedalign"].method
    assert repr(made.solver) == "Ditto(lam=2.0)"
    assert made.epsilon.at(0, 10) == 0.3
    assert isinstance(made.join, Aligned)


def test_flags_name_parts_as_tables_do():
    flags = [
        ("method", "fedavg"),
        ("method.solver.kind", "sgd"),
        ("method.solver.prox", "0.5"),
        ("method.admit", "objective"),
    ]
    made = load(override(dict(BASE), flags)).jobs["fedavg"].method
    assert made.solver == SGD(prox=0.5)
    assert made.admit == Objective()


@pytest.mark.parametrize("name", [*METHODS, "composed"])
def test_the_resolved_configuration_runs_to_the_same_bits(name):
    chosen = one(COMPOSED if name == "composed" else name)
    text = tomli_w.dumps(chosen.resolve())
    again = load(tomllib.loads(text))
    assert again.job.method == chosen.job.method
    assert tomli_w.dumps(again.resolve()) == text
    assert same(run(chosen), run(again))


NEEDS = {  # what a part has no default for
    "sample": {"m": 3}, "fraction": {"fraction": 0.5}, "with_replacement": {"k": 2},
    "power_of_choice": {"m": 2, "d": 4}, "available": {"probability": 0.5},
    "apart": {"priority": 1}, "straggling": {"period": 2}, "loss_power": {"q": 1.0},
    "q_fair": {"q": 1.0},
}  # fmt: skip
TOGETHER = {  # parts that need another part next to them
    ("solver", "control_variates"): {"step": "scaffold"},
    ("solver", "solo"): {"step": "stay", "serves": "own"},
    ("step", "scaffold"): {"solver": "control_variates"},
    ("step", "q_fair"): {"losses": True},
    ("step", "agnostic"): {"losses": True},
    ("step", "multiplicative"): {"claim": "unmet"},
    ("weigh", "claimed"): {"claim": "appeal"},
    ("weigh", "loss_power"): {"losses": True},
    ("weigh", "stein"): {"claim": "spread"},
    ("weigh", "fedda"): {"claim": "spread"},
    ("weigh", "mixture"): {"step": "agnostic", "losses": True},
    ("effort", "by_weight"): {"step": "multiplicative", "claim": "unmet"},
    ("admit", "band"): {"epsilon": 0.5},
    ("join", "aligned"): {"epsilon": 0.5},
}
ROLES = {
    "invite": Invite, "join": Join, "solver": Solver, "admit": Admit, "weigh": Weigh,
    "step": Step, "claim": Claim, "effort": Effort,
}  # fmt: skip
BUILT_IN = [
    (step, kind)
    for step, role in ROLES.items()
    for kind, target in registry.kinds(role).items()
    if target.__module__.startswith("muster.")
]


@pytest.mark.parametrize(("step", "kind"), BUILT_IN)
def test_every_part_runs_from_a_table_and_from_its_resolved_form(step, kind):
    table = {"name": "compose", step: {"kind": kind, **NEEDS.get(kind, {})}}
    chosen = one({**table, **TOGETHER.get((step, kind), {})})
    again = load(chosen.resolve())
    assert same(run(chosen), run(again))


MISTAKES = {
    "unknown key 'method.solvr'; did you mean 'solver'": {"solvr": "sgd"},
    "method.solver.kind: 'sdg' is unknown; did you mean 'sgd'": {"solver": "sdg"},
    "unknown key 'method.solver.prx'; did you mean 'prox'": {"solver": {"kind": "sgd", "prx": 1.0}},
    "method.solver.kind: which one": {"solver": {"prox": 1.0}},
    "method.solver: 3; allowed: a solver, by name or as a table with kind = sgd": {"solver": 3},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_in_a_part_is_answered_with_the_nearest(message):
    with pytest.raises(muster.MusterError, match=re.escape(message)):
        one({"name": "fedavg", **MISTAKES[message]})


MINE = """
    from dataclasses import dataclass

    import muster
    from muster.parts import Weigh
    from muster.base.registry import part


    @part(Weigh, "my_half_share")
    @dataclass(frozen=True)
    class HalfShare:
        other: float = 0.5

        def __call__(self, replies, extent, server):
            weight = replies.roster.weight(extent)
            return weight * (self.other + (1 - self.other) * replies.roster.priority)


    def cautious(epsilon: float = 0.3) -> muster.Method:
        return muster.Method("cautious", weigh=HalfShare(), epsilon=epsilon)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the user's own in the current folder."""
    (tmp_path / "my_parts.py").write_text(textwrap.dedent(MINE))
    monkeypatch.chdir(tmp_path)
    with registry.temporary_parts():
        yield
    sys.modules.pop("my_parts", None)


def test_a_part_of_ones_own_by_its_import_path(mine):
    chosen = one({"name": "fedavg", "weigh": {"kind": "my_parts:HalfShare", "other": 0.25}})
    assert chosen.jobs["fedavg"].method.weigh.other == 0.25
    again = load(chosen.resolve(), trusted=True)
    assert same(run(chosen), run(again))
    with pytest.raises(muster.MusterError, match="is an import path"):  # imported before or not
        load(chosen.resolve())


def test_a_method_of_ones_own_by_its_import_path(mine):
    chosen = one(
        {"name": "my_parts:cautious", "epsilon": 0.7, "solver": {"kind": "sgd", "prox": 1.0}}
    )
    method = chosen.job.method
    assert (method.name, method.epsilon.at(0, 1), method.solver.prox) == ("cautious", 0.7, 1.0)


def test_a_package_of_parts_is_found_by_its_entry_point(mine, monkeypatch):
    class Point:
        value = "my_parts"

        def load(self):
            return __import__("my_parts")

    monkeypatch.setattr(
        registry.metadata, "entry_points", lambda group: [Point()] * (group == registry.GROUP)
    )
    registry.load_packages.cache_clear()
    monkeypatch.syspath_prepend(".")
    assert one({"name": "fedavg", "weigh": "my_half_share"}).job.method.weigh.other == 0.5


def test_a_file_of_the_current_folder_takes_no_librarys_place(mine, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = list(sys.path)
    registry.import_object("my_parts:HalfShare", "weigh")
    assert sys.path == before
    monkeypatch.setattr(sys, "path", before[1:])
    (tmp_path / "colorsys.py").write_text("raise SystemExit")
    sys.modules.pop("colorsys", None)
    assert callable(registry.import_object("colorsys:rgb_to_hsv", "x"))


def test_what_cannot_be_imported_is_one_line(mine):
    for path, why in (
        ("nowhere:X", "No module named 'nowhere'"),
        ("my_parts:Y", "no attribute 'Y'"),
    ):
        with pytest.raises(muster.MusterError, match=f"method.weigh.kind: '{path}' cannot .*{why}"):
            one({"name": "fedavg", "weigh": path})


def test_a_table_that_came_over_the_network_imports_nothing(mine):
    table = {**BASE, "method": {"name": "fedavg", "weigh": {"kind": "my_parts:HalfShare"}}}
    with pytest.raises(muster.MusterError, match=r"weigh\.kind: .* is an import path"):
        load(table)
    assert "my_parts" not in sys.modules
    for table in (
        {**BASE, "model": "os:system"},
        {**BASE, "methods": [{"name": "os:getcwd"}]},
        {**BASE, "data": "os:getcwd"},
        {**BASE, "data": {"name": "huggingface", "partitioner": "os:getcwd"}},
    ):
        with pytest.raises(muster.MusterError, match="import path"):
            load(table)


def test_two_parts_cannot_share_a_name():
    with pytest.raises(muster.MusterError, match=r"part 'sgd'.*SGD is already"):
        registry.part(Solver, "sgd")(Momentum)
    assert registry.kinds(Solver)["sgd"] is SGD


def test_what_the_work_is_run_on_and_the_task_reach_the_run(tmp_path, monkeypatch, capsys):
    from muster.cli.main import main

    monkeypatch.chdir(tmp_path)
    line = "run --data digits --rounds 2 --dtype float64 --engine loop --task multiclass --name x"
    assert main(line.split()) == 0
    run = muster.load("runs/x")
    assert run.engine == "loop"
    assert {w.dtype for w in run.weights.values()} == {np.dtype("float64")}
    line = "compare --data digits --rounds 2 --dtype float64 --seeds 1 --name y"
    assert main(line.split()) == 0
    first, *_ = muster.load("runs/y").runs.values()
    assert {w.dtype for w in first[0].weights.values()} == {np.dtype("float64")}


def test_a_comparison_made_with_another_dtype_is_not_resumed(tmp_path):
    fed = muster.data.digits(clients=4)
    args = (fed, [muster.methods.fedavg()], muster.models.Softmax(), 1)
    muster.compare(*args, seeds=1, folder=tmp_path / "x", dtype="float64")
    muster.compare(*args, seeds=1, folder=tmp_path / "x", dtype="float64", processes=1)
    with pytest.raises(muster.MusterError, match="float"):
        muster.compare(*args, seeds=1, folder=tmp_path / "x")


def test_how_decisions_and_tuning_are_set_reaches_the_run():
    chosen = one("fedalign", decide_on="held_out", tuned_steps=3)
    assert (chosen.job.decide_on, chosen.job.tuned_steps) == ("held_out", 3)
    assert {"decide_on": "held_out", "tuned_steps": 3}.items() <= chosen.resolve().items()
    flags = [("tuned_steps", "5"), ("attack.kind", "inflate_and_noise"), ("attack.stays", "true")]
    settings = load(override(dict(BASE), flags)).settings
    assert settings.tuned_steps == 5
    assert settings.attack.stays
    for key, wrong in (("decide_on", "test"), ("tuned_steps", -1)):
        with pytest.raises(muster.MusterError, match=f"{key}: .*; allowed: "):
            one("fedalign", **{key: wrong})


@pytest.mark.parametrize(
    ("given", "rounds", "steps", "lr"),
    [
        ("alone", 30, 4, 0.3),
        ({}, 30, 4, 0.3),
        ({"lr": 0.5}, 30, 4, 0.5),
        ({"steps": 40}, 1, 40, 0.1),
        ({"rounds": 2, "steps": 40}, 2, 40, 0.1),
        ({"rounds": 2}, 2, 4, 0.3),
    ],
)
def test_a_requirement_has_the_work_of_the_run_unless_it_is_given(given, rounds, steps, lr):
    table = {"rounds": 30, "local": {"steps": 4, "lr": 0.3}, "requirement": given}
    chosen = load(table)
    assert (chosen.alone_rounds, chosen.requirement.steps) == (rounds, steps)
    assert chosen.requirement.lr == lr
    again = load(chosen.resolve())
    assert (again.alone_rounds, again.requirement) == (chosen.alone_rounds, chosen.requirement)
    if chosen.alone_rounds < 30:
        small = load({**table, "data": {"name": "digits", "clients": 2, "priority": 1}})
        assert small.federation(0).solo_work == f"{rounds * steps} steps", "and it is done"


def test_a_requirement_that_is_none_of_these_is_one_line():
    for wrong, message in (("solo", "'alone'"), ({"rounds": 0}, "requirement.rounds: 0")):
        with pytest.raises(muster.MusterError, match=message):
            load({"requirement": wrong})


def test_a_list_may_be_text_with_commas():
    """As flags are written: --data.features age,dose."""
    table = {"data": {"name": "folder", "path": "x", "features": "age, dose"}}
    assert load(table).data["features"] == "age, dose"
    assert convert("age, dose", tuple[str, ...] | None, "features") == ("age", "dose")
    assert convert("age", tuple[str, ...], "features") == ("age",)
    assert convert("2,4", tuple[int, ...], "report_at") == (2, 4)
    assert convert("a,b", str | tuple[str, ...], "label") == "a,b", "where text may be, it is"
    for wrong in ("2,x", "x"):
        with pytest.raises(muster.MusterError, match="allowed: a list in brackets"):
            convert(wrong, tuple[int, ...], "report_at")


@pytest.mark.parametrize("kind", [float, int, float | None, float | Schedule, tuple[float, ...]])
def test_a_number_in_quotes_is_pointed_out(kind):
    with pytest.raises(muster.MusterError, match="x: '5' is text; leave the quotes out: 5"):
        convert("5", kind, "x")


def test_a_word_where_a_schedule_or_a_number_belongs_says_both():
    says = r"x\.kind: 'abc' is unknown; .*; or give a number$"
    with pytest.raises(muster.MusterError, match=says):
        convert("abc", float | Schedule, "x")


def test_a_mistake_makes_no_role_of_a_type():
    before = registry.roles()
    with pytest.raises(muster.MusterError):
        convert("abc", float | registry.Code | Schedule, "x")
    assert registry.roles() == before
