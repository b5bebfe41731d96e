"""The messages between server and client, as Flower records, and how they are read back.

The server sends an offer; a client replies with a report (a few named numbers) and, if it trained,
its model. A client that abstains sends its report alone. Nothing is pickled: arrays travel in
numpy's own format, numbers as numbers. Replies are untrusted: `read_reply` accepts any message,
returns in a few words what is wrong with it, and never raises.
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

UNSTATED = -1
APP_RAISED, NODE_UNAVAILABLE = 2, 5  # error codes of Flower
OFFER, MODEL, REPORT = "offer", "model", "word"  # names of records
NONCE = "nonce"  # which a reply repeats from its request
SERVER, EXTRA = "server.", "extra."  # before the name of a part of the memory
TRIAL = "trial."  # before the number of a model that is tried out
MAX_TRIALS = 64  # models in one trial
SPLITS = ("", "test_", "own_", "own_test_")  # before the loss and the scores
# Figures that are neither a loss nor a score.
EXTRA_FIGURES = ("useful", "meets", "meets_test", "preferred", "meets_tuned", "stays")


def figure_names(scores: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the numbers that a client may report of a model, given the names of its
    scores, the deciding one first."""
    measured = [f"{split}{name}" for split in SPLITS for name in ("loss", *scores)]
    return (*measured, *EXTRA_FIGURES, f"tuned_{scores[0]}")


PREFIX = {"train": "", "test": "test_"}  # before the names of figures on these rows
REPORT_TYPES: dict[str, tuple[type, ...]] = {  # keys of a report besides figures
    "round": (int,),
    "client": (int,),
    "rows": (int,),
    "joined": (bool,),
    "reason": (str,),
    "steps": (int,),
    "claim": (float,),
    "trial": (list,),
    "mask_nonce": (bytes,),
    "signature": (bytes,),
}
OFFER_TYPES: dict[str, type] = {  # fields of an offer that travel as they are
    **dict.fromkeys(("seed", "round", "rounds", "population"), int),
    **dict.fromkeys(("loss", "eps", "lr"), float),
    "frozen": str,
}
ROLE_TYPES: dict[str, type] = {  # and all of a role
    **dict.fromkeys(("client", "steps", "counted"), int),
    "priority": bool,
    **dict.fromkeys(("importance", "share"), float),
}


def to_half(t: torch.Tensor) -> torch.Tensor:
    """Return a tensor as float16; finite values above 65504 become the largest there is."""
    most = torch.finfo(torch.float16).max
    return torch.where(t.isinf(), t, t.clamp(-most, most)).to(torch.float16)


def pack(model: Params, precision: Precision = "exact") -> ArrayRecord:
    """Pack named tensors as arrays, exactly or as float16."""
    half = precision == "float16"
    return ArrayRecord(
        {
            name: Array((to_half(t) if half else t).detach().cpu().numpy())
            for name, t in model.items()
        }
    )


def unpack(record: ArrayRecord, dtype: torch.dtype) -> Params:
    """Unpack named arrays as tensors of the run's dtype."""
    return {name: torch.from_numpy(decode(a).copy()).to(dtype) for name, a in record.items()}


def decode(array: Array) -> NDArray[Any]:
    """Return an array from its bytes, in numpy's own format: a head and exactly what it describes.
    No memory is allocated for a head whose values are missing."""
    if array.stype != SType.NUMPY:
        raise TypeError(f"arrays travel as {SType.NUMPY}")
    head = io.BytesIO(array.data)
    if np.lib.format.read_magic(head) != (1, 0):
        raise ValueError("another version of numpy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(head)
    values = np.frombuffer(array.data, dtype, offset=head.tell())
    return values.reshape(shape, order="F" if fortran else "C")


def apply_precision(model: Params, precision: Precision) -> Params:
    """Return a model as it arrives: rounded as in transport, the same way on both sides."""
    if precision == "exact":
        return model
    return {name: to_half(t).to(t.dtype) for name, t in model.items()}


def clean_line(text: str, most: int = 64) -> str:
    """Return a client's text as part of a line: short, and without control characters."""
    shown = "".join(c if c.isprintable() else " " for c in text[: 2 * most])
    return " ".join(shown.split())[:most]


def message_size(message: Message, known: dict[str, int] | None = None) -> int:
    """Return the bytes of a message: of every object in it, as it is sent (without TLS and HTTP).
    Equal chunks of an array are one object, and travel once.

    Args:
        known: sizes of objects by their id, for messages that share some
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
class ClientRole:
    """The role that the server gives one client in a request.

    Attributes:
        client: its number k, by which its randomness is keyed
        steps: local steps to take; -1: as many as `Local` asks
        counted: the last round (from 1) whose reply of this client was counted; 0: none yet;
            UNSTATED: the request does not concern its memory
        share: a_k, by which it counts in a private sum
    """

    client: int
    priority: bool
    importance: float
    steps: int = -1
    counted: int = 0
    share: float = 1.0


@dataclass(frozen=True)
class PackedOffer:
    """The arrays of an offer, packed once for all clients and only when one needs them: the model,
    and the server's state that clients need (which travels with the request to train only)."""

    offer: Offer
    precision: Precision

    @cached_property
    def model(self) -> ArrayRecord:
        """The model."""
        return pack(self.offer.model, self.precision)

    @cached_property
    def server(self) -> dict[str, ArrayRecord]:
        """The server's state, by record."""
        return {SERVER + part: pack(m, self.precision) for part, m in self.offer.server.items()}


def write_offer(
    packed: PackedOffer, role: ClientRole, experiment: str, carry: bool, transform: str = ""
) -> RecordDict:
    """Write an offer to one client.

    Args:
        carry: True to send the model along; False: the client holds it
        transform: the hash of the scaler and encoder of features
    """
    offer = packed.offer
    values: dict[str, ConfigRecordValues] = {
        **{name: getattr(offer, name) for name in OFFER_TYPES},
        **{name: getattr(role, name) for name in ROLE_TYPES},
        offer.score_name: offer.score,
        "precision": packed.precision,
        "experiment": experiment,
        "fitted": transform,
    }
    content: dict[str, Any] = {OFFER: ConfigRecord(values), **packed.server}
    if carry:
        content[MODEL] = packed.model
    return RecordDict(content)


def read_offer(
    content: RecordDict, dtype: torch.dtype, held: Params | None, score: Score
) -> tuple[Offer, ClientRole]:
    """Read the offer in a message, with the model it carries or the one this client holds. The
    client knows itself which parameters are trainable, and what the score is."""
    record: Mapping[str, Any] = content.config_records[OFFER]
    model = unpack(content.array_records[MODEL], dtype) if MODEL in content else held
    if model is None:
        raise ValueError(f"round {record['round']}: no model came with the offer, and none is held")
    offer = Offer(
        **{name: kind(record[name]) for name, kind in OFFER_TYPES.items()},
        model=model,
        score=float(record[score.name]),
        server=read_parts(content, SERVER, dtype),
        score_name=score.name,
        higher=score.higher,
    )
    role = ClientRole(**{name: kind(record[name]) for name, kind in ROLE_TYPES.items()})
    return offer, role


def read_parts(content: RecordDict, prefix: str, dtype: torch.dtype) -> State:
    """Read the parts of a state among the records."""
    return {
        key.removeprefix(prefix): unpack(record, dtype)
        for key, record in content.array_records.items()
        if key.startswith(prefix)
    }


def write_reply(
    report: Mapping[str, Any],
    precision: Precision,
    model: Params | None = None,
    extra: State | None = None,
) -> RecordDict:
    """Write a client's reply; without a model, its report alone."""
    content: dict[str, Any] = {REPORT: ConfigRecord(dict(report))}
    if model is not None:
        content[MODEL] = pack(model, precision)
        for part, memory in (extra or {}).items():
            content[EXTRA + part] = pack(memory, precision)
    return RecordDict(content)


@dataclass(frozen=True)
class ExpectedReply:
    """The properties of a sound reply to one request.

    Attributes:
        rows: the client's sample count, as it stated it at enrolment
        shapes: of the model's arrays; None: the request was to measure, not to train
        extra: of the arrays the solver sends beside it, by part
        steps: the most it may have taken
        figures: names of the numbers it may report of the model
    """

    round: int
    client: int
    rows: int
    dtype: torch.dtype
    precision: Precision = "exact"
    shapes: dict[str, tuple[int, ...]] | None = None
    extra: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    steps: int = 0
    figures: tuple[str, ...] = figure_names(("accuracy",))

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
    """The reply of one client.

    Attributes:
        failed: why there is no reply ("" when there is one)
        wrong: what is wrong with the reply ("" when nothing is)
    """

    report: dict[str, Any] = field(default_factory=dict)
    model: Params | None = None
    extra: State = field(default_factory=dict)
    failed: str = ""
    wrong: str = ""

    @property
    def why(self) -> str:
        """The reason why the reply does not count ("" when it does)."""
        return self.failed or self.wrong

    def figure(self, name: str) -> float:
        """Return one of the numbers in its report; NaN when it is missing."""
        return float(self.report.get(name, math.nan))


def read_reply(message: Message, expected: ExpectedReply) -> Reply:
    """Read a reply, or what is wrong with it. Never raises, whatever was sent."""
    if message.has_error():
        code = message.error.code
        why = {
            APP_RAISED: "the client raised an error",
            NODE_UNAVAILABLE: "the node went away",
        }.get(code, "no answer")
        return Reply(failed=f"failed: {why} (code {code})")
    try:
        return _read(message.content, expected)
    except Exception as error:
        return Reply(wrong=f"malformed: {type(error).__name__}")


def _read(content: RecordDict, expected: ExpectedReply) -> Reply:
    known = {REPORT, MODEL, *(EXTRA + part for part in expected.extra)}
    unknown = sorted(set(content) - known)
    if unknown:
        return Reply(wrong=f"malformed: unknown record '{clean_line(unknown[0], 40)}'")
    if REPORT not in content.config_records:
        return Reply(wrong="malformed: no report")
    report = dict(content.config_records[REPORT])
    wrong = _check_report(report, expected)
    if wrong:
        return Reply(wrong=wrong)
    if expected.shapes is None:
        return Reply(report)
    arrays = sorted(content.array_records)
    if "joined" not in report:
        return Reply(report, wrong="malformed: neither joined nor abstained")
    if not report["joined"]:
        return Reply(report, wrong="malformed: abstained, with arrays" if arrays else "")
    wanted = {MODEL: expected.shapes, **{EXTRA + p: s for p, s in expected.extra.items()}}
    for key, shapes in wanted.items():
        if key not in content.array_records:
            return Reply(report, wrong=f"malformed: no {key}")
        wrong = _check_arrays(content.array_records[key], shapes, expected)
        if wrong:
            return Reply(report, wrong=wrong)
    model = reorder(unpack(content.array_records[MODEL], expected.dtype), expected.shapes)
    extra = read_parts(content, EXTRA, expected.dtype)
    return Reply(report, model, {p: reorder(extra[p], s) for p, s in expected.extra.items()})


def _check_report(report: dict[str, Any], expected: ExpectedReply) -> str:
    for key, value in report.items():
        kinds = (float,) if key in expected.figures else REPORT_TYPES.get(key)
        if kinds is None:
            return f"malformed: unknown key '{clean_line(key, 40)}'"
        if type(value) not in kinds:
            return f"malformed: {key} is no {kinds[0].__name__}"
    losses = report.get("trial", [])
    if len(losses) > MAX_TRIALS or any(type(value) is not float for value in losses):
        return "malformed: trial is no list of floats"
    if report.get("round") != expected.round:
        return f"answers round {report.get('round')}, not {expected.round}"
    if report.get("client") != expected.client:
        return "answers for another client"
    if report.get("rows") != expected.rows:
        return "impossible sample count"
    if not 0 <= report.get("steps", 0) <= expected.steps:
        return "impossible number of steps"
    return ""


def _check_arrays(
    record: ArrayRecord, shapes: dict[str, tuple[int, ...]], expected: ExpectedReply
) -> str:
    dtype = expected.travels
    if set(record) != set(shapes):
        return "malformed: names of arrays"
    for name, array in record.items():
        # Its stated shape and dtype before a byte is read; then the real ones.
        if tuple(array.shape) != shapes[name] or decode(array).shape != shapes[name]:
            return "malformed: shapes of arrays"
        if array.dtype != dtype or str(decode(array).dtype) != dtype:
            return "malformed: dtype of arrays"
    return ""
