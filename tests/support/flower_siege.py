"""Strangers at the gate, from several addresses of this machine; it ends by itself.

with Siege(port, ca, seconds=120) as siege: ...
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import Counter
from contextlib import suppress

from flower_signed import Signer

ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
GATE = "127.0.0.1"
BETWEEN = 5.0  # seconds before a connection that was closed is tried again

MALFORMED = [
    b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n"
    b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
    b"POST /v1/fleet/get-run HTTP/1.1\r\nhost: a\r\nflwr-public-key: \xff\r\n\r\n",
    b"\x16\x03\x01nonsense\r\n\r\n",
    b"POST / HTTP/1.1\r\nx: " + b"y" * 40_000,
]


class Siege:
    """Slow requests (250 from each address), malformed ones, and unregistered keys.

    known  a registered key, whose requests are slow too
    """

    def __init__(self, port, ca, seconds, known=None, slow=250):
        self.port, self.seconds, self.known, self.slow = port, seconds, known, slow
        self.trust = ssl.create_default_context(cafile=str(ca))
        self.trust.check_hostname = False
        self.over = threading.Event()
        self.seen: Counter[str] = Counter()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.lay()), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(60)

    async def lay(self):
        tasks = [
            asyncio.create_task(self.keep(self.drip, address, i))
            for i in range(self.slow)
            for address in ADDRESSES
        ]
        tasks += [
            asyncio.create_task(self.keep(self.send, a, i)) for a in ADDRESSES for i in (0, 1)
        ]
        if self.known is not None:
            tasks += [
                asyncio.create_task(self.keep(self.drip_signed, ADDRESSES[0], i)) for i in range(60)
            ]
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds):
                while not self.over.is_set():
                    await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def keep(self, attack, address, i):
        await asyncio.sleep(i * 0.02)
        while True:
            with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
                read, write = await asyncio.open_connection(
                    GATE, self.port, ssl=self.trust, local_addr=(address, 0)
                )
                self.seen["connections"] += 1
                try:
                    await attack(read, write, i)
                finally:
                    write.transport.abort()
            await asyncio.sleep(BETWEEN)

    async def drip(self, read, write, i):
        """A request that says it is large and comes a byte a second; every third not signed, the
        others by keys that are not registered."""
        signed = b"".join(n + b": " + v + b"\r\n" for n, v in Signer().headers()) if i % 3 else b""
        await self._drip(read, write, signed, "refused slow")

    async def drip_signed(self, read, write, i):
        signed = b"".join(n + b": " + v + b"\r\n" for n, v in self.known.headers())
        await self._drip(read, write, signed, "refused known")

    async def _drip(self, read, write, signed, counted):
        head = b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n"
        write.write(head + signed + b"\r\n")
        answer = asyncio.create_task(read.read(20))
        try:
            while not answer.done():
                write.write(b"a")
                await write.drain()
                await asyncio.wait([answer], timeout=1.0)
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
        self.seen[counted if answer.result().startswith(b"HTTP/1.1 40") else "closed"] += 1

    async def send(self, read, write, i):
        """Malformed requests, one after another."""
        write.write(MALFORMED[self.seen["connections"] % len(MALFORMED)])
        await write.drain()
        async with asyncio.timeout(20):
            answer = await read.read(20)
        self.seen["refused malformed" if answer.startswith(b"HTTP/1.1 40") else "closed"] += 1
