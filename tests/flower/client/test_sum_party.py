"""A node in secure sums: its records are on disk before it answers, and outlive it."""

from __future__ import annotations

import stat

import numpy as np
import pytest

from muster.base.errors import MusterError
from muster.flower.client import sum_party
from muster.flower.client.sum_party import SumParty
from muster.flower.transport.keys import make_keys
from muster.privacy.committee import Committee, check_vector, unmask, write_groups
from muster.privacy.fixed_point import add
from muster.privacy.masks import Attempt, PublicSumKey

NAMES = ["a", "b", "c", "d"]
SIZE = 6


def attempt(number=1, round=0):
    return Attempt(b"r" * 32, round, number, b"o" * 32)


@pytest.fixture
def parties(tmp_path):
    make_keys(tmp_path / "keys", [], NAMES)
    texts = [(tmp_path / "keys" / f"{name}.agg.pub").read_text() for name in NAMES]
    public = tuple(PublicSumKey.from_text(text, "key") for text in texts)
    committee = Committee(public, tuple(NAMES), (0, 1, 2))

    def start():
        """Every node, as it comes up."""
        return [
            SumParty.from_owner(
                {
                    "sum-key": str(tmp_path / "keys" / f"{name}.agg"),
                    "memory-path": str(tmp_path / "memory" / name),
                },
                committee,
                k,
            )
            for k, name in enumerate(NAMES)
        ]

    return start


def silent(shape):
    return np.zeros(shape, np.uint32)


def play(nodes, values, at):
    answers = {k: node.join(at, lambda k=k: values[k]) for k, node in enumerate(nodes)}
    entries = tuple(check_vector(nodes[0].committee, at, k, a) for k, a in answers.items())
    return answers, (entries,)


def test_nodes_sum_what_they_hold(parties):
    nodes = parties()
    values = np.random.default_rng(0).integers(0, 2**32, (4, SIZE), dtype=np.uint32)
    answers, groups = play(nodes, values, attempt())
    given = [nodes[j].answer(attempt(), write_groups(groups), SIZE, silent) for j in (0, 1, 2)]
    (total,) = unmask(groups, {k: a.values for k, a in answers.items()}, given)
    assert np.array_equal(total, add(values))


def test_a_node_that_was_restarted_repeats_what_it_sent_and_trains_no_more(parties):
    x = np.arange(SIZE, dtype=np.uint32)
    first = parties()[3].join(attempt(), lambda: x)
    again = parties()[3].join(attempt(), lambda: pytest.fail("it has answered"))
    assert again.nonce == first.nonce
    assert np.array_equal(again.values, first.values)
    with pytest.raises(MusterError, match="attempt 0 of round 5 is not newer than 1 of round 0"):
        parties()[3].join(attempt(0, 5), lambda: pytest.fail("it is too old"))


def test_a_member_that_was_restarted_answers_the_same_list_the_same_and_no_other(parties):
    values = np.zeros((4, SIZE), np.uint32)
    _, groups = play(parties(), values, attempt())
    noise = iter(np.random.default_rng(0).integers(0, 9, (2, 1, SIZE)).astype(np.uint32))
    listed = write_groups(groups)
    first = parties()[0].answer(attempt(), listed, SIZE, lambda shape: next(noise))
    again = parties()[0].answer(attempt(), listed, SIZE, lambda shape: next(noise))
    assert np.array_equal(first, again)
    with pytest.raises(MusterError, match="was answered for another list"):
        parties()[0].answer(attempt(), write_groups((groups[0][:3],)), SIZE, silent)


@pytest.mark.parametrize("half", ["join", "answer"])
def test_nothing_is_sent_that_could_not_be_written_down(parties, monkeypatch, half):
    nodes = parties()
    _, groups = play(nodes, np.zeros((4, SIZE), np.uint32), attempt())

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sum_party, "write_private", full)
    ask = {
        "join": lambda: nodes[0].join(attempt(2), lambda: np.zeros(SIZE, np.uint32)),
        "answer": lambda: nodes[0].answer(attempt(), write_groups(groups), SIZE, silent),
    }
    with pytest.raises(OSError, match="No space"):
        ask[half]()


def test_records_are_for_their_owner_alone(parties, tmp_path):
    play(parties(), np.zeros((4, SIZE), np.uint32), attempt())
    (file,) = (tmp_path / "memory" / "d").glob("*.joined")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(MusterError, match="damaged; make new keys for secure sums"):
        parties()[3].join(attempt(2), lambda: np.zeros(SIZE, np.uint32))


def test_a_node_needs_its_keys_and_a_folder(parties, tmp_path):
    committee, key = parties()[0].committee, tmp_path / "keys" / "a.agg"
    with pytest.raises(MusterError, match=r"sum-key: secure sums need it; .* --sum-key KEY\.agg"):
        SumParty.from_owner({"memory-path": str(tmp_path)}, committee, 0)
    with pytest.raises(MusterError, match=r"memory-path: secure sums need it; .* --memory FOLDER"):
        SumParty.from_owner({"sum-key": str(key)}, committee, 0)
    wrong = {"sum-key": str(key) + ".pub", "memory-path": str(tmp_path / "m")}
    with pytest.raises(MusterError, match=r"a\.agg\.pub: "):
        SumParty.from_owner(wrong, committee, 0)
    key.chmod(0o644)
    tmp_path.chmod(0o755)
    config = {"sum-key": str(key), "memory-path": str(tmp_path / "m")}
    if all(folder.stat().st_mode & 0o001 for folder in key.parents):
        with pytest.raises(MusterError, match="others can read this private key"):
            SumParty.from_owner(config, committee, 0)
