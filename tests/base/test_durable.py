"""Durable files: the old one or the new one, synced, whatever happens in between."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from muster.base import durable
from muster.base.durable import (
    atomic_file,
    atomic_folder,
    create,
    lock_folder,
    new_folder,
    numbered_paths,
    scratch_folder,
    write,
)
from muster.base.errors import MusterError

SRC = Path(durable.__file__).parents[2]


class Stop(BaseException):
    """What ends a process in the middle, Ctrl-C included."""


def everything(folder):
    """What a folder holds, hidden files included."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def stopped_while_writing(path, error):
    path.write_text("half of the n")
    raise error


@pytest.fixture
def synced(monkeypatch):
    """What was synced and moved, in order, by the name it had at that time."""
    seen = []
    fsync, replace = os.fsync, os.replace

    def record(handle):
        seen.append(("sync", Path(os.readlink(f"/proc/self/fd/{handle}")).name))
        fsync(handle)

    def move(source, target):
        seen.append(("move", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "replace", move)
    return seen


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")


# --- one file -----------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["new", b"\x00new"])
def test_a_file_is_written_or_replaced(tmp_path, content):
    path = tmp_path / "a.txt"
    for _ in range(2):
        write(path, content)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert everything(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("stop", [ValueError, Stop])
def test_a_writer_that_raises_leaves_the_old_file(tmp_path, stop):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(stop), atomic_file(path) as new:
        stopped_while_writing(new, stop)
    assert path.read_text() == "old"
    assert everything(tmp_path) == ["a.txt"]


def test_nothing_is_made_where_the_writer_wrote_nothing(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "a.txt"):
        pass
    assert everything(tmp_path) == []


def test_libraries_that_look_at_the_ending_find_it(tmp_path):
    with atomic_file(tmp_path / "a.npz") as new:
        np.savez(new, x=np.arange(3))
    assert everything(tmp_path) == ["a.npz"]
    assert np.load(tmp_path / "a.npz")["x"].tolist() == [0, 1, 2]


@needs_proc
def test_the_file_is_synced_before_it_is_moved_and_its_folder_after(tmp_path, synced):
    write(tmp_path / "a.txt", "new")
    (first, partial), *rest = synced
    assert first == "sync"
    assert partial.startswith(".a.txt.")
    assert rest == [("move", "a.txt"), ("sync", tmp_path.name)]


@pytest.mark.parametrize("folder", [True, False])
def test_a_folder_that_cannot_be_synced_is_no_error_and_a_file_is(tmp_path, monkeypatch, folder):
    real = os.fsync

    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode) == folder:
            raise OSError(22, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    if folder:
        write(tmp_path / "a.txt", "new")
        assert everything(tmp_path) == ["a.txt"]
    else:
        with pytest.raises(OSError, match="Invalid argument"):
            write(tmp_path / "a.txt", "new")
        assert everything(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from muster.base import durable
def kill(*args):
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = kill
{act}
"""


def killed_between_writing_and_moving(tmp_path, act):
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(act=act)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_kill_between_writing_and_moving_leaves_the_old_file(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    killed_between_writing_and_moving(tmp_path, 'durable.write(Path("a.txt"), "new")')
    assert (tmp_path / "a.txt").read_text() == "old"
    (left,) = set(everything(tmp_path)) - {"a.txt"}
    # What is left is hidden, stays while it may still be in use, and goes once it is old.
    assert left.startswith(".a.txt.")
    write(tmp_path / "b.txt", "other")
    assert left in everything(tmp_path)
    os.utime(tmp_path / left, (0, 0))
    write(tmp_path / "b.txt", "other")
    assert everything(tmp_path) == ["a.txt", "b.txt"]


def test_a_new_file_replaces_none_and_is_secret_from_the_start(tmp_path):
    create(tmp_path / "key", b"secret", 0o600)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        create(tmp_path / "key", b"other")
    assert (tmp_path / "key").read_bytes() == b"secret"


def test_a_new_file_that_cannot_be_written_is_not_there(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        create(tmp_path / "key", b"secret")
    assert everything(tmp_path) == []


@pytest.mark.parametrize("told", [OSError(28, "No space left on device"), OSError("no room")])
def test_what_there_was_no_room_for_is_named(tmp_path, told):
    with pytest.raises(OSError, match=r"a\.txt") as said, atomic_file(tmp_path / "a.txt"):
        raise told
    assert said.value.errno == told.errno
    assert everything(tmp_path) == []


def test_errors_of_polars_and_of_the_partial_file_name_the_file_itself(tmp_path):
    place = tmp_path / "a.txt"
    for told in (
        lambda new: PermissionError(13, "Permission denied", str(new)),
        lambda new: PermissionError(f"Permission denied (os error 13): {new}"),
    ):
        with pytest.raises(OSError) as said, atomic_file(place) as new:
            raise told(new)
        assert "partial" not in str(said.value)
        assert str(said.value).count(str(place)) == 1


# --- folders ------------------------------------------------------------------------------------


def test_a_folder_appears_with_everything_in_it(tmp_path):
    with atomic_folder(tmp_path / "below" / "a") as new:
        (new / "deep").mkdir()
        (new / "deep" / "x").write_text("1")
        assert not (tmp_path / "below" / "a").exists()
    assert everything(tmp_path / "below") == ["a", "a/deep", "a/deep/x"]


@needs_proc
def test_everything_in_a_folder_is_synced_before_it_is_moved(tmp_path, synced):
    with atomic_folder(tmp_path / "a") as new:
        (new / "deep").mkdir()
        (new / "deep" / "x").write_text("1")
        (new / "y").write_text("2")
    at = synced.index(("move", "a"))
    assert {name for _, name in synced[:at]} == {"x", "y", "deep", "whole"}
    assert synced[at + 1 :] == [("sync", tmp_path.name)]


def test_a_folder_that_is_there_is_an_error_and_stays(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").write_text("1")
    with pytest.raises(FileExistsError), atomic_folder(tmp_path / "a") as new:
        (new / "x").write_text("1")
    assert everything(tmp_path) == ["a", "a/old"]


@pytest.mark.parametrize("stop", [ValueError, Stop])
def test_a_folder_half_filled_never_appears(tmp_path, stop):
    with pytest.raises(stop), atomic_folder(tmp_path / "a") as new:
        stopped_while_writing(new / "x", stop)
    assert everything(tmp_path) == []


def test_with_a_marker_what_is_there_stays_and_the_marker_comes_last(tmp_path, synced):
    folder = tmp_path / "a"
    folder.mkdir()
    for name in ("old", "x", "a-marker"):
        (folder / name).write_text("old")
    with atomic_folder(folder, marker="a-marker") as new:
        for name in ("x", "a-marker", "z"):
            (new / name).write_text("new")
    assert everything(tmp_path) == ["a", "a/a-marker", "a/old", "a/x", "a/z"]
    assert [(folder / n).read_text() for n in ("old", "x", "z")] == ["old", "new", "new"]
    moved = [name for what, name in synced if what == "move"]
    assert moved[-1] == "a-marker"
    assert set(moved[:-1]) == {"x", "z"}
    # The marker stands for names that are on disk already.
    last = synced.index(("move", "a-marker"))
    assert synced[last - 1] == ("sync", "a")


def test_a_kill_while_files_are_moved_leaves_no_marker(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "marker").write_text("old")
    killed_between_writing_and_moving(
        tmp_path,
        'with durable.atomic_folder(Path("a"), marker="marker") as new:\n'
        '    (new / "x").write_text("new")\n    (new / "marker").write_text("new")',
    )
    assert everything(folder) == []


def test_scratch_is_gone_afterwards(tmp_path):
    with pytest.raises(Stop), scratch_folder(tmp_path / "below" / "a") as folder:
        stopped_while_writing(folder / "x", Stop)
    assert everything(tmp_path) == ["below"]


# --- folders of one's own -----------------------------------------------------------------------


def test_results_are_never_overwritten(tmp_path):
    names = [new_folder(tmp_path / "out" / "demo").name for _ in range(3)]
    assert names == ["demo", "demo-2", "demo-3"] == everything(tmp_path / "out")
    (tmp_path / "file").write_text("1")
    assert new_folder(tmp_path / "file").name == "file-2"


def test_numbers_begin_with_two(tmp_path):
    places = numbered_paths(tmp_path / "a")
    assert [next(places).name for _ in range(3)] == ["a", "a-2", "a-3"]


def test_two_processes_never_get_the_same_folder(tmp_path):
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        places = list(pool.map(new_folder, [tmp_path / "demo"] * 40))
    assert len(set(places)) == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
def test_a_child_that_outlives_the_block_does_not_hold_the_folder(tmp_path):
    with lock_folder(tmp_path):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        with lock_folder(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_folder_with_a_zero_byte_in_its_name_is_one_line(tmp_path):
    with pytest.raises(MusterError, match="without a zero byte"):
        durable.new_folder(tmp_path / "a\0b")


HOLDER = """
import sys, time
from pathlib import Path
from muster.base import durable
with durable.lock_folder(Path("a")):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_locks_of_a_killed_process_are_released(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        assert durable.in_use(tmp_path / "a")
        with (
            pytest.raises(MusterError, match="a: in use by another run; wait for it to end"),
            lock_folder(tmp_path / "a"),
        ):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert not durable.in_use(tmp_path / "a")
    with lock_folder(tmp_path / "a"):
        pass


def test_a_folder_without_a_lock_file_is_free_and_gets_none(tmp_path):
    assert not durable.in_use(tmp_path)
    assert everything(tmp_path) == []
