"""The evidence of `assist` (stein) against the truth, for a convolutional network.

    python benchmarks/network_evidence.py             three seeds (a few minutes)
    python benchmarks/network_evidence.py --write     and put the table into docs/assist.md

The panel fmnist-cnn of `muster reproduce assist` with two classes a client. In some rounds the two
priority clients' reply m_P is compared with mu, the mean reply of many clients with other rows in
the same label mix: `c_j = <d_j, mu - m_P>` is the truth of which v is the estimate, and the step is
right if it brings the model nearer to mu.
"""

from __future__ import annotations

import copy
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import muster
from muster.federation import Federation, RaggedRows
from muster.parts.evidence import Stein, base_weights, compare_by_spread
from muster.protocol import Replies
from run import markdown, write

PAGE = Path(__file__).parents[1] / "docs" / "assist.md"
SEEDS, LOOKS, TWINS = range(3), (1, 5, 20), 20
LOCAL = muster.Local(steps=5, batch_size=10, lr=0.1)
HEAD = ["round", "true c / v", "v / helper's squared distance", "distance to mu after / before"]
Round = tuple[Replies, np.ndarray, np.ndarray]  # the replies, and each one's extent and weight
SEEN: list[Round] = []


@dataclass(frozen=True)
class Watched(Stein):
    """The same weights; the replies are kept to be looked at."""

    def __call__(self, replies: Replies, extent: np.ndarray, server: dict) -> np.ndarray:
        weight = super().__call__(replies, extent, server)
        SEEN.append((replies, extent, weight))
        return weight


def play(fed: Federation, model: torch.nn.Module, rounds: int, seed: int) -> list[Round]:
    """Return what the server saw in each round."""
    SEEN.clear()
    method = replace(muster.methods.assist(), weigh=Watched())
    muster.simulate(fed, method, model, rounds, LOCAL, seed=seed, evaluate_every=0)
    return list(SEEN)


def draw_twins(fed: Federation, rows: RaggedRows, seed: int) -> Federation:
    """Return clients with other rows in the label mix of each priority client, all of them priority
    clients."""
    draw, y = np.random.default_rng([seed, 1]), rows.y.numpy()
    mixes = [np.bincount(fed.train.client(k)[1], minlength=fed.classes) for k in (0, 1)]
    chosen = [
        np.concatenate([draw.choice(np.flatnonzero(y == c), n, replace=False)
                        for c, n in enumerate(mix)])
        for mix in mixes for _ in range(TWINS)
    ]  # fmt: skip
    at = torch.from_numpy(np.concatenate(chosen))
    offsets = np.concatenate([[0], np.cumsum([len(some) for some in chosen])]).astype(np.int64)
    return Federation.from_rows(RaggedRows(rows.x[at], rows.y[at], offsets), classes=fed.classes)


def flatten(replies: Replies) -> torch.Tensor:
    """Return what moves by gradient of each reply, as rows."""
    return torch.cat([replies.models[n].flatten(1).double() for n in replies.trainable], 1)


def look(seed: int) -> list[list[float]]:
    """Return the three ratios of each round that is looked at."""
    shards = muster.data.Shards(per_client=2, size=30)
    few = muster.data.Few(of=shards, first=2, rows=30)
    fed = muster.data.fmnist(clients=10, priority=2, partition=few, seed=seed)
    rows = muster.data.fmnist(clients=1, priority=1, partition=muster.data.IID()).train
    model = muster.models.CNN().build(fed, seed)
    found, state = [], dict(model.state_dict())
    for t, (replies, extent, weight) in enumerate(play(fed, copy.deepcopy(model), LOOKS[-1], seed)):
        base, helpers = base_weights(replies.roster, extent), replies.roster.importance < 1
        if t + 1 in LOOKS:
            start = copy.deepcopy(model)
            start.load_state_dict(state)
            ((twins, _, _),) = play(draw_twins(fed, rows, seed), start, 1, seed)
            mu, every = flatten(twins).mean(0), flatten(replies)
            own = torch.from_numpy(base) @ every
            away = every[torch.from_numpy(helpers)] - own
            gram, gain = compare_by_spread(replies, base, helpers)
            step = own + torch.from_numpy(weight[helpers]) @ away
            after, before = float((step - mu).norm()), float((own - mu).norm())
            truth = float((away @ (mu - own)).mean())
            found.append([truth / gain.mean(), gain.mean() / np.diag(gram).mean(), after / before])
        for name, t_k in replies.models.items():
            mean = torch.tensordot(torch.from_numpy(weight).to(t_k), t_k, 1)
            state[name] = mean.to(state[name].dtype)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore", muster.MusterWarning)
    ratios = np.array([look(seed) for seed in SEEDS])  # by seed, round and ratio
    table = [HEAD]
    for t, low, high in zip(LOOKS, ratios.min(0), ratios.max(0), strict=True):
        spans = (f"{a:.2f} to {b:.2f}" for a, b in zip(low, high, strict=True))
        table.append([str(t), *spans])
    print(markdown(table))
    if "--write" in sys.argv[1:]:
        write({"network": table}, PAGE)
