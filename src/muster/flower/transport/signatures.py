"""Authentication of requests: a registered key, and its signature over the time.

The SuperLink checks the same once more. The proxy does it first, with Flower's own functions, so
that nothing but the headers of an unauthenticated request is read, stored or forwarded. The
SuperLink knows which keys are registered; it is asked when a request brings an unknown key.
"""

from __future__ import annotations

import asyncio
import binascii
import datetime
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from ..compat import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    PROTOBUF_MEDIA_TYPE,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    ListNodesRequest,
    ListNodesResponse,
    NodeStatus,
    bytes_to_public_key,
    now,
    verify_signature,
)
from .proxy_log import Refusal

LIST_NODES = "/v1/control/list-nodes"
RETRY_PAUSE = 2.0  # seconds before the SuperLink is asked for its keys again, for an unknown key
CACHE_TIMEOUT = 60.0  # seconds after which it is asked anyway


@dataclass
class RegisteredKeys:
    """The public keys of the nodes that are registered with a SuperLink.

    Attributes:
        client: the HTTP client that reaches the SuperLink
    """

    client: httpx.AsyncClient
    keys: frozenset[bytes] = frozenset()
    asked: float = float("-inf")
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def has(self, key: bytes) -> bool:
        """Return True for a registered key; ask the SuperLink where the cache may be outdated."""
        if self._is_due(key):
            async with self.turn:
                if self._is_due(key):  # and nobody has asked meanwhile
                    await self._ask()
        return key in self.keys

    def _is_due(self, key: bytes) -> bool:
        age = asyncio.get_running_loop().time() - self.asked
        return age > (CACHE_TIMEOUT if key in self.keys else RETRY_PAUSE)

    async def _ask(self) -> None:
        answer = await self.client.post(
            LIST_NODES,
            content=ListNodesRequest().SerializeToString(),
            headers={"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE},
        )
        answer.raise_for_status()
        listed = ListNodesResponse.FromString(answer.content).nodes_info
        self.keys = frozenset(
            node.public_key for node in listed if node.status != NodeStatus.UNREGISTERED
        )
        self.asked = asyncio.get_running_loop().time()


async def authenticate(headers: Mapping[str, str], registered: RegisteredKeys) -> bytes:
    """Return the registered key that signed a request; refuse any other request."""
    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        stated = headers[TIMESTAMP_HEADER]
        age = (now() - datetime.datetime.fromisoformat(stated)).total_seconds()
        signed = stated.encode("ascii")
    except (KeyError, ValueError, TypeError, OverflowError, binascii.Error):
        raise Refusal(401, "not signed as a node's requests are") from None
    if not await registered.has(key):
        raise Refusal(
            400,
            "this node's key is not registered; the server's people register it with "
            "`flwr supernode register`",
        )
    if not verify_signature(_load_key(key), signed, signature):
        raise Refusal(401, "the signature is not of this key")
    check_clock(age)
    return key


def check_clock(age: float) -> None:
    """Refuse a signature that was made too long ago, or in the future.

    Args:
        age: seconds since it was made, by the two machines' clocks
    """
    if age <= -SYSTEM_TIME_TOLERANCE:
        off, allowed = f"{-age:.0f} s fast", SYSTEM_TIME_TOLERANCE
    elif age >= TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
        off, allowed = f"{age:.0f} s slow", TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
    else:
        return
    raise Refusal(
        400, f"this node's clock is {off}, and less than {allowed} s is allowed; set it (by NTP)"
    )


@lru_cache(maxsize=2**16)
def _load_key(key: bytes) -> EllipticCurvePublicKey:
    return bytes_to_public_key(key)
