"""The wire: what travels between server and client, as Flower records, and how it is read back.

Down goes an offer; up comes a `word` (a few named numbers) and, from a client that trained, its
model. A client that abstains sends its word alone. Nothing is pickled: arrays travel in numpy's
own format, numbers as numbers. Whatever comes up is untrusted: `read_reply` takes any message
apart and says in a few words what is wrong with it, and never raises.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, Message, RecordDict
from numpy.typing import NDArray

from ...base.params import Params, State, reorder
from ...config.network import Precision
from ...protocol import Offer
from ...tasks.scores import Score
from ..compat import SType, get_all_nested_objects, no_object_id_recompute

UNSAID = -1
RAISED, AWAY = 2, 5  # Flower's codes: the client app raised, the node is gone
OFFER, MODEL, WORD = "offer", "model", "word"
NONCE = "nonce"  # what an answer repeats of its question
SERVER, EXTRA = "server.", "extra."  # before the name of a part of the memory
TRIAL = "trial."  # before the number of a model that is tried out
MOST_TRIALS = 64  # models that a client may be asked to try out at once
SPLITS = ("", "test_", "own_", "own_test_")  # before the loss and the scores a client tells
SAID = ("useful", "meets", "meets_test", "preferred", "meets_tuned", "stays")  # what else it tells


def figures_of(scores: tuple[str, ...]) -> tuple[str, ...]:
    """What a client may say of a model, each a number; left out where it has nothing to say. Scores
    go by their names, the one that decides first."""
    told = [f"{split}{name}" for split in SPLITS for name in ("loss", *scores)]
    return (*told, *SAID, f"tuned_{scores[0]}")


PREFIX = {"train": "", "test": "test_"}  # before the names of figures on these rows
SAYS: dict[str, tuple[type, ...]] = {  # keys of a word besides figures, and their types
    "round": (int,),
    "client": (int,),
    "rows": (int,),
    "joined": (bool,),
    "reason": (str,),
    "steps": (int,),
    "claim": (float,),
    "trial": (list,),
}


def halved(t: torch.Tensor) -> torch.Tensor:
    """In half the bytes; what is too large for them (above 65504) as the largest there is."""
    most = torch.finfo(torch.float16).max
    return torch.where(t.isinf(), t, t.clamp(-most, most)).to(torch.float16)


def pack(model: Params, precision: Precision = "exact") -> ArrayRecord:
    """Named arrays, as they are or in half the bytes."""
    half = precision == "float16"
    return ArrayRecord(
        {
            name: Array((halved(t) if half else t).detach().cpu().numpy())
            for name, t in model.items()
        }
    )


def unpack(record: ArrayRecord, dtype: torch.dtype) -> Params:
    """Named arrays in the run's dtype."""
    return {name: torch.from_numpy(decoded(a).copy()).to(dtype) for name, a in record.items()}


def decoded(array: Array) -> NDArray[Any]:
    """An array from its bytes, in numpy's own format: a head that says what follows, and exactly
    that. Nothing is set aside for what the head promises before it is there."""
    if array.stype != SType.NUMPY:
        raise TypeError(f"arrays travel as {SType.NUMPY}")
    head = io.BytesIO(array.data)
    if np.lib.format.read_magic(head) != (1, 0):
        raise ValueError("another version of numpy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(head)
    values = np.frombuffer(array.data, dtype, offset=head.tell())
    return values.reshape(shape, order="F" if fortran else "C")


def as_sent(model: Params, precision: Precision) -> Params:
    """A model as it arrives: what the wire rounds away is gone on both sides."""
    if precision == "exact":
        return model
    return {name: halved(t).to(t.dtype) for name, t in model.items()}


def line(text: str, most: int = 64) -> str:
    """What a client wrote, as part of one line of ours: short, and nothing a terminal acts on."""
    shown = "".join(c if c.isprintable() else " " for c in text[: 2 * most])
    return " ".join(shown.split())[:most]


def size(message: Message, known: dict[str, int] | None = None) -> int:
    """Bytes of a message: every object it is made of, as it is sent (not TLS and HTTP around it).
    Chunks of an array that are equal are one object, and travel once.

    Args:
        known: sizes of objects by their number, for messages that share some
    """
    known = {} if known is None else known
    total = 0
    with no_object_id_recompute():
        for key, part in get_all_nested_objects(message).items():
            if key not in known:
                known[key] = len(part.deflate())
            total += known[key]
    return total


@dataclass(frozen=True)
class Seat:
    """What the server tells one client of itself.

    Attributes:
        client: its number k, by which its randomness is keyed
        steps: how many local steps it is to take; -1: as many as `Local` asks
        counted: the last round (from 1) whose reply of this client was counted; 0: none yet
            (UNSAID: the question does not concern its memory)
    """

    client: int
    priority: bool
    importance: float
    steps: int = -1
    counted: int = 0


@dataclass(frozen=True)
class Packed:
    """The arrays of an offer, packed once for all clients and only when one needs them: the model,
    and the server's memory that clients need (which travels with the request to train only)."""

    offer: Offer
    precision: Precision

    @cached_property
    def model(self) -> ArrayRecord:
        """The model."""
        return pack(self.offer.model, self.precision)

    @cached_property
    def server(self) -> dict[str, ArrayRecord]:
        """The server's memory, by record."""
        return {SERVER + part: pack(m, self.precision) for part, m in self.offer.server.items()}


def write_offer(
    packed: Packed, seat: Seat, experiment: str, carry: bool, fitted: str = ""
) -> RecordDict:
    """An offer to one client. Without `carry` the model stays behind: the client holds it. `fitted`
    is the name of what features are made by."""
    offer = packed.offer
    numbers: dict[str, ConfigRecordValues] = {
        "seed": offer.seed,
        "round": offer.round,
        "rounds": offer.rounds,
        "loss": offer.loss,
        offer.score_name: offer.score,
        "eps": offer.eps,
        "lr": offer.lr,
        "population": offer.population,
        "client": seat.client,
        "priority": seat.priority,
        "importance": seat.importance,
        "steps": seat.steps,
        "counted": seat.counted,
        "precision": packed.precision,
        "experiment": experiment,
        "frozen": offer.frozen,
        "fitted": fitted,
    }
    content: dict[str, Any] = {OFFER: ConfigRecord(numbers), **packed.server}
    if carry:
        content[MODEL] = packed.model
    return RecordDict(content)


def read_offer(
    content: RecordDict, dtype: torch.dtype, held: Params | None, score: Score
) -> tuple[Offer, Seat]:
    """The offer in a message, with the model it carries or the one this client holds. Which
    parameters move by gradient, and what the score is, the client knows itself."""
    said: Mapping[str, Any] = content.config_records[OFFER]
    model = unpack(content.array_records[MODEL], dtype) if MODEL in content else held
    if model is None:
        raise ValueError(f"round {said['round']}: no model came with the offer, and none is held")
    offer = Offer(
        seed=int(said["seed"]),
        round=int(said["round"]),
        rounds=int(said["rounds"]),
        model=model,
        loss=float(said["loss"]),
        score=float(said[score.name]),
        eps=float(said["eps"]),
        lr=float(said["lr"]),
        population=int(said["population"]),
        server=parts(content, SERVER, dtype),
        score_name=score.name,
        higher=score.higher,
        frozen=str(said["frozen"]),
    )
    seat = Seat(
        int(said["client"]),
        bool(said["priority"]),
        float(said["importance"]),
        int(said["steps"]),
        int(said["counted"]),
    )
    return offer, seat


def parts(content: RecordDict, prefix: str, dtype: torch.dtype) -> State:
    """The parts of a memory among the records."""
    return {
        key.removeprefix(prefix): unpack(record, dtype)
        for key, record in content.array_records.items()
        if key.startswith(prefix)
    }


def write_reply(
    word: Mapping[str, Any],
    precision: Precision,
    model: Params | None = None,
    extra: State | None = None,
) -> RecordDict:
    """A client's reply; with no model, its word alone."""
    content: dict[str, Any] = {WORD: ConfigRecord(dict(word))}
    if model is not None:
        content[MODEL] = pack(model, precision)
        for part, memory in (extra or {}).items():
            content[EXTRA + part] = pack(memory, precision)
    return RecordDict(content)


@dataclass(frozen=True)
class Expected:
    """What a sound reply to one request looks like.

    Attributes:
        rows: the client's sample count, as it gave it when it joined the federation
        shapes: of the model's arrays; None: the request was to measure, not to train
        extra: of the arrays the solver sends beside it, by part
        steps: the most it may have taken

    figures what it may say of the model
    """

    round: int
    client: int
    rows: int
    dtype: torch.dtype
    precision: Precision = "exact"
    shapes: dict[str, tuple[int, ...]] | None = None
    extra: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    steps: int = 0
    figures: tuple[str, ...] = figures_of(("accuracy",))

    @property
    def travels(self) -> str:
        """The dtype in which weights travel."""
        half = self.precision == "float16"
        return "float16" if half else str(self.dtype).removeprefix("torch.")

    @property
    def width(self) -> int:
        """Bytes of one number."""
        return np.dtype(self.travels).itemsize


@dataclass(frozen=True)
class Reply:
    """What one client answered.

    Attributes:
        failed: why there is no answer ("" when there is one)
        wrong: what is wrong with the answer ("" when nothing is)
    """

    word: dict[str, Any] = field(default_factory=dict)
    model: Params | None = None
    extra: State = field(default_factory=dict)
    failed: str = ""
    wrong: str = ""

    @property
    def why(self) -> str:
        """Why there is nothing to go by ("" when there is)."""
        return self.failed or self.wrong

    def figure(self, name: str) -> float:
        """One of the numbers in its word; NaN when it did not say."""
        return float(self.word.get(name, math.nan))


def read_reply(message: Message, expected: Expected) -> Reply:
    """A reply, or what is wrong with it. Never raises, whatever was sent."""
    if message.has_error():
        code = message.error.code
        why = {RAISED: "the client raised an error", AWAY: "the node went away"}.get(
            code, "no answer"
        )
        return Reply(failed=f"failed: {why} (code {code})")
    try:
        return _read(message.content, expected)
    except Exception as error:
        return Reply(wrong=f"malformed: {type(error).__name__}")


def _read(content: RecordDict, expected: Expected) -> Reply:
    known = {WORD, MODEL, *(EXTRA + part for part in expected.extra)}
    strange = sorted(set(content) - known)
    if strange:
        return Reply(wrong=f"malformed: unknown record '{line(strange[0], 40)}'")
    if WORD not in content.config_records:
        return Reply(wrong="malformed: no word")
    word = dict(content.config_records[WORD])
    wrong = _wrong_word(word, expected)
    if wrong:
        return Reply(wrong=wrong)
    if expected.shapes is None:
        return Reply(word)
    carries = sorted(content.array_records)
    if "joined" not in word:
        return Reply(word, wrong="malformed: neither joined nor abstained")
    if not word["joined"]:
        return Reply(word, wrong="malformed: abstained, with arrays" if carries else "")
    wanted = {MODEL: expected.shapes, **{EXTRA + p: s for p, s in expected.extra.items()}}
    for key, shapes in wanted.items():
        if key not in content.array_records:
            return Reply(word, wrong=f"malformed: no {key}")
        wrong = _wrong_arrays(content.array_records[key], shapes, expected)
        if wrong:
            return Reply(word, wrong=wrong)
    model = reorder(unpack(content.array_records[MODEL], expected.dtype), expected.shapes)
    extra = parts(content, EXTRA, expected.dtype)
    return Reply(word, model, {p: reorder(extra[p], s) for p, s in expected.extra.items()})


def _wrong_word(word: dict[str, Any], expected: Expected) -> str:
    for key, value in word.items():
        kinds = (float,) if key in expected.figures else SAYS.get(key)
        if kinds is None:
            return f"malformed: unknown key '{line(key, 40)}'"
        if type(value) not in kinds:
            return f"malformed: {key} is no {kinds[0].__name__}"
    told = word.get("trial", [])
    if len(told) > MOST_TRIALS or any(type(value) is not float for value in told):
        return "malformed: trial is no list of floats"
    if word.get("round") != expected.round:
        return f"answers round {word.get('round')}, not {expected.round}"
    if word.get("client") != expected.client:
        return "answers for another client"
    if word.get("rows") != expected.rows:
        return "impossible sample count"
    if not 0 <= word.get("steps", 0) <= expected.steps:
        return "impossible number of steps"
    return ""


def _wrong_arrays(
    record: ArrayRecord, shapes: dict[str, tuple[int, ...]], expected: Expected
) -> str:
    dtype = expected.travels
    if set(record) != set(shapes):
        return "malformed: names of arrays"
    for name, array in record.items():
        # What it says it is, before a byte is read; then what it is.
        if tuple(array.shape) != shapes[name] or decoded(array).shape != shapes[name]:
            return "malformed: shapes of arrays"
        if array.dtype != dtype or str(decoded(array).dtype) != dtype:
            return "malformed: dtype of arrays"
    return ""
