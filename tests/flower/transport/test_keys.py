"""Keys and certificates: who signed what, who can read it, and that nothing is ever replaced."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import stat

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

import muster
from muster.flower.transport import keys
from muster.flower.transport.keys import CA, CERTIFICATE, KEY, make_keys
from muster.privacy.masks import SumKey


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


@pytest.fixture
def folder(tmp_path):
    make_keys(tmp_path / "keys", ["fl.example.org", "10.0.0.7"], ["north", "south"], days=30)
    return tmp_path / "keys"


def test_the_authority_signed_the_server_and_no_other_did(folder, tmp_path):
    server, ca = certificate(folder / CERTIFICATE), certificate(folder / CA)
    server.verify_directly_issued_by(ca)
    make_keys(tmp_path / "other", ["fl.example.org"], [])
    with pytest.raises(InvalidSignature):
        server.verify_directly_issued_by(certificate(tmp_path / "other" / CA))


def test_the_server_is_known_by_all_its_names_and_signs_for_nobody(folder):
    server, ca = certificate(folder / CERTIFICATE), certificate(folder / CA)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    # And for the machine itself, where the superlink is.
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    addresses = [ipaddress.ip_address(a) for a in ("10.0.0.7", "127.0.0.1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses
    constraints = [c.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
                   for c in (server, ca)]  # fmt: skip
    assert constraints == [False, True]
    assert not server.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_certificates_are_valid_for_the_days_asked_for(folder):
    now = datetime.datetime.now(datetime.UTC)
    for name in (CA, CERTIFICATE):
        c = certificate(folder / name)
        assert c.not_valid_before_utc < now
        assert datetime.timedelta(29) < c.not_valid_after_utc - now <= datetime.timedelta(30)


def test_private_keys_belong_to_what_is_public_and_differ(folder):
    server = load_pem_private_key((folder / KEY).read_bytes(), None)
    assert server.public_key() == certificate(folder / CERTIFICATE).public_key()
    found = []
    for name in ("north", "south"):
        own = load_ssh_private_key((folder / name).read_bytes(), None)
        text = (folder / f"{name}.pub").read_bytes()
        assert own.public_key() == load_ssh_public_key(text)
        assert text.endswith(f" {name}\n".encode())
        assert isinstance(own.curve, ec.SECP384R1)
        found.append(text)
    assert found[0].split()[1] != found[1].split()[1]


def test_keys_of_secure_sums_belong_together_and_differ(folder):
    public = []
    for name in ("north", "south"):
        own = SumKey.from_text((folder / f"{name}.agg").read_text(), "key")
        text = (folder / f"{name}.agg.pub").read_text()
        signing = Ed25519PrivateKey.from_private_bytes(own.sign).public_key()
        agreeing = X25519PrivateKey.from_private_bytes(own.agree).public_key()
        both = base64.b64decode(text.split()[1])
        assert both == signing.public_bytes_raw() + agreeing.public_bytes_raw()
        assert text.endswith(f" {name}\n")
        public.append(both)
    assert public[0][:32] != public[1][:32]
    assert public[0][32:] != public[1][32:]


def test_secrets_are_for_their_owner_alone(folder):
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
    assert {n for n, mode in modes.items() if mode == 0o600} == {
        KEY, "north", "south", "north.agg", "south.agg"
    }  # fmt: skip
    assert {n for n, mode in modes.items() if mode & 0o044} == {
        CA, CERTIFICATE, "north.pub", "south.pub", "north.agg.pub", "south.agg.pub"
    }  # fmt: skip


def test_clients_can_be_added_and_nothing_is_replaced(folder):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    make_keys(folder, [], ["east"])
    for clients in (["south"], ["west", "north"]):
        with pytest.raises(muster.MusterError, match="exists already; use another folder"):
            make_keys(folder, [], clients)
    with pytest.raises(muster.MusterError, match=r"ca\.crt: exists already"):
        make_keys(folder, ["fl.example.org"], [])
    after = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert set(after) - set(before) == {"east", "east.pub", "east.agg", "east.agg.pub"}
    assert {n: after[n] for n in before} == before


def test_keys_half_written_are_removed(tmp_path, monkeypatch):
    real = keys.create

    def fails(path, content, mode):
        if path.name == "south":
            raise OSError(28, "No space left on device")
        real(path, content, mode)

    monkeypatch.setattr(keys, "create", fails)
    with pytest.raises(OSError, match="No space"):
        make_keys(tmp_path, ["localhost"], ["north", "south"])
    assert list(tmp_path.iterdir()) == []
