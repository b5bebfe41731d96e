"""Two ways to measure distance in `assist` (stein), for a convolutional network.

    python benchmarks/network_evidence.py             four seeds (a few minutes)
    python benchmarks/network_evidence.py --write     and put the tables into docs/assist.md

The panel fmnist-cnn of `muster reproduce assist` with two classes a client, on seeds that the study
does not report. First table: test accuracy where nobody helps, with one distance for all
parameters, and with each layer in units of its noise. Second table, with one distance: in some
rounds the two priority clients' reply m_P is compared with mu, the mean reply of 40 clients with
other rows in the same label mix. `c_j = <d_j, mu - m_P>` is the truth of which v is the estimate,
and the step is right, by that distance, if it brings the model nearer to mu.
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
from page import format_table, write_block

PAGE = Path(__file__).parents[1] / "docs" / "assist.md"
SEEDS, LOOKS, TWINS = range(1000, 1004), (1, 5, 20), 20
LOCAL = muster.Local(steps=5, batch_size=10, lr=0.1)
HEAD = ["round", "true c / v", "v / helper's squared distance", "distance to mu after / before"]
SCORES = ["seed", "alone", "one distance", "helpers' weight", "by layer", "helpers' weight"]
Round = tuple[Replies, np.ndarray, np.ndarray]  # the replies, and each one's extent and weight
SEEN: list[Round] = []


@dataclass(frozen=True)
class OneDistance(Stein):
    """The weights by one distance for all parameters; the replies are kept to be looked at."""

    def __call__(self, replies: Replies, extent: np.ndarray, server: dict) -> np.ndarray:
        plain = replace(replies, extra={})
        weight = super().__call__(plain, extent, server)
        SEEN.append((plain, extent, weight))
        return weight


PLAIN = replace(muster.methods.assist(), weigh=OneDistance())


def play(
    fed: Federation, method: muster.Method, model: torch.nn.Module, rounds: int, seed: int
) -> tuple[float, float]:
    """Return the test accuracy (NaN without test rows), and the helpers' weight in a round on
    average."""
    SEEN.clear()
    run = muster.simulate(
        fed, method, copy.deepcopy(model), rounds, LOCAL, seed=seed, evaluate_every=rounds
    )
    helped = run.clients.filter(~run.clients["priority"])["weight"].sum() / rounds
    accuracy = np.nan if fed.test is None else run.rounds["test_accuracy"][-1]
    return float(accuracy), float(helped)


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


def look(seed: int) -> tuple[list[str], list[list[float]]]:
    """Return a seed's row of the first table, and the ratios of each round that is looked at."""
    shards = muster.data.Shards(per_client=2, size=30)
    few = muster.data.Few(of=shards, first=2, rows=30)
    fed = muster.data.fmnist(clients=10, priority=2, partition=few, seed=seed)
    rows = muster.data.fmnist(clients=1, priority=1, partition=muster.data.IID()).train
    model, last = muster.models.CNN().build(fed, seed), LOOKS[-1]
    alone, _ = play(fed, muster.methods.fedavg_priority(), model, last, seed)
    scores = [play(fed, m, model, last, seed) for m in (muster.methods.assist(), PLAIN)]
    cells = [f"{100 * alone:.1f}"]
    for accuracy, helped in reversed(scores):
        cells += [f"{100 * accuracy:.1f}", f"{helped:.2f}"]
    found, state = [], dict(model.state_dict())
    for t, (replies, extent, weight) in enumerate(list(SEEN)):
        base, helpers = base_weights(replies.roster, extent), replies.roster.importance < 1
        if t + 1 in LOOKS:
            start = copy.deepcopy(model)
            start.load_state_dict(state)
            play(draw_twins(fed, rows, seed), PLAIN, start, 1, seed)
            ((twins, _, _),) = SEEN
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
    return [str(seed), *cells], found


if __name__ == "__main__":
    warnings.simplefilter("ignore", muster.MusterWarning)
    lines, every = zip(*(look(seed) for seed in SEEDS), strict=True)
    means = np.array([[float(cell) for cell in line[1:]] for line in lines]).mean(0)
    digits = (1, 1, 2, 1, 2)
    mean_row = ["mean", *(f"{m:.{d}f}" for m, d in zip(means, digits, strict=True))]
    ratios = np.array(every)  # by seed, round and ratio
    table = [HEAD]
    for t, low, high in zip(LOOKS, ratios.min(0), ratios.max(0), strict=True):
        spans = (f"{a:.2f} to {b:.2f}" for a, b in zip(low, high, strict=True))
        table.append([str(t), *spans])
    tables = {"layers": [SCORES, *lines, mean_row], "network": table}
    for name, rows in tables.items():
        print(format_table(rows))
        if "--write" in sys.argv[1:]:
            write_block(PAGE, name, format_table(rows))
