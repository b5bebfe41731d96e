"""Small data sets in real layouts, and what finds the real ones, for the tests of data."""

from __future__ import annotations

import gzip
import os
import struct
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from muster.data.sources import cache
from muster.data.sources.catalogue import CATALOGUE
from muster.data.sources.dataset import DataSet, Layout, locate
from muster.data.sources.readers import MNIST_FILES, mnist_idx

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("MUSTER_TEST_DATA") or ROOT.parent / "shared" / "data")


def here(*names):
    """Skip a test unless these data sets are on this machine, whole."""
    missing = [
        CATALOGUE[n] for n in names if (s := locate(CATALOGUE[n])) is None or s.layout.variant
    ]
    commands = " && ".join(data.command for data in missing)
    return pytest.mark.skipif(bool(missing), reason=f"run `{commands}`")


def shared(*files):
    """Skip a test unless these real subsets are in MUSTER_TEST_DATA (or ../shared/data)."""
    missing = [f for f in files if not (SHARED / f).is_file()]
    return pytest.mark.skipif(
        bool(missing), reason=f"run `MUSTER_TEST_DATA=FOLDER make test`, with {missing} in FOLDER"
    )


def idx(array, code=0x08):
    head = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_idx(folder, names=MNIST_FILES, ending=".gz", rows=40, side=28):
    """A data set in MNIST's layout: row i has label i mod 10, and a first row of that value."""
    folder.mkdir(parents=True, exist_ok=True)
    y = np.arange(rows) % 10
    x = np.zeros((rows, side, side), np.uint8)
    x[:, 0, :] = y[:, None]
    for name, array in zip(names, (x, y, x[::-1], y[::-1]), strict=True):
        content = idx(np.ascontiguousarray(array))
        (folder / (name + ending)).write_bytes(
            gzip.compress(content, mtime=0) if ending == ".gz" else content
        )
    return folder


def small(tmp_path, rows=40, **more):
    """A catalogue entry whose right bytes are those of `write_idx(rows=...)`."""
    folder = write_idx(tmp_path / f"right{rows}", rows=rows)
    arrays = mnist_idx([folder / f"{name}.gz" for name in MNIST_FILES])
    shapes = {"x": (rows, 784), "y": (rows,), "test_x": (rows, 784), "test_y": (rows,)}
    layout = Layout(MNIST_FILES, mnist_idx, shapes, cache.digest(arrays))
    return DataSet("small", "Small", "for tests", "none", 1000, (layout,), **more)


def left_behind(root):
    """Everything below a cache's folder of arrays, hidden folders too."""
    return sorted(p.name for p in (root / "arrays").iterdir()) if (root / "arrays").exists() else []


class QuietHandler(SimpleHTTPRequestHandler):
    """A handler of HTTP requests without a log."""

    def log_message(self, *words):
        pass


@contextmanager
def http_server(folder, monkeypatch, handler=QuietHandler):
    """The address of an HTTP server on this machine that serves the files of a folder."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
