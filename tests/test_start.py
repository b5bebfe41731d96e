"""Starting up: what is loaded for help, a list or a mistake, and Ctrl-C before anything began."""

from __future__ import annotations

import ast
import gc
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import muster
from muster.base import lazy

LARGE = ["PIL", "flwr", "matplotlib", "numba", "polars", "scipy", "sklearn", "torch"]
# Prints the large libraries that were loaded, whatever became of the code before it.
THEN = f"""
import sys
try:
    CODE
finally:
    print("loaded:", *sorted(sys.modules.keys() & {LARGE}), flush=True)
"""
RUN = "run --data digits --rounds 2"


def python(code, cwd=None):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def loaded(code, cwd=None):
    """What a program of this code had loaded when it ended, and how that went."""
    done = python(THEN.replace("CODE", code), cwd)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()[-1].split()[1:], done


def command(line):
    words = ["muster", *line.split()]
    return f"sys.argv = {words}; from muster.__main__ import main; sys.exit(main())"


@pytest.mark.parametrize(
    "code",
    [
        "import muster",
        "import muster; print(muster.__version__, dir(muster))",
        "import muster; muster.methods.fedalign(epsilon=0.4), muster.models.Softmax()",
        "import muster; [getattr(muster, name) for name in muster.__all__]",
        "import muster.cli.run",
    ],
)
def test_names_are_had_without_the_large_libraries(code):
    found, done = loaded(code)
    assert (found, done.returncode) == ([], 0)


def test_a_comparison_in_other_processes_does_not_load_torch(tmp_path):
    line = "compare --data digits --method fedavg --rounds 2 --seeds 2 --jobs 2"
    found, done = loaded(command(line), tmp_path)
    assert ("torch" in found, done.returncode) == (False, 0)


HELP = ["", "--help", "--version", "run --help", "data --help", "data show --help", "methods",
        "methods --markdown", "data"]  # fmt: skip
MISTAKES = {
    "nosuch": "unknown command 'nosuch'",
    "run --method nosuch": "method.name: 'nosuch' is unknown",
    "run --model nosuch": "model.name: 'nosuch' is unknown",
    "run --data nosuch": "data.name: 'nosuch' is unknown",
    "run --nosuch 1": "unknown key 'nosuch'",
    "run --method fedalign --method.nosuch 1": "unknown key 'method.nosuch'",
    "run --method fedalign --method.epsilon -1": "epsilon: -1.0",
    "run --local.lr x": "local.lr.kind: 'x' is unknown",
    "run --rounds 0": "rounds: 0",
    "run --device mps": "unknown device 'mps'",
    "run --device cuda:x": "device: 'cuda:x'; allowed: cpu, cuda, cuda:0, ...",
    "run nosuch.toml": "nosuch.toml: no such file",
    "compare --resume nosuch": "no config.toml there",
    "show nosuch": "nosuch: no results here",
    "data get nosuch": "unknown data set 'nosuch'",
    "federate": "federate: give --local N",
    "federate --local 3 nosuch.toml": "nosuch.toml: no such file",
    "node": "node: --server is missing",
}
# Runs commands in one process, and prints what each said and what was loaded after it.
EACH = f"""
import contextlib, io, json, sys
from muster.__main__ import main
found = []
for line in json.loads(sys.stdin.read()):
    sys.argv, said, code = ["muster", *line.split()], io.StringIO(), 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    found.append((code or 0, said.getvalue(), sorted(sys.modules.keys() & {LARGE})))
print(json.dumps(found))
"""


def test_help_lists_and_mistakes_need_no_large_library(tmp_path):
    lines = [*HELP, *MISTAKES]
    done = subprocess.run(
        [sys.executable, "-c", EACH], input=json.dumps(lines), capture_output=True, text=True,
        cwd=tmp_path, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line, (code, said, found) in zip(lines, json.loads(done.stdout), strict=True):
        assert found == [], line
        assert code == (2 if line in MISTAKES else 0), line
        assert MISTAKES.get(line, "") in said, line
    assert not list(tmp_path.iterdir())


def test_every_public_name_is_in_one_table():
    tree = ast.parse(Path(muster.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: f"{line.module}:{alias.name}" if line.module else alias.name
        for line in block.body
        for alias in line.names
    }
    assert typed | {"attacks": "parts.threats.attacks"} == muster._HOME  # attacks is a module
    assert muster.__all__ == sorted(muster._HOME)
    assert set(muster.__all__) <= set(dir(muster))


def test_modules_are_there_as_if_they_were_loaded_and_others_are_missing():
    assert muster.base.__name__ == "muster.base"
    with pytest.raises(AttributeError, match="module 'muster' has no attribute 'nosuch'"):
        _ = muster.nosuch
    with pytest.raises(AttributeError, match="__nosuch__"):
        _ = muster.__nosuch__
    with pytest.raises(ImportError):
        exec("from muster import nosuch")


def test_a_part_is_found_though_nobody_loaded_its_module(tmp_path):
    (tmp_path / "rows.csv").write_text("client,a,label\n" + "x,1,0\ny,2,1\n" * 10)
    done = python(
        "from muster.federation import Federation\n"
        "fed = Federation.from_folder('rows.csv', client='client', label='label')\n"
        "print(len(fed.sizes))",
        tmp_path,
    )
    assert done.stdout == "2\n", done.stderr


def test_a_library_is_loaded_by_its_first_use_and_looked_up_once():
    module = lazy.lazy_module("colorsys")
    sys.modules.pop("colorsys", None)
    first = module.rgb_to_hsv
    assert first is sys.modules["colorsys"].rgb_to_hsv
    assert vars(module)["rgb_to_hsv"] is first
    with pytest.raises(AttributeError, match="nosuch"):
        _ = module.nosuch


def test_garbage_is_not_looked_for_while_a_library_loads(tmp_path, monkeypatch):
    (tmp_path / "collecting.py").write_text("import gc\nenabled = gc.isenabled()")
    monkeypatch.syspath_prepend(tmp_path)
    assert not lazy.load_module("collecting").enabled
    assert gc.isenabled()


def test_ctrl_c_waits_until_a_library_is_loaded():
    before = signal.getsignal(signal.SIGINT)
    done = []

    def load():
        with lazy.defer_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("loaded")

    with pytest.raises(KeyboardInterrupt):
        load()
    assert done == ["loaded"]
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_while_something_loads(tmp_path):
    code = f"""
import signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "torch":
            signal.raise_signal(signal.SIGTERM)
sys.meta_path.insert(0, Finder())
{command(RUN)}
"""
    done = python(code, tmp_path)
    assert (done.returncode, done.stderr) == (143, "muster: interrupted\n")


@pytest.mark.parametrize(
    "when",
    [
        "muster.cli.main",
        "torch",
        pytest.param("muster.cli.run", marks=pytest.mark.slow),
        pytest.param("numpy", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_while_something_loads(when, tmp_path):
    """Ctrl-C at the very moment at which a module is looked for."""
    code = f"""
import signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {when!r}:
            print("now", flush=True)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
{command(RUN)}
"""
    done = python(code, tmp_path)
    assert (done.returncode, done.stderr) == (130, "muster: interrupted\n")
    assert done.stdout == "now\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]
)
def test_ctrl_c_at_any_moment_from_the_start(seed, tmp_path):
    """From when the program's own first lines have run; before that, Python is the one to ask."""
    first = "import sys; import muster.__main__; print('up', flush=True); "
    with subprocess.Popen(
        [sys.executable, "-c", first + command(RUN)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(random.Random(seed).uniform(0.02, 1.5))
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    assert process.returncode in (0, 130), error
    assert "Traceback" not in error
