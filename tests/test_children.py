"""Processes that we start take no module of the current folder for an installed one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHADOWED = ("torch", "numpy", "muster", "httpx", "json", "multiprocessing", "pickle", "socket")


@pytest.fixture
def hostile(tmp_path):
    """A folder whose modules say that they were imported."""
    for name in SHADOWED:
        code = f"open({str(tmp_path / 'was here')!r}, 'a').write('{name} ')\nraise SystemExit(9)\n"
        (tmp_path / f"{name}.py").write_text(code)
    return tmp_path


def test_every_python_that_is_started_leaves_the_current_folder_alone():
    sources = [p for f in ("src", "benchmarks", "examples") for p in (ROOT / f).rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    started = re.findall(r"sys\.executable,\s*(\S+)", text)
    assert len(started) >= 5
    assert set(started) == {'"-P",'}


@pytest.mark.parametrize(
    "words",
    [
        # Its parent is another process than 1: it ends, once it is loaded.
        ["muster.flower.client.worker", "1"],
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (
                ["muster.cli", "methods"],
                ["muster.cli", "gate", "nowhere"],
                ["muster.flower.client.supernode", "1"],
                ["muster.flower.local.child_processes"],
            )
        ),
    ],
    ids=" ".join,
)
def test_modules_in_the_current_folder_are_not_imported(hostile, words):
    pytest.importorskip("flwr", reason="needs Flower: pip install 'muster-fl[flower]'")
    from muster.flower.local.child_processes import python

    done = subprocess.run(
        python(*words), cwd=hostile, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode != 9, done.stderr
    assert not (hostile / "was here").exists()


TWO_JOBS = """
import sys
sys.path = [path for path in sys.path if path]
from muster.study.workers import WorkerPool

if __name__ == "__main__":
    with WorkerPool(2) as crowd:
        print(sorted(result for _, result in crowd.each(abs, [-1, -2])))
"""


@pytest.mark.slow
def test_processes_that_work_side_by_side_do_not_import_them_either(hostile, tmp_path_factory):
    script = tmp_path_factory.mktemp("script") / "two.py"
    script.write_text(TWO_JOBS)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=hostile, capture_output=True, text=True
    )
    assert done.stdout == "[1, 2]\n", done.stderr
    assert not (hostile / "was here").exists()
