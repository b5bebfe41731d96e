"""Mutation: small changes to tables, bytes and files, drawn from a number so that each can be had
again; and what a command makes of them. `mutants` has the cases.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import random
import resource
import signal
import traceback
import warnings
from copy import deepcopy
from pathlib import Path

from muster.base.errors import UNSEEN

SECONDS = 20  # that a case may take; what takes longer hangs
MEMORY = 6 * 2**30  # bytes that a case may take beyond what the process has

NUMBERS = [
    0, 1, -1, 2, 3, 7, 1000, 10**6, 10**9, 10**12, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 0.0,
    -0.0, 0.5, 1.0, -1.5, 1e-300, 1e300, float("nan"), float("inf"), float("-inf"),
]  # fmt: skip
MILD = [0, 1, 2, 3, 4, 5, 10, 100, 0.0, 0.1, 0.25, 0.5, 0.9, 1.0, 1.5, 3.0, -0.5]
TEXTS = [
    "", " ", "x", "nan", "0", "-1", "true", "a/b", "../x", "..", ".", "/dev/zero", "Zürich", "東京",
    "\x1b[2J\x1b]0;x\x07", "a\nb", "a\rb", "\u202eabc", "\0", "x" * 3000, "[red]", "{}", "%s",
    "$x$", "9" * 5000, "fedavg", "label", "all", "none", "mean", "loss",
]  # fmt: skip
OTHERS = [
    True, False, [], [1], [0, 0], ["a"], ["a", 1], [[]], [[1, 2], [3]], {}, {"kind": "x"}, [{}],
    {"name": "x"}, {"kind": "constant"}, {"a": {"b": {"c": 1}}}, [float("nan")], [10**12] * 3,
    datetime.date(2020, 1, 1), datetime.time(1, 2), datetime.datetime(2020, 1, 1, 1, 1),
]  # fmt: skip


def draw_of(kind, number):
    """The draws of a case."""
    return random.Random(f"{kind} {number}")


def value(draw):
    """Any value that a table may hold."""
    return deepcopy(draw.choice(draw.choice([NUMBERS, TEXTS, OTHERS])))


def places(table, before=()):
    """Every place in a table, also within lists."""
    items = table.items() if isinstance(table, dict) else enumerate(table)
    for key, inner in items:
        yield (*before, key)
        if isinstance(inner, (dict, list)):
            yield from places(inner, (*before, key))


def changed_table(table, draw, most=3):
    """A table with some of its values removed, doubled, exchanged or replaced."""
    table = deepcopy(table)
    for _ in range(draw.choice([1, 1, most])):
        every = list(places(table))
        if not every:
            return table
        *way, last = draw.choice(every)
        inside = table
        for key in way:
            inside = inside[key]
        how = draw.random()
        if how < 0.15:
            del inside[last]
        elif how < 0.25 and isinstance(inside, list):
            inside.append(deepcopy(inside[last]))
        elif how < 0.3 and isinstance(inside, dict):
            inside[draw.choice(TEXTS)] = value(draw)
        elif how < 0.4 and isinstance(inside[last], (int, float)):
            inside[last] = draw.choice([inside[last] * 2, -inside[last], str(inside[last])])
        elif how < 0.45 and isinstance(inside[last], str):
            inside[last] += draw.choice(TEXTS)
        elif how < 0.5:
            inside[last] = nested(draw.choice([3, 50]), draw)
        elif how < 0.8 and isinstance(inside[last], (bool, int, float)):
            inside[last] = not inside[last] if inside[last] in (True, False) else draw.choice(MILD)
        else:
            inside[last] = value(draw)
    return table


def nested(deep, draw):
    """Lists or tables within each other."""
    found = 1
    for _ in range(deep):
        found = [found] if draw.random() < 0.8 else {"a": found}
    return found


def changed_bytes(raw, draw):
    """Bytes with some of them changed, cut off, doubled or put elsewhere."""
    raw = bytearray(raw)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(raw) + 1)
        to = min(len(raw), at + draw.choice([1, 2, 8, 64]))
        how = draw.randrange(7)
        if how == 0 and raw:
            raw[min(at, len(raw) - 1)] ^= 1 << draw.randrange(8)
        elif how == 1:
            raw[at:to] = bytes(draw.randrange(256) for _ in range(to - at))
        elif how == 2:
            del raw[at:]
        elif how == 3:
            del raw[at:to]
        elif how == 4:
            raw[at:at] = raw[at:to] * draw.choice([1, 3, 100])
        elif how == 5:
            raw[at:to] = draw.choice([b"\xff", b"\0", b"\x7f"]) * (to - at)
        else:
            more = [*TEXTS, "[" * 5000, '{"a":' * 5000, "a." * 5000]
            raw[at:at] = draw.choice(more).encode("utf-8", "surrogatepass")
    return bytes(raw)


class TooLongError(BaseException):
    """A case that does not come to an end."""


@contextlib.contextmanager
def bounded(seconds=SECONDS, memory=MEMORY):
    """Within these bounds."""

    def stop(number, frame):
        raise TooLongError(f"more than {seconds} s")

    def used():
        words = Path("/proc/self/status").read_text().split()
        return 1024 * int(words[words.index("VmData:") + 1])

    before, usual = signal.signal(signal.SIGALRM, stop), resource.getrlimit(resource.RLIMIT_DATA)
    signal.alarm(seconds)
    resource.setrlimit(resource.RLIMIT_DATA, (used() + memory, usual[1]))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_DATA, usual)


def finding(call, seconds=SECONDS):
    """What is wrong with how a command ends: neither done, nor one line that says why. "" when
    nothing is."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            bounded(seconds), warnings.catch_warnings(),
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            code = call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)
        ours = [f for f in last if "/muster/" in f.filename] or last
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        return f"{where}: {type(error).__name__}: {str(error)[:200]}"
    said = err.getvalue()
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if code == 2 and not (said.startswith("muster: ") and said.count("\n") == 1):
        return f"not one line: {said[:300]!r}"
    if odd := UNSEEN.search(said + out.getvalue()):
        return f"{odd[0]!r} reaches the terminal"
    return ""
