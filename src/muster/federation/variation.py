"""Variation of the data over the seeds of a comparison, which decides what an interval covers.

Seeds that draw new data are independent. Seeds that split the same rows again are not: their test
rows overlap, and so do their training rows, so that more seeds say no more about new rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..base.errors import plural

VariationKind = Literal["data", "split", "deal and split", "deal", "training", "unknown"]
ClientGroup = Literal["all", "objective", "seen", "unseen"]
KINDS: dict[VariationKind, str] = {
    "data": "that each draw new data",
    "split": "that split the same {rows}rows again (corrected, Nadeau and Bengio 2003)",
    "deal and split": "that deal to clients and split the same {rows}rows again (corrected, Nadeau "
    "and Bengio 2003)",
    "deal": "that deal the same rows to clients again: intervals cover the deal and the training, "
    "on this data set",
    "training": "on the same clients and rows: intervals cover the chance in training alone",
    "unknown": "of which it is not known how they vary the data: too narrow if they split the same "
    "rows again",
}
SCOPES: dict[VariationKind, str] = {  # the same in a few words, for the titles of tables
    "data": "each with new data",
    "split": "each a new split of the same rows",
    "deal and split": "each a new deal and split of the same rows",
    "deal": "each a new deal of the same rows",
    "training": "on the same rows: the chance in training alone, not in data",
    "unknown": "which vary the data in an unknown way",
}
TAKEN = (
    "of which it is not known how they vary the data: taken for new splits of the same {rows}rows "
    "(corrected, Nadeau and Bengio 2003); say it with Federation(varies=...)"
)


@dataclass(frozen=True)
class Variation:
    """The way seeds vary the data of a comparison.

    Attributes:
        varies: "data": each draws new data; "split": each divides every client's rows into training
            and test rows again; "deal and split": and gives them to other clients, too; "deal":
            each deals the same training rows to clients again, and the test rows stay; "training":
            the data stay; "unknown": not stated
        train_rows: training rows of all clients in a seed; 0: not known
        test_rows: held-out rows of all clients in a seed; 0: not known
        objective_share: share of these rows held by the clients in the objective
        seen_share: share of these rows held by the clients that take part
        objective_test: share that clients in the objective hold out of their own rows; 0: not known
    """

    varies: VariationKind = "unknown"
    train_rows: int = 0
    test_rows: int = 0
    objective_share: float = 1.0
    seen_share: float = 1.0
    objective_test: float = 0.0

    @classmethod
    def combine(cls, every: Iterable[Mapping[str, Any] | None]) -> Variation:
        """Return the variation of several runs from their tables (None: not stated, as the others);
        unknown where runs differ."""
        stated = [cls(**one) for one in every if one is not None]
        if len({one.varies for one in stated}) != 1:
            return cls()
        numbers = zip(*(list(one.table.values())[1:] for one in stated), strict=True)
        train, test, *shares = (sum(each) / len(stated) for each in numbers)
        return cls(stated[0].varies, round(train), round(test), *shares)

    @property
    def table(self) -> dict[str, Any]:
        """The values as results store them."""
        return asdict(self)

    @property
    def overlaps(self) -> bool:
        """True where a row may be a test row of one seed and a training row of another. An unknown
        variation is assumed to overlap if it has test rows."""
        known = min(self.train_rows, self.test_rows) > 0
        return known and self.varies in ("split", "deal and split", "unknown")

    @property
    def unit(self) -> str:
        """A name for one seed: "split", "deal", "training run", "seed"."""
        words = {"deal and split": "split", "training": "training run", "data": "seed"}
        return words.get(self.varies, "seed" if self.varies == "unknown" else self.varies)

    def ratio(self, held_out: bool, whose: ClientGroup = "all") -> float:
        """Return the term added to 1/n in the variance of a mean over n seeds (Nadeau and Bengio
        2003), for a measure of the held-out or the training rows of these clients.

        Measures of m rows that two seeds draw again from the same N correlate by rho = m / N, and
        `rho / (1 - rho)` is added. Where clients keep their rows, a client's are drawn from its
        own: for any group of clients that is test / train of held-out rows, and of training rows,
        which seeds share more of, train / test; clients in the objective may hold out another share
        than the others. Where rows are dealt to clients again, those of a few clients are drawn
        from all rows.
        """
        if not self.overlaps:
            return 0.0
        of = {"objective": self.objective_share, "seen": self.seen_share}
        of |= {"unseen": 1 - self.seen_share, "all": 1.0}
        share = of[whose] if self.varies == "deal and split" else 1.0
        test = self.test_rows / (self.train_rows + self.test_rows)
        if whose == "objective" and self.objective_test > 0:
            test = self.objective_test
        rho = share * (test if held_out else 1 - test)
        return rho / (1 - rho)

    def describe(self, seeds: int | str) -> str:
        """Return a phrase for these seeds that states how they vary the data.

        >>> Variation("data").describe(5)
        '5 seeds that each draw new data'
        """
        text = TAKEN if self.varies == "unknown" and self.overlaps else KINDS[self.varies]
        rows = self.train_rows + self.test_rows
        number = plural(seeds, "seed") if isinstance(seeds, int) else seeds
        if seeds == 1:
            return number
        return f"{number} {text.format(rows=f'{rows} ' if rows else '')}"

    def scope(self, seeds: int | str) -> str:
        """Return the same in a few words.

        >>> Variation("data").scope(5)
        '5 seeds, each with new data'
        """
        number = plural(seeds, "seed") if isinstance(seeds, int) else seeds
        if number == "1 seed":
            return number
        return f"{number}{' ' if self.varies == 'training' else ', '}{SCOPES[self.varies]}"

    def interval_note(self, seeds: int | str) -> str:
        """Return the line that states what intervals over these seeds cover."""
        return f"intervals: 95 % over {self.describe(seeds)}"

    said = interval_note  # the name before 0.2
