"""The gate and broken requests: no bytes end in an error that nobody caught, or in a long log."""

from __future__ import annotations

import asyncio
import random
import re

import httpx
import pytest
from uvicorn.server import ServerState

from flower_signed import Signer, Superlink
from muster.flower.transport import proxy_access
from muster.flower.transport.proxy import ALLOWED, IdleTimeoutProtocol, Log, Proxy, build_config

NODE, STRANGER = Signer(), Signer()
PATH = "/v1/fleet/push-object"


def request(*more, signer=NODE, path=PATH, body=b"", method="POST"):
    """A request as bytes, signed."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"host: gate"]
    lines += [name + b": " + value for name, value in signer.headers()]
    return b"\r\n".join([*lines, *more, b"", b""]) + body


class Line(asyncio.Transport):
    """A connection that remembers what was answered."""

    def __init__(self):
        super().__init__()
        self.answer, self.closed = b"", False

    def get_extra_info(self, name, default=None):
        places = {"peername": ("203.0.113.9", 1), "sockname": ("127.0.0.1", 2)}
        return places.get(name, default)

    def write(self, data):
        assert not self.closed or not data
        self.answer += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    abort = close

    def pause_reading(self):
        pass

    resume_reading = pause_reading


class Wire:
    """A gate in front of a superlink, and connections to it without a network."""

    def __init__(self):
        self.superlink, self.said, self.uncaught = Superlink([NODE.key]), [], []
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.superlink), base_url="https://inside"
        )
        self.config = build_config(Proxy("inside", client, Log(self.said.append)))
        self.config.load()
        self.state = ServerState()

    async def send(self, *parts):
        """What is answered to bytes that come in these parts, before the caller hangs up."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.uncaught.append(context))
        line = Line()
        protocol = IdleTimeoutProtocol(self.config, self.state, {}, loop)
        protocol.connection_made(line)
        for part in parts:
            if not line.closed:
                protocol.data_received(part)
            await asyncio.sleep(0)
        for _ in range(40):
            await asyncio.sleep(0)
        protocol.eof_received()
        protocol.connection_lost(None)
        while self.state.tasks:
            await asyncio.wait(self.state.tasks)
        return line.answer


@pytest.fixture
def wire(monkeypatch):
    monkeypatch.setattr(proxy_access, "LINES_A_MINUTE", 10**9)  # every line is looked at
    return Wire()


def status(answer):
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(found[1]) if found else None


MALFORMED = {  # built when a test runs: requests are signed with the time

    "both lengths": lambda: (
        request(b"content-length: 4", b"transfer-encoding: chunked", body=b"1\r\na\r\n0\r\n\r\n"),
        400,
    ),
    "two lengths": lambda: (
        request(b"content-length: 4", b"content-length: 5", body=b"aaaaa"),
        400,
    ),
    "the same length twice": lambda: (
        request(b"content-length: 4", b"content-length: 4", body=b"aaaa"),
        200,
    ),
    "a list of lengths": lambda: (request(b"content-length: 4, 5", body=b"aaaaa"), 400),
    "a negative length": lambda: (request(b"content-length: -4"), 400),
    "a length of digits without end": lambda: (request(b"content-length: " + b"9" * 5000), 400),
    "a large length": lambda: (request(b"content-length: 99999999999"), 413),
    "an unknown encoding": lambda: (request(b"transfer-encoding: gzip"), 400),
    "chunked twice": lambda: (
        request(b"transfer-encoding: chunked", b"transfer-encoding: chunked"),
        400,
    ),
    "a chunk of no size": lambda: (request(b"transfer-encoding: chunked", body=b"zz\r\n"), 400),
    "a chunk of a size without end": lambda: (
        request(b"transfer-encoding: chunked", body=b"f" * 30 + b"\r\n"),
        400,
    ),
    "a signature twice": lambda: (request(NODE.headers()[2][0] + b": x"), 400),
    "a websocket": lambda: (request(b"connection: upgrade", b"upgrade: websocket"), None),
    "headers without end": lambda: (b"POST / HTTP/1.1\r\nx: " + b"y" * 40_000, 400),
    "no host": lambda: (b"POST / HTTP/1.1\r\n\r\n", 400),
    "another protocol": lambda: (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403),
    "TLS in TLS": lambda: (b"\x16\x03\x01\x02\x00\x01", 400),
    "a folded header": lambda: (request(b"x: a", b" b"), None),
    "a header without a name": lambda: (request(b": a"), 400),
    "a zero byte": lambda: (request(b"x: \0"), 400),
    "letters that are none": lambda: (request(b"flwr-more: \xff\xfe"), 400),
    "a time that is none": lambda: (request(signer=type("T", (), {"headers": lambda self: [
        (b"flwr-public-key", b"AAAA"), (b"flwr-signature", b"AAAA"), (b"flwr-timestamp", b"9" * 99)
    ]})()), 401),
    "a key that is not registered": lambda: (request(signer=STRANGER), 400),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_requests_are_refused_in_a_line(wire, case):
    bytes_, expected = MALFORMED[case]()
    answer = asyncio.run(wire.send(bytes_))
    assert wire.uncaught == []
    assert not any("Traceback" in text or "failed" in text for text in wire.said), wire.said
    assert sum(len(text) for text in wire.said) <= 2 * proxy_access.LONGEST_LINE
    if expected is not None:
        assert status(answer) == expected, (answer, wire.said)


def test_a_sound_request_is_not_malformed(wire):
    for body in (
        request(b"content-length: 4", body=b"aaaa"),
        request(b"transfer-encoding: chunked", body=b"4\r\naaaa\r\n0\r\n\r\n"),
    ):
        assert status(asyncio.run(wire.send(body))) == 200
        assert wire.superlink.asked.pop()[3] == b"aaaa"
    assert wire.said == []


SPICE = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"\xff", b"\r\n\r\n", b"%2e%2e/", b"?", b"0",
    b"content-length: 5\r\n", b"content-length: 00\r\n", b"content-length: 1e3\r\n",
    b"transfer-encoding: chunked\r\n", b"transfer-encoding: identity\r\n",
    b"expect: 100-continue\r\n",
    b"connection: close\r\n", b"connection: upgrade\r\nupgrade: h2c\r\n", b"te: trailers\r\n",
    b"host: b\r\n", b"flwr-timestamp: 2020-01-01\r\n", b"flwr-public-key: \xc3\x28\r\n",
    b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"ffffffffffffffff\r\n", b"0\r\n\r\n",
]  # fmt: skip


def mutants(seed, number):
    """Requests that were sound, changed here and there, in parts as they come."""
    draw = random.Random(seed)
    sound = [
        request(b"content-length: 4", body=b"aaaa"),
        request(b"transfer-encoding: chunked", body=b"4\r\naaaa\r\n0\r\n\r\n"),
        request(b"content-length: 0") + request(b"content-length: 1", body=b"b"),
        request(signer=STRANGER, path="/v1/control/start-run"),
        *(request(path=path) for path in ALLOWED),
    ]
    for _ in range(number):
        text = bytearray(draw.choice(sound))
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(text) + 1)
            match draw.randrange(5):
                case 0:
                    text[at:at] = draw.choice(SPICE)
                case 1:
                    del text[at : at + draw.randint(1, 20)]
                case 2 if at < len(text):
                    text[at] ^= 1 << draw.randrange(8)
                case 3:
                    text[at:at] = text[at : at + draw.randint(1, 200)]
                case _:
                    text[at:at] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 8)))
        cuts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randint(0, 3)))
        yield [
            bytes(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b
        ]


def survive(wire, seed, number):
    async def all_of_them():
        for parts in mutants(seed, number):
            before = len(wire.said)
            answer = await wire.send(*parts)
            assert wire.uncaught == [], parts
            assert b"HTTP/1.1 500" not in answer, (parts, wire.said)
            said = wire.said[before:]
            assert not any("failed" in text or "ASGI" in text for text in said), (parts, said)
            assert sum(len(text) for text in said) <= 4 * proxy_access.LONGEST_LINE, (parts, said)
        return status(await wire.send(request(b"content-length: 4", body=b"aaaa")))

    assert asyncio.run(all_of_them()) == 200
    assert {path for _, path, _, _ in wire.superlink.asked} <= set(ALLOWED)
    assert all(method == "POST" for method, *_ in wire.superlink.asked)


def test_broken_requests_end_in_no_error(wire):
    survive(wire, seed=0, number=400)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 5))
def test_thousands_of_broken_requests_end_in_no_error(wire, seed):
    survive(wire, seed, number=5_000)
