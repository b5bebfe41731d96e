"""Who sends a request: a registered key, and its signature over the time.

The superlink checks the same once more. The gate does it first, by Flower's own functions, so that
nothing of a stranger's request is read, kept or passed on but its headers. Which keys are
registered is the superlink's to say; it is asked when a key knocks that was not there before.
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
from .proxy_log import Refused

LIST_NODES = "/v1/control/list-nodes"
PAUSE = 2.0  # seconds before the superlink is asked for its keys again, whoever knocks
GOOD_FOR = 60.0  # seconds after which it is asked anyway


@dataclass
class Registered:
    """The public keys of the nodes that a superlink knows.

    Attributes:
        client: how the superlink is reached
    """

    client: httpx.AsyncClient
    keys: frozenset[bytes] = frozenset()
    asked: float = float("-inf")
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def has(self, key: bytes) -> bool:
        """True for a registered key; asks the superlink where what is known may be out of date."""
        if self._is_due(key):
            async with self.turn:
                if self._is_due(key):  # and nobody has asked meanwhile
                    await self._ask()
        return key in self.keys

    def _is_due(self, key: bytes) -> bool:
        age = asyncio.get_running_loop().time() - self.asked
        return age > (GOOD_FOR if key in self.keys else PAUSE)

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


async def sender(headers: Mapping[str, str], registered: Registered) -> bytes:
    """The registered key that a request was signed by; any other request is refused."""
    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        stated = headers[TIMESTAMP_HEADER]
        age = (now() - datetime.datetime.fromisoformat(stated)).total_seconds()
        signed = stated.encode("ascii")
    except (KeyError, ValueError, TypeError, OverflowError, binascii.Error):
        raise Refused(401, "not signed as a node's requests are") from None
    if not await registered.has(key):
        raise Refused(
            400, "this node's key is not registered; the server's people register it with "
            "`flwr supernode register`",
        )  # fmt: skip
    if not verify_signature(_loaded(key), signed, signature):
        raise Refused(401, "the signature is not of this key")
    check_clock(age)
    return key


def check_clock(age: float) -> None:
    """Refuse a signature that was made too long ago, or is yet to be made.

    Args:
        age: seconds since it was made, by the two machines' clocks
    """
    if age <= -SYSTEM_TIME_TOLERANCE:
        off, allowed = f"{-age:.0f} s fast", SYSTEM_TIME_TOLERANCE
    elif age >= TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
        off, allowed = f"{age:.0f} s slow", TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
    else:
        return
    raise Refused(
        400, f"this node's clock is {off}, and less than {allowed} s is allowed; set it (by NTP)"
    )


@lru_cache(maxsize=2**16)
def _loaded(key: bytes) -> EllipticCurvePublicKey:
    return bytes_to_public_key(key)
