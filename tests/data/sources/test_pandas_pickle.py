"""Pickled data frames: columns as they were written, and no code, whatever a file names."""

from __future__ import annotations

import lzma
import pickle

import numpy as np
import pytest

from muster.base.errors import MusterError
from muster.data.sources import pandas_pickle
from muster.data.sources.pandas_pickle import read_pickled_frame


def name(module, what):
    return f"c{module}\n{what}\n".encode()


def literal(value):
    """What pickles to data alone, without its first and last operation."""
    return pickle.dumps(value, 3)[2:-1]


def call(function, *arguments):
    return function + b"(" + b"".join(arguments) + b"tR"


def dtype(kind, order):
    return (
        call(name("numpy", "dtype"), literal(kind), literal(False), literal(True))
        + literal((3, order, None, None, None, -1, -1, 0))
        + b"b"
    )


def numbers(values):
    kind = dtype(values.dtype.str[1:], "<")
    data = b"B" + len(values.tobytes()).to_bytes(4, "little") + values.tobytes()
    make = name("numpy.core.numeric", "_frombuffer")
    return call(make, data, kind, literal(values.shape), literal("C"))


def objects(values):
    make = name("numpy.core.multiarray", "_reconstruct")
    empty = call(make, name("numpy", "ndarray"), literal((0,)), literal(b"b"))
    flat = [v for row in values for v in row] if isinstance(values[0], list) else values
    shape = (len(values), len(values[0])) if isinstance(values[0], list) else (len(values),)
    state = b"(" + literal(1) + literal(shape) + dtype("O8", "|") + literal(False) + literal(flat)
    return empty + state + b"tb"


def block(values, place):
    make = name("pandas._libs.internals", "_unpickle_block")
    at = call(name("builtins", "slice"), *(literal(v) for v in place))
    return call(make, values, at, literal(2))


def frame(blocks, columns):
    """The bytes of a data frame, as pandas 2 writes them."""
    index = name("pandas.core.indexes.base", "_new_Index")
    state = b"}" + literal("data") + objects(columns) + b"s"
    columns = call(index, name("pandas.core.indexes.base", "Index"), state)
    count = literal({"name": None, "start": 0, "stop": 3, "step": 1})
    rows = call(index, name("pandas.core.indexes.range", "RangeIndex"), count)
    make = name("pandas.core.internals.managers", "BlockManager")
    manager = call(make, b"(" + b"".join(blocks) + b"t", b"](" + columns + rows + b"e")
    state = b"}" + literal("_mgr") + manager + b"s"
    return b"\x80\x04" + name("pandas.core.frame", "DataFrame") + b")\x81" + state + b"b."


@pytest.fixture
def write(tmp_path):
    def put(content):
        path = tmp_path / "t.pkl.compress"
        path.write_bytes(lzma.compress(content))
        return path

    return put


def test_columns_are_read_by_their_names(write):
    halves = np.array([[0.5, np.nan, 2.5], [1.0, 2.0, 3.0]])
    texts = [["a", None, "c"]]
    whole = np.array([[7, 8, 9]])
    blocks = [
        block(numbers(halves), (0, 4, 2)),
        block(objects(texts), (1, 2, 1)),
        block(numbers(whole), (3, 4, 1)),
    ]
    found = read_pickled_frame(write(frame(blocks, ["x", "t", "z", "n"])))
    assert set(found) == {"x", "t", "z", "n"}
    assert np.array_equal(found["x"], halves[0], equal_nan=True)
    assert np.array_equal(found["z"], halves[1])
    assert found["t"].tolist() == ["a", None, "c"]
    assert found["n"].tolist() == [7, 8, 9]


def test_a_file_that_names_code_is_refused_and_runs_none(write, tmp_path):
    gone = tmp_path / "gone"
    evil = b"\x80\x04" + call(name("os", "mkdir"), literal(str(gone))) + b"."
    with pytest.raises(MusterError, match=r"it names os\.mkdir, which is no part of a table"):
        read_pickled_frame(write(evil))
    # A known name leads nowhere else either.
    deep = b"\x80\x04" + name("numpy", "f2py.os.mkdir") + b"."
    with pytest.raises(MusterError, match="no part of a table"):
        read_pickled_frame(write(deep))
    assert not gone.exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"\x80\x04]", b"\x80\x04}."])
def test_what_is_no_frame_is_one_line(write, content):
    with pytest.raises(MusterError, match="no table that pandas wrote") as caught:
        read_pickled_frame(write(content))
    assert "\n" not in str(caught.value)


def test_what_is_not_compressed_is_one_line(tmp_path):
    (tmp_path / "t").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(MusterError, match="no table that pandas wrote"):
        read_pickled_frame(tmp_path / "t")


def test_a_small_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pandas_pickle, "MOST", 1000)
    path = tmp_path / "bomb.pkl.xz"
    path.write_bytes(lzma.compress(bytes(10_000)))
    with pytest.raises(MusterError, match="over 1000 bytes when unpacked"):
        read_pickled_frame(path)
