"""Keys and masks against the RFCs written out in Python, and the look of what a server receives."""

from __future__ import annotations

import hashlib
import hmac
import struct

import numpy as np
import pytest
from scipy import stats

from muster.base.errors import MusterError
from muster.privacy.masks import Attempt, PublicSumKey, SumKey, bind_pair, derive_mask, hash_vector

PRIME = 2**255 - 19
BASE = (9).to_bytes(32, "little")


def x25519(secret: bytes, point: bytes) -> bytes:
    """RFC 7748, section 5: the ladder on curve25519."""
    k = int.from_bytes(secret, "little") & ~7 & ~(1 << 255) | 1 << 254
    u = int.from_bytes(point, "little") & (1 << 255) - 1
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a, c * b, a * a, b * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % PRIME, u * (da - cb) ** 2 % PRIME
        x2, z2 = aa * bb % PRIME, e * (aa + 121665 * e) % PRIME
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, 32 bytes."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\1", "sha256")


def chacha20(key: bytes, size: int) -> bytes:
    """RFC 8439, section 2.4: the stream from counter 0 with nonce 0."""

    def quarter(s, a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = s[x] + s[y] & 0xFFFFFFFF
            s[z] ^= s[x]
            s[z] = (s[z] << turn | s[z] >> 32 - turn) & 0xFFFFFFFF

    out = b""
    for counter in range(-(-size // 64)):
        start = [*struct.unpack("<4I8I", b"expand 32-byte k" + key), counter, 0, 0, 0]
        s = list(start)
        for _ in range(10):
            for i in range(4):
                quarter(s, i, 4 + i, 8 + i, 12 + i)
            for i in range(4):
                quarter(s, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        out += struct.pack("<16I", *(x + y & 0xFFFFFFFF for x, y in zip(s, start, strict=True)))
    return out[:size]


def key(number: int) -> SumKey:
    return SumKey(*(hashlib.sha256(f"{number} {half}".encode()).digest() for half in "sa"))


def attempt(run=b"r" * 32, round=3, number=7, offer=b"o" * 32) -> Attempt:
    return Attempt(run, round, number, offer)


def test_our_own_primitives_are_those_of_the_rfcs():
    # RFC 7748, 5.2 (first vector); RFC 8439, A.1 (first two blocks).
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    assert x25519(scalar, point).hex().startswith("c3da55379de9c6908e94ea4df28d084f32eccf03491c")
    assert chacha20(bytes(32), 128).hex().startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a0")
    assert chacha20(bytes(32), 128)[64:].hex().startswith("9f07e7be5551387a98ba977c732d080dcb0f29")


def test_a_mask_is_that_of_the_rfcs_composed_by_hand():
    one, other, nonce = key(1), key(2), b"n" * 32
    assert one.public.agree == x25519(one.agree, BASE)
    context = b"muster mask 1" + b"r" * 32 + struct.pack(">QQ", 3, 7) + b"o" * 32 + nonce
    info = context + x25519(one.agree, BASE) + x25519(other.agree, BASE)
    seed = hkdf(x25519(one.agree, x25519(other.agree, BASE)), info)
    by_hand = np.frombuffer(chacha20(seed, 400), "<u4")
    pair = bind_pair(attempt(), nonce, one.public, other.public)
    assert np.array_equal(derive_mask(one, other.public, pair, 100), by_hand)
    assert np.array_equal(derive_mask(other, one.public, pair, 100), by_hand)


def test_everything_a_mask_is_bound_to_changes_it():
    one, other = key(1), key(2)

    def first(at, nonce=b"n" * 32, joiner=one, member=other):
        pair = bind_pair(at, nonce, joiner.public, member.public)
        return derive_mask(one, other.public, pair, 4).tobytes()

    changed = [
        first(attempt()),
        first(attempt(run=b"s" * 32)),
        first(attempt(round=4)),
        first(attempt(number=8)),
        first(attempt(offer=b"p" * 32)),
        first(attempt(), b"m" * 32),
        first(attempt(), joiner=other, member=one),
    ]
    assert len(set(changed)) == len(changed)


def test_a_masked_vector_looks_uniform():
    """Zeros, small numbers and the same numbers twice: bytes, bits and pairs are those of noise."""
    one, other, size = key(1), key(2), 200_000
    streams = []
    for number in (1, 2):
        pair = bind_pair(attempt(number=number), b"n" * 32, one.public, other.public)
        streams.append(np.full(size, 5, np.uint32) + derive_mask(one, other.public, pair, size))
    for y in streams:
        counts = np.bincount(y.view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-3
        assert stats.kstest(y / 2.0**32, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(y[:-1], y[1:])[0, 1]) < 4 / np.sqrt(size)
    assert stats.kstest((streams[0] - streams[1]) / 2.0**32, "uniform").pvalue > 1e-3
    assert stats.chisquare(np.bincount(np.full(4 * size, 5), minlength=256)).pvalue < 1e-9


def test_keys_travel_as_a_line_of_text():
    own = SumKey.generate()
    assert SumKey.from_text(own.to_text() + " clinic\n", "key") == own
    assert PublicSumKey.from_text(own.public.to_text(), "key") == own.public
    assert own.to_text().split()[1] not in repr(own)
    assert SumKey.generate() != own


@pytest.mark.parametrize(
    "text",
    ["", "muster-sum-1", "muster-sum-1 !!", "muster-sum-1 AAAA", "other AAAA", "x" * 10**6,
     "muster-sum-1 " + "A" * 86 + "\xe9", "ssh-ed25519 " + "A" * 86 + "=="],
)  # fmt: skip
def test_what_is_no_key_is_refused_in_one_line(text):
    with pytest.raises(MusterError, match=r"^clients.a.sum_key: not a line 'muster-sum-1 ...'"):
        PublicSumKey.from_text(text, "clients.a.sum_key")


def test_a_point_of_small_order_is_refused():
    weak = PublicSumKey(bytes(32), bytes(32))
    with pytest.raises(MusterError, match="no secret can be shared with it"):
        key(1).exchange(weak)


def test_signatures_are_of_the_content_and_the_key():
    own, other = key(1), key(2)
    signature = own.make_signature(b"content")
    assert own.public.verify(signature, b"content")
    assert not own.public.verify(signature, b"another")
    assert not other.public.verify(signature, b"content")
    assert not own.public.verify(b"short", b"content")
    assert not PublicSumKey(b"\xff" * 32, bytes(32)).verify(signature, b"content")


def test_the_hash_of_a_vector_is_that_of_its_bytes():
    assert (
        hash_vector(np.array([1, 256], np.uint32)) == hashlib.sha256(b"\1\0\0\0\0\1\0\0").digest()
    )
