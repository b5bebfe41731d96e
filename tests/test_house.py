"""The house: what imports what. No cycles, and nothing imported in secret."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import muster

SOURCE = Path(muster.__file__).parent

# Imported inside a function, each for the reason given.
LATE = {
    ("muster.__main__", "muster.cli.main"): "Ctrl-C while it loads is met there",
}
# The rooms, the lowest floor first: a room imports only from those below it.
FLOORS = [
    {"base"},
    {"schedules", "federation"},
    {"protocol", "data"},
    {"tasks"},
    {"parts"},
    {"local", "models", "methods", "optimizers"},
    {"engines"},
    {"results"},
    {"run"},
    {"report", "trackers"},
    {"config"},
    {"study"},
    {"papers"},
    {"flower"},
    {"cli"},
]


def name_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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


def imports(module):
    """(target, whether it is imported inside a function) of every import of muster's."""
    tree = ast.parse(MODULES[module].read_text())
    for node in tree.body:
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Import, ast.ImportFrom)):
                late = inner is not node and not isinstance(node, ast.If)
                for target in targets(inner, module):
                    yield target, late


GRAPH = {module: {t for t, _ in imports(module) if t != module} for module in MODULES}
ENTRY = {"muster", "muster.__main__"}  # they see everything


def test_the_graph_is_that_of_a_real_package():
    assert len(MODULES) > 90
    assert "muster.parts.join" in GRAPH["muster.methods"]
    assert sum(map(len, GRAPH.values())) > 300


def test_no_module_imports_itself_by_way_of_others():
    # A package's __init__ is run before its modules: they do not import it, it imports them.
    inner = {m: {t for t in ts if t not in ENTRY} for m, ts in GRAPH.items() if m not in ENTRY}
    try:
        tuple(TopologicalSorter(inner).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_rooms_stand_on_those_below_them():
    floor = {room: i for i, rooms in enumerate(FLOORS) for room in rooms}
    for module, found in GRAPH.items():
        if module in ENTRY:
            continue
        here = module.split(".")[1]
        for target in found - ENTRY:
            there = target.split(".")[1]
            assert floor[there] <= floor[here], f"{module} imports {target}"


def test_nothing_of_ours_is_imported_late_without_a_reason():
    late = {(m, t) for m in MODULES for t, inside in imports(m) if inside}
    assert late == set(LATE)


def test_the_walk_of_one_round_goes_through_few_files():
    """Every file of ours in which a function runs while a round of FedALIGN is played."""
    import sys

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
    assert len(walked) <= 26, "\n".join(sorted(walked))  # run/job.py among them
