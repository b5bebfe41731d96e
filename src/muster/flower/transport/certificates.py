"""Keys and certificates: what a federation with TLS and registered clients needs, made at once.

A certificate authority of the federation's own, a certificate of the server signed by it, and a
key pair for every client. Real federations may bring their own instead: any CA, and keys made by
`ssh-keygen -t ecdsa -b 384`.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...base.durable import create
from ...base.errors import MusterError

HERE = ("localhost", "127.0.0.1")  # how the server reaches itself
CA, CERTIFICATE, KEY = "ca.crt", "server.crt", "server.key"
ONLY_OWNER, EVERYONE = 0o600, 0o644  # who may read a file
Private = ec.EllipticCurvePrivateKey


def make_keys(folder: Path, hosts: Sequence[str], clients: Sequence[str], days: int = 365) -> None:
    """Write `ca.crt`, `server.crt`, `server.key` and, for each client, `NAME` (private) and
    `NAME.pub`. Nothing that is there is replaced.

    Args:
        hosts: names and addresses under which clients will reach the server; its certificate is
            good for the machine itself too, where the superlink is
        days: how long the certificates are good for
    """
    for name in clients:
        if not name or "/" in name or name.startswith(".") or name in (CA, CERTIFICATE, KEY):
            raise MusterError(f"client '{name}': give a plain name")
    names = [CA, CERTIFICATE, KEY] if hosts else []
    names += [n for name in clients for n in (name, f"{name}.pub")]
    for n in names:
        if names.count(n) > 1:
            raise MusterError(f"client '{n}': twice; give each a name of its own")
    subjects = [_name(host) for host in dict.fromkeys([*hosts, *HERE])]
    there = [n for n in names if (folder / n).exists()]
    if there:
        raise MusterError(f"{folder / there[0]}: is there already; use another folder or name")
    contents: dict[str, bytes] = {}
    if hosts:
        authority, ca = _authority(days)
        key, certificate = _server(authority, hosts[0], subjects, days)
        contents[CA] = ca.public_bytes(Encoding.PEM)
        contents[CERTIFICATE] = certificate.public_bytes(Encoding.PEM)
        # Flower's server reads its key in this form.
        contents[KEY] = key.private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
        )
    for name in clients:
        own = _new()
        public = own.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        contents[name] = own.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        contents[f"{name}.pub"] = public + f" {name}\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    secret = {KEY, *clients}
    made: list[Path] = []
    try:
        for name, content in contents.items():
            create(folder / name, content, ONLY_OWNER if name in secret else EVERYONE)
            made.append(folder / name)
    except BaseException:
        for path in made:
            path.unlink()
        raise


def _new() -> Private:
    return ec.generate_private_key(ec.SECP384R1())


def _builder(subject: str, issuer: str, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


AUTHORITY = "muster federation"


def _authority(days: int) -> tuple[Private, x509.Certificate]:
    key = _new()
    certificate = (
        _builder(AUTHORITY, AUTHORITY, days)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    return key, certificate


def _server(
    authority: Private, host: str, subjects: Sequence[x509.GeneralName], days: int
) -> tuple[Private, x509.Certificate]:
    key = _new()
    issuer = authority.public_key()
    certificate = (
        _builder(host[:64], AUTHORITY, days)
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        .sign(authority, hashes.SHA384())
    )
    return key, certificate


def _usage(sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates, key_cert_sign=sign_certificates,
        crl_sign=sign_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
        raise MusterError(f"server '{host}': give the name or address by which it is reached")
    return x509.DNSName(host)
