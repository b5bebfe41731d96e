"""The layers: which room imports which. No cycles; nothing imported late without a reason.

`python tests/test_house.py --write` puts the floor plan below into CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import muster

SOURCE = Path(muster.__file__).parent

# Imported inside a function, each for the reason given.
LATE = {
    ("muster.__main__", "muster.cli.main"): "Ctrl-C while it loads is met there",
}
# The rooms, the lowest floor first: a room imports only from its own floor and those below it.
FLOORS = [
    {"base": "errors, checks, arrays, randomness, registry, schema, durable and untrusted files"},
    {
        "schedules": "numbers that change over rounds",
        "optimizers": "local optimizers",
        "federation": "clients (population), their rows, how columns become features",
    },
    {
        "protocol": "what passes between server and clients in a round",
        "data": "where federations come from: data sets, files, partitions",
    },
    {"tasks": "losses and scores"},
    {"parts": "invite join solvers claim guard admit weigh step effort; threats, defences"},
    {
        "local": "a client's work in a round",
        "models": "modules to train",
        "method": "a composition of parts",
        "methods": "the methods by name",
        "privacy": "differential privacy and secure sums",
    },
    {"engines": "how clients' work is computed: stacked, loop, mapped"},
    {"results": "runs as values and files: ledger, measures, model, prediction, export"},
    {"run": "one round, the loop over rounds, checkpoints"},
    {"report": "tables, figures, the HTML report", "trackers": "rounds in other trackers"},
    {"config": "an experiment as a table, checked before anything runs"},
    {"study": "several runs: comparisons, sweeps, tunings"},
    {"papers": "the papers' experiments, theory and the trust study"},
    {"flower": "a real federation: server, client, transport, testing, local"},
    {"cli": "one file per command"},
]
PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
BEGIN, END = "<!-- floor plan, by tests/test_house.py -->\n", "<!-- end of the floor plan -->"


def floor_plan() -> str:
    """The rooms with what is in them, the highest floor first."""
    lines = []
    for floor in reversed(FLOORS):
        for room, what in floor.items():
            lines.append(f"{room:<12}{what}")
        lines.append("-" * 12)
    return "```\n" + "\n".join(lines[:-1]) + "\n```\n"


def name_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


STAND_INS = {"lazy_module"}  # imports a module by its name, when it is first used
MODULES = {name_of(path): path for path in SOURCE.rglob("*.py")}


def targets(node, module):
    """The muster modules that an import statement reads."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in MODULES}
    if node.level:
        package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
        base = package.split(".")[: len(package.split(".")) - node.level + 1]
        start = ".".join([*base, *([node.module] if node.module else [])])
    else:
        start = node.module or ""
    inner = {f"{start}.{alias.name}" for alias in node.names} & set(MODULES)
    # `from . import params` reads the module, not the package's own names.
    own = {start} if start in MODULES and len(inner) < len(node.names) else set()
    return inner | own


def by_name(node):
    """The muster module that `lazy_module("muster...")` names."""
    if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in STAND_INS:
        return None
    (name,) = node.args
    if isinstance(name, ast.JoinedStr):  # f"muster.cli.{command}": the package
        name = name.values[0]
    assert isinstance(name, ast.Constant), "a name that this test can read"
    found = name.value.rstrip(".")
    return found if found.split(".")[0] == "muster" else None


@cache
def parse(module):
    return ast.parse(MODULES[module].read_text())


def imports(module):
    """(target, whether it is imported inside a function) of every import of muster's."""
    for node in parse(module).body:
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Import, ast.ImportFrom)):
                late = inner is not node and not isinstance(node, ast.If)
                for target in targets(inner, module):
                    yield target, late


def named(module):
    """The modules of muster that are loaded by their name, when they are first used."""
    return {target for node in ast.walk(parse(module)) if (target := by_name(node))}


@cache
def graph():
    """The modules that each module imports."""
    return {module: {t for t, _ in imports(module) if t != module} for module in MODULES}


ENTRY = {"muster", "muster.__main__"}  # they see everything


def test_the_graph_is_that_of_a_real_package():
    assert len(MODULES) > 90
    assert "muster.parts.join" in graph()["muster.methods"]
    assert sum(map(len, graph().values())) > 300


def test_no_module_imports_itself_by_way_of_others():
    # A package's __init__ is run before its modules: they do not import it, it imports them.
    inner = {m: {t for t in ts if t not in ENTRY} for m, ts in graph().items() if m not in ENTRY}
    try:
        tuple(TopologicalSorter(inner).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_rooms_stand_on_those_below_them():
    floor = {room: i for i, rooms in enumerate(FLOORS) for room in rooms}
    assert set(floor) == {name.split(".")[1] for name in MODULES if name not in ENTRY}
    for module, found in graph().items():
        if module in ENTRY:
            continue
        found = found | named(module)
        here = module.split(".")[1]
        for target in found - ENTRY:
            there = target.split(".")[1]
            assert floor[there] <= floor[here], f"{module} imports {target}"


def test_nothing_of_ours_is_imported_late_without_a_reason():
    late = {(m, t) for m in MODULES for t, inside in imports(m) if inside}
    assert late == set(LATE)


def test_the_walk_of_one_round_goes_through_few_files():
    """Every file of ours in which a function runs while a round of FedALIGN is played."""

    from muster.run import training_loop

    walked: set[str] = set()

    def step(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            walked.add(frame.f_code.co_filename.removeprefix(f"{SOURCE}/"))

    real = training_loop.play_round

    def play(*args):
        walked.clear()  # what is worked out once and kept is worked out in the first round
        before = sys.getprofile()
        sys.setprofile(step)
        try:
            return real(*args)
        finally:
            sys.setprofile(before)

    training_loop.play_round = play
    try:
        muster.simulate(
            muster.data.digits(clients=6, priority=2),
            muster.methods.fedalign(warmup=0),
            muster.models.Softmax(),
            rounds=2,
        )
    finally:
        training_loop.play_round = real
    rooms = {path.split("/")[0] for path in walked if "/" in path}
    assert rooms == {"base", "run", "parts", "engines", "federation"}
    assert len(walked) <= 27, "\n".join(sorted(walked))  # a round, and its record, are two of them


def test_modules_that_are_loaded_by_name_are_seen():
    assert "muster.engines.kernel" in named("muster.engines.stacked_engine")
    assert by_name(ast.parse('lazy_module("muster.report.html.page")').body[0].value) is not None


def test_the_floor_plan_in_contributing_is_this_one():
    page = PAGE.read_text()
    assert page.partition(BEGIN)[2].partition(END)[0] == floor_plan()


if __name__ == "__main__" and "--write" in sys.argv:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + floor_plan() + END + rest.partition(END)[2])
