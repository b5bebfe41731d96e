"""The cost of one secure sum with hundreds of clients: processor time and bytes of each party.

    python benchmarks/secure_sums.py           print the table of docs/privacy.md
    python benchmarks/secure_sums.py --write   and write it there (about a minute)

Every party does what it does in a federation (`muster.privacy.committee`), one after another in
this process, without the network: a client masks and signs its contribution, the server checks
signatures, each of five members checks the list and answers it with noise, the server adds up. The
sum is compared with the plain one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from muster.papers.page_tables import fill, markdown
from muster.privacy.committee import answer_list, answer_offer, check_vector, unmask, write_groups
from muster.privacy.fixed_point import add, centre, choose_scale, encode
from muster.privacy.masks import Attempt
from muster.privacy.noise import draw_vectors
from muster.privacy.secure_sum import SimulatedParties

PAGE = Path(__file__).parents[1] / "docs" / "privacy.md"
CLIENTS, MEMBERS, NUMBERS, NOISE = (100, 300, 1000), tuple(range(5)), 50_000, 4.0
Result = TypeVar("Result")


def clock(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return what work returns, and its processor time in seconds."""
    began = time.process_time()
    return work(), time.process_time() - began


def measure(clients: int) -> list[str]:
    """Return the line of the table for so many clients."""
    parties = SimulatedParties.create(clients, MEMBERS)
    committee, keys = parties.committee, parties.keys
    attempt = Attempt(bytes(32), 0, 1, bytes(32))
    scale = choose_scale(clients, NOISE, len(MEMBERS), 1)
    values = encode(np.random.default_rng(0).normal(size=(clients, NUMBERS)), 1.0, scale)
    noise, drawn = int(NOISE * scale / 2), np.zeros(NUMBERS, np.uint32)  # 2: four do not collude

    def draw(shape: tuple[int, int]) -> np.ndarray:
        vectors = draw_vectors(shape, noise)
        drawn[:] += vectors[0]
        return vectors

    answers, joining = clock(
        lambda: [
            answer_offer(committee, keys[k], k, attempt, values[k], None) for k in range(clients)
        ]
    )
    entries, checking = clock(
        lambda: [check_vector(committee, attempt, k, a) for k, a in enumerate(answers)]
    )
    groups = (tuple(entry for entry in entries if entry is not None),)
    listed = write_groups(groups)
    given, answering = clock(
        lambda: [
            answer_list(committee, keys[j], j, attempt, groups, NUMBERS, draw, None).values
            for j in MEMBERS
        ]
    )
    vectors = {k: answer.values for k, answer in enumerate(answers)}
    sums, adding = clock(lambda: unmask(groups, vectors, given))
    assert np.array_equal(centre(sums[0]), centre(add(values) + drawn)), "another sum"
    sent = [a.values.nbytes + len(a.nonce) + len(a.signature) for a in answers]
    return [
        str(clients),
        f"{1e3 * joining / clients:.1f} ms",
        f"{max(sent) / 1e3:.0f} kB",
        f"{answering / len(MEMBERS):.2f} s",
        f"{len(listed) / 1e3:.0f} + {given[0].nbytes / 1e3:.0f} kB",
        f"{checking + adding:.2f} s",
        f"{(sum(sent) + sum(a.nbytes for a in given)) / 1e6:.0f} MB",
    ]


if __name__ == "__main__":
    head = [
        "clients",
        "a client computes",
        "and sends",
        "a member computes",
        "and gets and sends",
        "the server computes",
        "and gets",
    ]
    measure(10)  # what is loaded and built once
    table = markdown(head, [measure(clients) for clients in CLIENTS])
    print(table)
    if "--write" in sys.argv:
        PAGE.write_text(fill(PAGE.read_text(), {"secure": table}))
