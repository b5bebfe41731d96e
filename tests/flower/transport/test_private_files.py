"""Who can read what: keys are refused like ssh refuses them, data that everybody can read too."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

import muster
from muster.flower.transport import proxy
from muster.flower.transport.keys import make_keys
from muster.flower.transport.private_files import (
    check_data,
    check_key,
    find_access,
    make_private_folder,
    private_umask,
    write_private,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")


@pytest.fixture
def street():
    """A folder that everybody on the machine can walk into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def file(folder, mode):
    path = folder / "file"
    path.write_text("secret")
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("mode", "group", "others"),
    [
        (0o600, False, False), (0o400, False, False), (0o640, True, False), (0o644, True, True),
        (0o604, False, True), (0o602, False, True), (0o660, True, False),
    ],
)  # fmt: skip
def test_a_mode_says_who_can_read(street, mode, group, others):
    assert find_access(file(street, mode)) == (group, others)


def test_a_closed_folder_keeps_everybody_out_whatever_the_file_says(street):
    inner = street / "a" / "b"
    inner.mkdir(parents=True)
    path = file(inner, 0o666)
    assert find_access(path) == (True, True)
    (street / "a").chmod(0o750)
    assert find_access(path) == (True, False)
    (street / "a").chmod(0o700)
    assert find_access(path) == (False, False)


def test_a_link_is_as_open_as_what_it_leads_to(street):
    (street / "closed").mkdir(mode=0o700)
    path = file(street / "closed", 0o644)
    (street / "link").symlink_to(path)
    assert find_access(street / "link") == (False, False)


def test_private_keys_that_others_can_read_are_refused(street):
    check_key(file(street, 0o600))
    for mode in (0o640, 0o604, 0o620, 0o644):
        with pytest.raises(muster.MusterError, match="others can read this private key"):
            check_key(file(street, mode))
    with pytest.raises(muster.MusterError, match=r"cannot be read \(No such file.*give the key"):
        check_key(street / "nothing")


def test_data_that_everybody_can_read_is_refused_and_a_group_is_named(street):
    assert check_data(file(street, 0o600)) == ""
    assert "its group can read it" in check_data(file(street, 0o640))
    for mode in (0o644, 0o604, 0o602):
        with pytest.raises(muster.MusterError, match="everybody on this machine can"):
            check_data(file(street, mode))
    with pytest.raises(muster.MusterError, match="its group can change it"):
        check_data(file(street, 0o660))
    with pytest.raises(muster.MusterError, match="give the data of this client"):
        check_data(street / "nothing")


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_holds_secrets_is_written_for_its_owner_alone(street):
    write_private(street / "deep" / "roster.toml", "names")
    assert mode_of(street / "deep") == 0o700
    assert mode_of(street / "deep" / "roster.toml") == 0o600
    write_private(street / "deep" / "roster.toml", "others")
    assert (street / "deep" / "roster.toml").read_text() == "others"
    (street / "open").mkdir(mode=0o755)
    assert mode_of(make_private_folder(street / "open")) == 0o700
    with private_umask():
        (street / "results").mkdir()
        (street / "results" / "weights").touch()
    assert mode_of(street / "results") == 0o700
    assert mode_of(street / "results" / "weights") == 0o600
    (street / "after").touch()
    assert mode_of(street / "after") & 0o044 == 0o044 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_gate_whose_key_others_can_read_does_not_open(street):
    make_keys(street / "keys", ["gate.example"], [])
    (street / "keys").chmod(0o755)
    (street / "keys" / "server.key").chmod(0o644)
    with pytest.raises(muster.MusterError, match="others can read this private key"):
        proxy.build_server(street / "keys", "127.0.0.1", 1, "127.0.0.1:1")
