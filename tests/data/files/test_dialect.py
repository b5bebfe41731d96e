"""CSV files in other dialects: read as the manifest states, and detected from their bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import muster
from muster.data.files.dialect import LOOK_AT, PLAIN, Dialect, detect_dialect
from own_files import NORTH, put

load = muster.Federation.from_folder
pytestmark = pytest.mark.filterwarnings("ignore:features need scaling")
ROWS = [("jünger", 1.5, 50), ("älter", 2.25, 60), ("jünger", 0.5, 70), ("älter", 4.0, 80)] * 3


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text(dialect, rows=ROWS):
    mark = dialect.separator
    lines = [mark.join(["größe", "alter", "label"])]
    for label, dose, age in rows:
        number = str(dose).replace(".", dialect.decimal)
        quoted = f'"{number}"' if mark == dialect.decimal else number
        lines.append(mark.join([quoted, str(age), label]))
    return ("\n".join(lines) + "\n").encode(dialect.encoding)


DIALECTS = [
    PLAIN, Dialect(";", ",", "latin-1"), Dialect("\t", ",", "utf-8"), Dialect("|", ".", "latin-1"),
    Dialect(",", ",", "utf-8"), Dialect(";", ".", "utf-8"), Dialect("\t", ",", "utf-16"),
]  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_every_dialect_is_detected_and_read_to_the_same_numbers(here, dialect):
    Path("plain.csv").write_bytes(text(PLAIN))
    Path("own.csv").write_bytes(text(dialect))
    assert detect_dialect(Path("own.csv")) == dialect
    wanted, fed = (
        load("plain.csv", test_fraction=0),
        load("own.csv", test_fraction=0, **vars(dialect)),
    )
    np.testing.assert_array_equal(fed.train.x, wanted.train.x)
    assert fed.columns == ("größe", "alter")
    assert fed.labels == ("jünger", "älter")


def test_clients_may_each_have_their_own(here):
    put("h")
    for name, dialect in {"a": PLAIN, "b": Dialect(";", ",", "latin-1")}.items():
        Path(f"h/{name}.csv").write_bytes(text(dialect))
    put("h", manifest='[clients.b]\nseparator = ";"\ndecimal = ","\nencoding = "latin-1"\n')
    fed = load("h", test_fraction=0)
    np.testing.assert_array_equal(*(fed.train.client(k)[0] for k in range(2)))
    with pytest.raises(muster.MusterError, match="separate columns by commas, or state separator"):
        load("h", separator=";")  # a's is not


def test_errors_name_the_setting_that_is_missing(here):
    Path("x.csv").write_bytes(text(Dialect(";", ",", "latin-1")))
    with pytest.raises(muster.MusterError, match=r"its text is not UTF-8; .*encoding = "):
        load("x.csv", separator=";")
    with pytest.raises(
        muster.MusterError, match="row 1: '1,5' is not a number; state decimal = \",\""
    ):
        load("x.csv", separator=";", encoding="latin-1")
    Path("y.csv").write_text("age;label\n1,5;0\n1.500;1\n")
    with pytest.raises(muster.MusterError, match=r"row 2: '1.500' has a decimal point"):
        load("y.csv", separator=";", decimal=",")
    with pytest.raises(
        muster.MusterError, match="encoding: 'zip'; allowed: utf-8, latin-1, cp1252"
    ):
        load("y.csv", encoding="zip")


def test_an_umlaut_may_come_late_or_lie_across_two_pieces(here):
    head = "label,x\n" + "0,1\n" * (LOOK_AT // 4)
    for shift in range(4):
        late = (head[: LOOK_AT - 2 - shift] + "ö" * 9).encode()
        Path("late.csv").write_bytes(late)
        assert detect_dialect(Path("late.csv")).encoding == "utf-8"
    for encoding, mark in {"latin-1": "ö", "cp1252": "–"}.items():
        Path("late.csv").write_bytes((head + mark).encode(encoding))
        assert detect_dialect(Path("late.csv")).encoding == encoding


def test_thousands_are_no_decimals(here):
    Path("x.csv").write_text('a,b\n"1,200",2\n"31,500",3\n')
    assert detect_dialect(Path("x.csv")) == PLAIN


def test_recoded_values_may_become_missing(here):
    put(
        "h", north=NORTH.replace("60,", "-9,"), manifest="missing = 'mean'\n[recode.age]\n-9 = ''\n"
    )
    fed = load("h", test_fraction=0)
    assert fed.columns == ("age", "age missing", "dose")
    assert fed.train.x[:, 0].tolist() == pytest.approx([50, np.mean([50, 70, 80]), 70, 80])


@pytest.mark.parametrize(("manifest", "message"), [
    ("[recode.agge]\n1 = 'a'", "recode.agge: no such column; did you mean 'age'"),
    ("[range]\nagge = [0, 1]", "range.agge: no such column; did you mean 'age'"),
    ("[range]\nage = [0, 75]", "column 'age', row 4: 80 is outside its range, 0 to 75; fix it"),
    ("[range]\nage = [75, 0]", "range.age: [75, 0]; allowed: the lowest and the highest value"),
    ("[range]\nage = 75", "range.age: 75; allowed: the lowest and the highest value"),
    ("[recode.age]\n1 = 1.5", "recode.age: 1.5; allowed: text for each value"),
    ("recode = 3", "recode: 3; give a table of settings"),
    ("duplicates = 'yes'", "duplicates: 'yes'; allowed: keep, drop"),
])  # fmt: skip
def test_tables_of_a_manifest_are_checked(here, manifest, message):
    put("h", north=NORTH, manifest=manifest)
    with pytest.raises(muster.MusterError) as error:
        load("h")
    assert message in str(error.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_line_that_names_the_separator_is_no_header(here, encoding):
    Path("plain.csv").write_bytes(text(PLAIN))
    dialect = Dialect(";", ",", "utf-16" if encoding == "utf-16" else "utf-8")
    body = text(dialect).decode(dialect.encoding)
    Path("own.csv").write_bytes(f"sep=;\r\n{body}".encode(encoding))
    assert detect_dialect(Path("own.csv")) == dialect
    wanted, fed = (load(p, test_fraction=0, **d) for p, d in
                   (("plain.csv", {}), ("own.csv", vars(dialect))))  # fmt: skip
    np.testing.assert_array_equal(fed.train.x, wanted.train.x)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,label\n1,a\n2,b\n".encode("utf-16-le"), "NUL bytes, as text in UTF-16"),
        (b"x,label\r1,a\r2,b\r", "its lines end in CR alone"),
        (b'x,label\n"50,111",a\n2,b\n', "write 50111 if its comma is for thousands, or state"),
        (b'x,label\n"1,050,111",a\n2,b\n', "write 1050111 if its comma is for thousands$"),
        (b'x,label\n"1\n2",a\n2,b\n', "row 1: '1 2' is not a number"),
    ],
)
def test_what_cannot_be_read_is_one_short_line(here, content, message):
    Path("own.csv").write_bytes(content)
    with pytest.raises(muster.MusterError, match=message) as error:
        load("own.csv", test_fraction=0)
    assert len(str(error.value)) < 200
    assert "\n" not in str(error.value)
