"""Keyed randomness: permutations are permutations, uniforms are uniform, keys differ."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from muster.base import rng


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 2**31))
def test_permutations_are_permutations(sizes, seed):
    key = rng.keys(seed, "test", 0, np.arange(len(sizes)))
    values, offsets = rng.permutations(key, np.array(sizes))
    for i, n in enumerate(sizes):
        assert sorted(values[offsets[i] : offsets[i + 1]].tolist()) == list(range(n))


def test_permutations_are_uniform():
    n = 24000
    values, _ = rng.permutations(rng.keys(0, "uniform", 0, np.arange(n)), np.full(n, 4))
    _, counts = np.unique(values.reshape(n, 4) @ [64, 16, 4, 1], return_counts=True)
    assert len(counts) == 24
    assert np.abs(counts - 1000).max() < 150  # about 5 standard deviations


def test_keys_differ_in_every_part_and_uniforms_are_uniform():
    base = rng.keys(1, "a", 2, 3)
    assert len({int(k) for k in (base, rng.keys(2, "a", 2, 3), rng.keys(1, "b", 2, 3),
                                 rng.keys(1, "a", 3, 3), rng.keys(1, "a", 2, 4))}) == 5  # fmt: skip
    u = rng.uniform(rng.keys(0, "u", 0, np.arange(100_000)))
    assert abs(u.mean() - 0.5) < 0.005
    assert np.abs(np.histogram(u, 10, (0, 1))[0] / 10_000 - 1).max() < 0.05


def test_every_key_is_a_seed_torch_takes():
    drawn = set()
    for client in range(8):
        key = rng.keys(0, "seed", 0, client)
        drawn.add(int(torch.randint(2**62, (1,), generator=seeded(key))))
    assert len(drawn) == 8
    largest = np.uint64(2**64 - 1)
    assert torch.equal(*(torch.rand(3, generator=seeded(largest)) for _ in range(2)))


def seeded(key):
    return torch.Generator().manual_seed(rng.torch_seed(key))
