"""Keys: TLS certificates and client keys, as `muster keys` writes them, and the key registry.

A certificate authority for this federation alone, a certificate of the server signed by it, and a
key pair for every client, with another two for secure sums. Real federations may bring their own
instead: any CA, and keys made by `ssh-keygen -t ecdsa -b 384`.

A client is known by its registered public key, and by nothing it states itself: a node proves its
key to the SuperLink when it connects, and the grid names the key of every node. A client's number
is its place in the configuration, wherever it connects from.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from flwr.serverapp import Grid

from ...base.durable import create
from ...base.errors import MusterError
from ...config.network import Member
from ...privacy.masks import SumKey

LOCAL_NAMES = ("localhost", "127.0.0.1")  # by which the server reaches itself
CA, CERTIFICATE, KEY = "ca.crt", "server.crt", "server.key"
SUM = ".agg"  # ends the name of a client's keys for secure sums
ONLY_OWNER, EVERYONE = 0o600, 0o644  # who may read a file
Private = ec.EllipticCurvePrivateKey


def make_keys(folder: Path, hosts: Sequence[str], clients: Sequence[str], days: int = 365) -> None:
    """Write `ca.crt`, `server.crt`, `server.key` and, for each client, `NAME` (private) and
    `NAME.pub`, and for secure sums `NAME.agg` (private) and `NAME.agg.pub`. No existing file is
    replaced.

    Args:
        hosts: names and addresses under which clients will reach the server; its certificate is
            valid for the machine itself too, where the SuperLink is
        days: how long the certificates are valid
    """
    for name in clients:
        if not name or "/" in name or name.startswith(".") or name in (CA, CERTIFICATE, KEY):
            raise MusterError(f"client '{name}': give a plain name")
    names = [CA, CERTIFICATE, KEY] if hosts else []
    names += [name + ending for name in clients for ending in ("", ".pub", SUM, f"{SUM}.pub")]
    for n in names:
        if names.count(n) > 1:
            raise MusterError(f"client '{n}': twice; give each client another name")
    subjects = [_general_name(host) for host in dict.fromkeys([*hosts, *LOCAL_NAMES])]
    existing = [n for n in names if (folder / n).exists()]
    if existing:
        raise MusterError(f"{folder / existing[0]}: exists already; use another folder or name")
    contents: dict[str, bytes] = {}
    if hosts:
        authority, ca = _make_authority(days)
        key, certificate = _make_server(authority, hosts[0], subjects, days)
        contents[CA] = ca.public_bytes(Encoding.PEM)
        contents[CERTIFICATE] = certificate.public_bytes(Encoding.PEM)
        # Flower's server reads its key in this form.
        contents[KEY] = key.private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
        )
    for name in clients:
        own = _generate_key()
        public = own.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        contents[name] = own.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        contents[f"{name}.pub"] = public + f" {name}\n".encode()
        sums = SumKey.generate()
        contents[name + SUM] = f"{sums.to_text()}\n".encode()
        contents[f"{name}{SUM}.pub"] = f"{sums.public.to_text()} {name}\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    secret = {KEY, *clients, *(name + SUM for name in clients)}
    written: list[Path] = []
    try:
        for name, content in contents.items():
            create(folder / name, content, ONLY_OWNER if name in secret else EVERYONE)
            written.append(folder / name)
    except BaseException:
        for path in written:
            path.unlink()
        raise


def _generate_key() -> Private:
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


def _make_authority(days: int) -> tuple[Private, x509.Certificate]:
    key = _generate_key()
    certificate = (
        _builder(AUTHORITY, AUTHORITY, days)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    return key, certificate


def _make_server(
    authority: Private, host: str, subjects: Sequence[x509.GeneralName], days: int
) -> tuple[Private, x509.Certificate]:
    key = _generate_key()
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
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
        raise MusterError(f"server '{host}': give a host name or an address")
    return x509.DNSName(host)


@lru_cache(maxsize=2**20)  # the same keys are looked up before every request
def to_der(key: bytes) -> bytes:
    """Return a public key as DER, whichever form it was written in."""
    load = load_pem_public_key if key.lstrip().startswith(b"-----BEGIN") else load_ssh_public_key
    return load(key).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class KeyRegistry:
    """The registered keys, with the number of each client."""

    members: tuple[Member, ...]
    keys: dict[bytes, int]

    @classmethod
    def from_members(cls, members: tuple[Member, ...]) -> KeyRegistry:
        """Build the registry that a configuration describes."""
        keys: dict[bytes, int] = {}
        for k, member in enumerate(members):
            try:
                key = to_der(member.public_key().encode())
            except (ValueError, UnsupportedAlgorithm):
                raise MusterError(
                    f"clients.{member.name}.key: not a public key; make one with `muster keys`"
                ) from None
            if key in keys:
                other = members[keys[key]].name
                raise MusterError(f"clients: {other} and {member.name} have the same key")
            keys[key] = k
        return cls(members, keys)

    def find_nodes(self, grid: Grid) -> tuple[dict[int, int], set[str]]:
        """Return the node of each registered client that is connected, and short hashes of the
        keys of connected nodes that are not registered."""
        nodes: dict[int, int] = {}
        unregistered: set[str] = set()
        for node in grid.get_nodes():
            try:
                key = to_der(node.public_key)
            except (ValueError, UnsupportedAlgorithm):
                key = node.public_key
            if key in self.keys:
                nodes[self.keys[key]] = node.node_id
            else:
                unregistered.add(hashlib.sha256(key).hexdigest()[:16])
        return nodes, unregistered
