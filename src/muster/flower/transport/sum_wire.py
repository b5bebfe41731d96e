"""The messages of secure sums: names of their records, and what identifies a run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ...privacy.committee import JoinerRecord, count_groups
from ...privacy.contributions import CONTRIBUTION
from ...privacy.masks import KEY, SIGNATURE, Attempt
from .wire import ExpectedReply, Reply

UNMASK = "query.unmask"  # the request to a member of the committee
SUM, NUMBER, LIST = "sum", "number", "list"  # the record of a request, and its values
MASK_NONCE, SIGNED = "mask_nonce", "signature"  # of a report


def hash_run(seed: int, experiment: str, transform: str) -> bytes:
    """Return the hash of a run: its seed, its terms, and the hash of its transform of features."""
    return hashlib.sha256(f"{seed} {transform} {experiment}".encode()).digest()


def expect_vector(common: ExpectedReply, size: int, more: Mapping[str, Any]) -> ExpectedReply:
    """Return the properties of a sound reply: a masked vector or, to a request with a list, one for
    each of its groups."""
    listed = more[SUM].get(LIST) if SUM in more else None
    shape: tuple[int, ...] = (size,) if listed is None else (count_groups(listed), size)
    form = {CONTRIBUTION: shape}
    return replace(common, dtype=torch.uint32, precision="exact", shapes=form, figures=())


def report_vector(record: JoinerRecord) -> dict[str, Any]:
    """Return what a report says of a masked vector: everyone asked has one."""
    return {"joined": True, "reason": "", MASK_NONCE: record.nonce, SIGNED: record.signature}


def read_vector(reply: Reply, attempt: Attempt) -> JoinerRecord | None:
    """Return a joiner's answer; None where there is none, or it is malformed."""
    report: Mapping[str, Any] = reply.report
    nonce, signature = (report.get(name, b"") for name in (MASK_NONCE, SIGNED))
    if reply.why or reply.model is None or (len(nonce), len(signature)) != (KEY, SIGNATURE):
        return None
    return JoinerRecord(attempt, nonce, signature, reply.model[CONTRIBUTION].numpy())
