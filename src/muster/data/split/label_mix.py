"""Label mixes: clients of one size, each with its own proportions of the labels.

The split of Hsu, Qi, Brown (2019, section 3) as they draw it: client k has a mix
`p_k ~ Dirichlet(alpha * prior)` over the labels and draws its rows from it, one by one and without
replacement; when a label runs out, mixes are renormalised over the rest. Unlike `Dirichlet`, which
spreads each label over the clients, it works with any alpha and any number of clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base import rng
from ...base.arrays import Float64, Int64
from ...base.checks import check_above, check_whole
from ...base.errors import MusterError
from ...base.registry import part
from .partition import Partition
from .portions import Portions, check_split, class_after_class, deal


@part(Partition, "label_mix")
@dataclass(frozen=True)
class LabelMix:
    """As many rows each, labels uneven: those of client k are drawn from `p_k ~ Dir(alpha prior)`.

    The prior is the share of each label in the data. Rows belong to one client at most; those
    left over when every client has its number are unused. Hsu, Qi, Brown (2019, section 3).

    Attributes:
        alpha: small: a label or two each; large: everyone has the mix of the whole
        size: rows of each client; None: as many as there are for everyone

    >>> y = np.repeat(np.arange(10), 60)
    >>> parts = LabelMix(alpha=0.05).split(y, clients=200, seed=0)
    >>> len(parts), set(parts.sizes.tolist())
    (200, {3})
    """

    alpha: float = 0.5
    size: int | None = None

    def __post_init__(self) -> None:
        check_above("label_mix alpha", self.alpha)
        if self.size is not None:
            check_whole("label_mix size", self.size)

    def split(self, y: Int64, clients: int, seed: int) -> Portions:
        """Every client's rows, label after label."""
        check_split(y, clients)
        size = len(y) // clients if self.size is None else self.size
        if size * clients > len(y):
            raise MusterError(
                f"label_mix: {clients} clients of size={size} need {size * clients} rows and there "
                f"are {len(y)}; lower clients or size"
            )
        draw = rng.generator(seed, "partition label mix")
        rows, counts = class_after_class(y, draw)
        taken = mixes(counts, clients, size, self.alpha, draw)
        # Those who draw last get what is left. Which clients those are is chance, so that the last
        # clients (the unseen ones) are like the first.
        return deal(rows, counts, taken[draw.permutation(clients)].T)


def mixes(stock: Int64, clients: int, size: int, alpha: float, draw: np.random.Generator) -> Int64:
    """How many rows of each label every client draws, [client, label].

    Clients draw in turn. All who come before a label runs out draw at once: their numbers are
    multinomial. The one in whose turn it runs out keeps what was there and draws the rest from
    the other labels, and everyone after it does without that label. So the work is a pass over
    the clients for each label, not a step for each client.
    """
    concentration = alpha * stock / stock.sum()
    mix = draw.dirichlet(concentration, clients)
    left = stock.copy()
    taken = np.zeros((clients, len(stock)), np.int64)
    k = 0
    while k < clients:
        some = np.flatnonzero(left)
        wanted = draw.multinomial(size, over(mix[k:, some], concentration[some], draw))
        short = (np.cumsum(wanted, axis=0) > left[some]).any(axis=1)
        whole = int(np.argmax(short)) if short.any() else len(wanted)
        taken[k : k + whole, some] = wanted[:whole]
        left[some] -= wanted[:whole].sum(axis=0)
        k += whole
        if k == clients:
            break
        taken[k, some] = np.minimum(wanted[whole], left[some])
        left -= taken[k]
        while missing := size - int(taken[k].sum()):
            some = np.flatnonzero(left)
            more = draw.multinomial(missing, over(mix[k : k + 1, some], concentration[some], draw))
            more = np.minimum(more[0], left[some])
            taken[k, some] += more
            left[some] -= more
        k += 1
    return taken


def over(mix: Float64, concentration: Float64, draw: np.random.Generator) -> Float64:
    """Mixes renormalised over some of the labels.

    A Dirichlet renormalised over some labels is the Dirichlet of those, so a client whose whole
    (rounded) mix lay on other labels draws a new one.
    """
    total = mix.sum(axis=1, keepdims=True)
    lost = np.flatnonzero(total[:, 0] < np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
    mix = mix / np.where(total > 0, total, 1)
    mix[lost] = draw.dirichlet(concentration, len(lost))
    return mix
