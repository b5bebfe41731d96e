"""Keys of secure sums, and the masks that hide a contribution until a committee takes them off.

Every client k has two key pairs, Ed25519 to sign and X25519 to agree. For each answer it draws a
nonce r_k of 32 bytes, and shares a mask with every member j of the committee:

    seed  s_kj = HKDF-SHA256(X25519(x_k, X_j), info = "muster mask 1" | attempt | r_k | X_k | X_j)
    mask  ChaCha20(s_kj, counter 0, nonce 0) as numbers of 32 bits, the lowest byte first

The primitives are those of the package `cryptography` (the extra `secure`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import MusterError
from ..base.lazy import lazy_module
from .fixed_point import Vectors

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import ciphers, hashes
    from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
    from cryptography.hazmat.primitives.ciphers import algorithms
    from cryptography.hazmat.primitives.kdf import hkdf
else:  # an extra: everything else works without it
    exceptions = lazy_module("cryptography.exceptions")
    ciphers = lazy_module("cryptography.hazmat.primitives.ciphers")
    hashes = lazy_module("cryptography.hazmat.primitives.hashes")
    ed25519 = lazy_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    x25519 = lazy_module("cryptography.hazmat.primitives.asymmetric.x25519")
    algorithms = lazy_module("cryptography.hazmat.primitives.ciphers.algorithms")
    hkdf = lazy_module("cryptography.hazmat.primitives.kdf.hkdf")

SECRET, PUBLIC = "muster-sum-secret-1", "muster-sum-1"  # first words of keys as text
MOST_TEXT = 1000  # characters of a key
KEY, SIGNATURE = 32, 64  # bytes
ATTEMPT = struct.Struct(">32sQQ32s")


@dataclass(frozen=True)
class Attempt:
    """One attempt at a sum: masks and signatures of one are worth nothing in another.

    Attributes:
        run: hash of the terms and the seed
        number: higher than that of any attempt before, in this run or another
        offer: hash of the offer, so that a sum is of answers to one and the same model
    """

    run: bytes
    round: int
    number: int
    offer: bytes

    def to_bytes(self) -> bytes:
        """Return it as bytes, of which no other attempt has the same."""
        return ATTEMPT.pack(self.run, self.round, self.number, self.offer)

    @classmethod
    def from_bytes(cls, data: bytes) -> Attempt:
        """Return the attempt of its bytes."""
        return cls(*ATTEMPT.unpack(data))


@dataclass(frozen=True)
class PublicSumKey:
    """The public halves of a client's keys for secure sums."""

    sign: bytes
    agree: bytes

    def to_text(self) -> str:
        """Return the line that configurations and terms hold."""
        return write_key(PUBLIC, self.sign + self.agree)

    @classmethod
    def from_text(cls, text: str, what: str) -> PublicSumKey:
        """Return the keys of a line; an error names `what` it is."""
        data = read_key(PUBLIC, text, what)
        return cls(data[:KEY], data[KEY:])

    def verify(self, signature: bytes, content: bytes) -> bool:
        """Return True if this client signed the content."""
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.sign).verify(signature, content)
        except (exceptions.InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class SumKey:
    """A client's secret keys for secure sums, of 32 bytes each."""

    sign: bytes = field(repr=False)
    agree: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> SumKey:
        """Return new keys, drawn by the operating system."""
        signing = ed25519.Ed25519PrivateKey.generate()
        agreeing = x25519.X25519PrivateKey.generate()
        return cls(signing.private_bytes_raw(), agreeing.private_bytes_raw())

    @property
    def public(self) -> PublicSumKey:
        """The public halves."""
        signing = ed25519.Ed25519PrivateKey.from_private_bytes(self.sign).public_key()
        agreeing = x25519.X25519PrivateKey.from_private_bytes(self.agree).public_key()
        return PublicSumKey(signing.public_bytes_raw(), agreeing.public_bytes_raw())

    def to_text(self) -> str:
        """Return the line that a key file holds."""
        return write_key(SECRET, self.sign + self.agree)

    @classmethod
    def from_text(cls, text: str, what: str) -> SumKey:
        """Return the keys of a key file's line; an error names `what` it is."""
        data = read_key(SECRET, text, what)
        return cls(data[:KEY], data[KEY:])

    def make_signature(self, content: bytes) -> bytes:
        """Return its signature of the content."""
        return ed25519.Ed25519PrivateKey.from_private_bytes(self.sign).sign(content)

    def exchange(self, other: PublicSumKey) -> bytes:
        """Return the secret that it shares with another client."""
        try:
            theirs = x25519.X25519PublicKey.from_public_bytes(other.agree)
            return x25519.X25519PrivateKey.from_private_bytes(self.agree).exchange(theirs)
        except ValueError:
            raise MusterError(
                f"key '{other.to_text()}': no secret can be shared with it; make keys with "
                "`muster keys`"
            ) from None


def check_installed() -> None:
    """Refuse secure sums where the extra is missing."""
    if find_spec("cryptography") is None:
        raise MusterError(
            "privacy.secure: cryptography is not installed; get it with: pip install "
            "'muster-fl[secure]'"
        )


def write_key(kind: str, data: bytes) -> str:
    """Return a key as a line of text."""
    return f"{kind} {base64.b64encode(data).decode()}"


def read_key(kind: str, text: str, what: str) -> bytes:
    """Return the 64 bytes of a key that is a line of text, perhaps with a comment."""
    words = text[:MOST_TEXT].split()
    try:
        data = base64.b64decode(words[1], validate=True) if words[:1] == [kind] else b""
    except (binascii.Error, IndexError, ValueError):
        data = b""
    if len(data) != 2 * KEY or len(text) > MOST_TEXT:
        raise MusterError(f"{what}: not a line '{kind} ...'; make keys with `muster keys`")
    return data


def bind_pair(attempt: Attempt, nonce: bytes, joiner: PublicSumKey, member: PublicSumKey) -> bytes:
    """Return what a mask is for: the attempt, the answer, and who shares it."""
    return b"muster mask 1" + attempt.to_bytes() + nonce + joiner.agree + member.agree


def derive_mask(own: SumKey, other: PublicSumKey, pair: bytes, size: int) -> Vectors:
    """Return the mask that a joiner and a member share, computed by either with its own keys. A
    member that joins has one with itself, which nobody else knows."""
    seed = hkdf.HKDF(hashes.SHA256(), length=KEY, salt=None, info=pair).derive(own.exchange(other))
    stream = ciphers.Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(4 * size)), "<u4").astype(np.uint32, copy=False)


def hash_vector(values: Vectors) -> bytes:
    """Return the hash of a vector, by which its client signs it."""
    return hashlib.sha256(values.astype("<u4", copy=False).tobytes()).digest()
