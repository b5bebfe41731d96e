"""No process outlives the one that started it, even if that one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from helpers import alive
from muster.base.errors import MusterError
from muster.flower.local import child_processes
from muster.flower.local.child_processes import Guardian

SLEEP = "import time; time.sleep(60)"


def wait_for(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def parent(code, *words):
    """A process that runs code, and says in its first line who else there is."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, *words], stdout=subprocess.PIPE, text=True
    )
    with process.stdout as said:
        return process, [int(word) for word in said.readline().split()]


CHILD = (
    "import os, sys, time\nfrom muster.flower.local import child_processes as orphans\n"
    "{platform}\norphans.end_with(int(sys.argv[1]))\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
)
PARENT = (
    "import os, subprocess, sys\n"
    "subprocess.run([sys.executable, '-P', '-c', sys.argv[1], str(os.getpid())])"
)


@pytest.mark.parametrize("platform", ["", "orphans.sys.platform = 'another'"])
def test_a_process_ends_when_its_parent_is_killed(platform):
    """By the kernel, and where it does not tell by looking."""
    process, (child,) = parent(PARENT, CHILD.format(platform=platform))
    assert alive(child)
    process.kill()
    process.wait()
    wait_for(lambda: not alive(child))


def test_a_process_whose_parent_is_gone_already_ends_at_once():
    done = subprocess.run([sys.executable, "-P", "-c", CHILD.format(platform=""), "1"], timeout=60)
    assert done.returncode == -signal.SIGTERM


GUARDED = """
import subprocess, sys, time
from pathlib import Path
from muster.flower.local.child_processes import Guardian, descendants
guardian = Guardian(Path(sys.argv[1]))
grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sys.argv[2]!r}])"
child = subprocess.Popen([sys.executable, "-c", grandchild], start_new_session=True)
guardian.watch([child.pid])
while not (more := descendants(child.pid)):
    time.sleep(0.05)
print(guardian.process.pid, child.pid, *more, flush=True)
time.sleep(60)
"""


def test_a_guardian_ends_everything_and_removes_keys_and_data(tmp_path):
    work = tmp_path / "work"
    (work / "keys").mkdir(parents=True)
    (work / "keys" / "client0").write_text("secret")
    process, pids = parent(GUARDED, str(work), SLEEP)
    assert len(pids) == 3
    process.kill()
    process.wait()
    wait_for(lambda: not any(alive(pid) for pid in pids) and not work.exists())


def test_a_guardian_that_is_dismissed_touches_nothing(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    guardian = Guardian(work)
    guardian.watch([child.pid])
    guardian.dismiss()
    assert guardian.process.returncode == 0
    assert work.exists()
    assert child.poll() is None
    child.kill()
    child.wait()


def test_a_process_that_is_gone_is_no_error():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    child_processes.signal_all([child.pid], signal.SIGKILL)
    assert os.getpid() not in child_processes.descendants(os.getpid())


def test_a_script_of_flower_that_is_not_found_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MusterError, match="Flower is installed, but its scripts are neither in"):
        child_processes.program("flower-superlink")
    monkeypatch.setattr(child_processes, "find_spec", lambda name: None)
    with pytest.raises(MusterError, match="not found; install it with pip install"):
        child_processes.program("flower-superlink")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "flower-superlink").touch()
    assert child_processes.program("flower-superlink") == str(tmp_path / "bin/flower-superlink")
