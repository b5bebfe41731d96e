"""Only regular files are opened, under plain names and within a bound."""

from __future__ import annotations

import os

import polars as pl
import pytest

from muster.base import durable, untrusted_files
from muster.base.errors import MusterError


def link(path):
    (path.parent / "elsewhere").write_text("theirs")
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(("make", "what"), [
    (link, "a link"),
    (lambda path: path.symlink_to("nowhere"), "a link"),
    (lambda path: path.symlink_to("/dev/zero"), "a link"),
    (os.mkfifo, "a FIFO"),
    (os.mkdir, "a folder"),
])  # fmt: skip
def test_what_is_no_file_is_neither_read_nor_written(tmp_path, make, what):
    path = tmp_path / "file"
    make(path)
    for use in (
        untrusted_files.read_text,
        untrusted_files.read_frame,
        lambda p: durable.append(p, "ours"),
    ):
        with pytest.raises(MusterError, match=f"file: {what}; only regular files"):
            use(path)
    if make is link:
        assert (tmp_path / "elsewhere").read_text() == "theirs"


def test_links_of_the_users_own_are_followed_to_files_alone(tmp_path):
    (tmp_path / "there").write_text("a")
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "endless").symlink_to("/dev/zero")
    assert untrusted_files.read_text(tmp_path / "link", follow=True) == "a"
    with pytest.raises(MusterError, match="a device"):
        untrusted_files.read_text(tmp_path / "endless", follow=True)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(untrusted_files.TEXT + 1)
    with pytest.raises(MusterError, match=r"16\.8 MB; allowed for such a file: up to 16\.8 MB"):
        untrusted_files.read_text(tmp_path / "file")


@pytest.mark.parametrize(("text", "read"), [
    ("a = " + "[" * 5000, untrusted_files.read_toml),
    ("[" * 5000, untrusted_files.read_json),
    ('"\\ud800"', untrusted_files.read_json),
    ("a = \xff", untrusted_files.read_toml),
])  # fmt: skip
def test_text_that_says_nothing_is_a_value_error(tmp_path, text, read):
    (tmp_path / "file").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError):
        read(tmp_path / "file")


def test_a_table_that_would_fill_the_memory_is_not_read(tmp_path, monkeypatch):
    pl.select(pl.repeat(0, 10**6, dtype=pl.Int64).alias("x")).write_parquet(tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 10**5
    monkeypatch.setattr("muster.base.memory.free_memory", lambda device=None: 10**6)
    with pytest.raises(MusterError, match=r"the 1000000 rows of .* need 8\.0 MB"):
        untrusted_files.read_frame(tmp_path / "t.parquet")


def test_a_panic_of_polars_is_a_value_error():
    with pytest.raises(ValueError, match="boom"), untrusted_files.table_errors():
        raise pl.exceptions.PanicException("boom")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "/a", "a\0b", "x" * 300, 5, "a\\b"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    with pytest.raises(MusterError, match="no plain name"):
        untrusted_files.safe_path(tmp_path, name)


def test_folders_inside_are_no_links(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "in").symlink_to("there")
    assert untrusted_files.safe_path(tmp_path, "there", "a") == tmp_path / "there" / "a"
    with pytest.raises(MusterError, match="in: a link"):
        untrusted_files.safe_path(tmp_path, "in", "a")


def test_a_lock_that_is_a_link_leaves_its_target_as_it_was(tmp_path):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / durable.LOCK).symlink_to("theirs")
    with pytest.raises(MusterError, match="a link"), durable.lock_folder(tmp_path):
        pass
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_log_is_added_to_and_a_link_is_not(tmp_path):
    for _ in range(2):
        with untrusted_files.open_log(tmp_path / "a.log") as log:
            log.write(b"line\n")
    assert (tmp_path / "a.log").read_text() == "line\nline\n"
    (tmp_path / "b.log").symlink_to(tmp_path / "a.log")
    with pytest.raises(MusterError, match="a link; only regular files"):
        untrusted_files.open_log(tmp_path / "b.log")
