"""The federation: clients, their roles, requirements and data.

All clients' rows lie in one array; a client is a span of it (`RaggedRows`). So 100,000 clients are
two arrays, not 100,000 objects; arrays may be memory-mapped; and a partition of a data set is a
list of row numbers into it, never a copy.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.arrays import Bool, Float64, Int64
from ..base.checks import check_one_of
from ..base.errors import MusterError, MusterWarning, plural
from ..base.lazy import torch
from ..base.registry import catalogue
from .inputs import PIXELS, REAL, WHOLE, Inputs, Range, Scaler, TableEncoder
from .population import Population, as_importance, as_mask, as_priority, as_requirement
from .ragged_rows import Pair, RaggedRows, SharedRows, are_labels, check, from_pairs
from .text_encoder import TextEncoder
from .variation import KINDS, Variation, VariationKind

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Federation:
    """Clients, their data, and their roles.

    Attributes:
        train: training rows of every client
        test: held-out rows of every client; None: there are none
        priority: True for priority clients, whom the model is for, P
        importance: a_k, each client's weight in the objective: 1 for priority clients, and for the
            others 0 (Prioritized FL) up to 1 (plain FL); section 5 of the FedALIGN paper
        requirement: rho_k, the loss client k asks the model to stay below; None: there are none
        classes: number of classes; 0: targets are numbers (one or several for each row)
        unseen: True for clients that never train and only evaluate the model
        name: name of the data
        requirement_test: held-out loss of the client's own model, where its requirement is from one
        solo_score: held-out score of that model
        solo_work: work of each client for that model, such as "400 steps"; empty: not known
        note: a note that results on this data must carry: that it is a subset, or how it was split
        names: names of the clients, where the data has them
        labels: names of the classes, where the data has them
        columns: names of the features, where the data has them
        ids: numbers that key clients' randomness; None: 0 to n - 1
        counted: rows of each client that count in p_k; None: all
        image: shape of a row as an image (channels, height, width), where it is a flattened one
        scaler: scaler that was applied to the features; None: none was
        label_column: label column of tables (or several)
        aside: other columns of tables that are no features; None: any may be there
        encoder: encoder of the columns of tables; None: features are the columns
        text: encoder of a column of text; None: features are no text
        resized: True if images of other sizes are resized to that of these rows
        pad: the token that pads shorter texts, where that is known
        varies: the way the seeds of a comparison vary the data: see `Variation`
        ranges: plausible values of columns of tables that were agreed on, as in `Inputs`
        measured: those of other columns, by statistics of the training rows
        recode: values of columns of tables that were replaced, as in `Inputs`
    """

    train: RaggedRows
    test: RaggedRows | None
    priority: Bool
    importance: Float64
    requirement: Float64 | None
    classes: int
    unseen: Bool
    name: str = "federation"
    requirement_test: Float64 | None = None
    solo_score: Float64 | None = None
    solo_work: str = ""
    note: str = ""
    names: NDArray[np.str_] | None = None
    labels: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    ids: Int64 | None = None
    counted: Int64 | None = None
    image: tuple[int, ...] | None = None
    scaler: Scaler | None = None
    label_column: str | tuple[str, ...] | None = None
    aside: tuple[str, ...] | None = ()
    encoder: TableEncoder | None = None
    text: TextEncoder | None = None
    resized: bool = False
    pad: int | None = None
    varies: VariationKind = "unknown"
    ranges: dict[str, Range] = field(default_factory=dict)
    measured: dict[str, Range] = field(default_factory=dict)
    recode: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def from_folder(cls, path: str | Path, **options: Any) -> Federation:
        """Read a federation from files: see `muster.data.from_folder`."""
        fed: Federation = catalogue(trusted=False).find(cls, "folder", "data.name")(path, **options)
        return fed

    @classmethod
    def from_partitioner(cls, partitioner: Any, **options: Any) -> Federation:
        """Build a federation from a Hugging Face data set and a partitioner of flwr-datasets: see
        `muster.data.from_partitioner`."""
        maker = catalogue(trusted=False).find(cls, "huggingface", "data.name")
        fed: Federation = maker(partitioner, **options)
        return fed

    @classmethod
    def from_arrays(
        cls,
        train: Sequence[Pair],
        test: Sequence[Pair] | None = None,
        priority: ArrayLike | None = None,
        requirement: ArrayLike | None = None,
        importance: ArrayLike = 0.0,
        classes: int | None = None,
        name: str = "federation",
        unseen: ArrayLike = (),
        varies: VariationKind = "unknown",
    ) -> Federation:
        """Build a federation from each client's (x, y). Whole numbers from 0, one for each row, are
        classes; other targets are numbers, as are all with `classes=0`. A function of the seed that
        builds one states by `varies` what its seeds vary, such as "data" or "split" (`Variation`).

        >>> import numpy as np
        >>> client = (np.eye(4), [0, 1, 0, 1])
        >>> Federation.from_arrays(train=[client] * 3, priority=[0])
        Federation(3 clients, 1 priority, 12 rows, 2 classes)
        """
        held_out = None if test is None else from_pairs(test, "test")
        fed = cls.from_rows(
            from_pairs(train, "train"),
            held_out,
            priority,
            requirement,
            importance,
            classes,
            name,
            unseen,
            varies=varies,
        )
        alone = fed.find_single_class() if fed.classes else np.empty(0, np.int64)
        if len(alone):
            warnings.warn(
                f"{len(alone)} of {fed.n} clients hold a single class (the first is client "
                f"{alone[0]}): their loss can be low without the model being any good",
                MusterWarning,
                stacklevel=2,
            )
        return fed

    @classmethod
    def from_rows(
        cls,
        train: RaggedRows,
        test: RaggedRows | None = None,
        priority: ArrayLike | None = None,
        requirement: ArrayLike | None = None,
        importance: ArrayLike = 0.0,
        classes: int | None = None,
        name: str = "federation",
        unseen: ArrayLike = (),
        note: str = "",
        varies: VariationKind = "unknown",
    ) -> Federation:
        """Build a federation from rows of all clients in one array, and check everything."""
        check_one_of("varies", varies, tuple(KINDS))
        n = len(train.offsets) - 1
        if classes is None and not all(are_labels(d.y) for d in (train, test) if d is not None):
            classes = 0
        check(train, "train", classes)
        if test is not None:
            if len(test.offsets) - 1 != n:
                raise MusterError(
                    f"test has {len(test.offsets) - 1} clients and train {n}; give one test part "
                    "for each client, or None"
                )
            if test.x.shape[1:] != train.x.shape[1:]:
                raise MusterError(
                    f"test rows have shape {tuple(test.x.shape[1:])}, train rows "
                    f"{tuple(train.x.shape[1:])}; they must agree"
                )
            if test.y.shape[1:] != train.y.shape[1:]:
                raise MusterError(
                    f"test targets have shape {tuple(test.y.shape[1:])}, train targets "
                    f"{tuple(train.y.shape[1:])}; they must agree"
                )
            check(test, "test", classes)
        tops = [int(d.y.max()) + 1 for d in (train, test) if d is not None and classes is None]
        found = max(tops) if classes is None else classes
        if found < 2 and classes != 0:
            raise MusterError(
                "train: every label is 0; there is nothing to learn from one class (where they "
                "are numbers to predict, say classes=0)"
            )
        judges = np.asarray(unseen)
        judges = as_mask(judges.astype(np.int64) if judges.size == 0 else judges, n, "unseen")
        is_priority = as_priority(priority, judges)
        return cls(
            train,
            test,
            is_priority,
            as_importance(importance, is_priority) * ~judges,
            as_requirement(requirement, n),
            found,
            judges,
            name,
            note=note,
            varies=varies,
        )

    @property
    def variation(self) -> Variation:
        """The way seeds vary the data, with the numbers of rows."""
        own = (
            None if isinstance(self.test, SharedRows) else self.test
        )  # split from the client's own rows
        held_out = np.zeros_like(self.train.sizes) if own is None else own.sizes
        rows = self.train.sizes + held_out
        objective = self.importance > 0
        share, seen = (float(rows[who].sum() / rows.sum()) for who in (objective, ~self.unseen))
        own_test = float(held_out[objective].sum() / max(rows[objective].sum(), 1))
        train, test = int(self.train.sizes.sum()), int(held_out.sum())
        return Variation(self.varies, train, test, share, seen, own_test)

    @property
    def solo_accuracy(self) -> Float64 | None:
        """The score, under the name it has in classification."""
        return self.solo_score

    @property
    def n(self) -> int:
        """Number of clients, N."""
        return len(self.priority)

    @cached_property
    def population(self) -> Population:
        """The clients without their rows."""
        ids = np.arange(self.n) if self.ids is None else self.ids
        sizes = self.train.sizes
        return Population(
            ids, self.priority, self.importance, self.unseen, sizes, self.names, self.counted
        )

    @property
    def sizes(self) -> Int64:
        """D_k, the number of training rows of each client."""
        return self.train.sizes

    @property
    def share(self) -> Float64:
        """p_k of every client: see `Population.share`."""
        return self.population.share

    @property
    def objective(self) -> Float64:
        """`a_k p_k`: see `Population.objective`."""
        return self.population.objective

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.train.x.shape[1:])

    @property
    def target(self) -> tuple[int, ...]:
        """The shape of one target; () where it is one number or class."""
        return tuple(self.train.y.shape[1:])

    def as_numbers(self) -> Federation:
        """Return it with targets as numbers, not classes."""
        if self.classes == 0:
            return self
        if self.labels not in (None, tuple(str(c) for c in range(self.classes))):
            raise MusterError(
                f"targets: the labels are classes by name ({', '.join(self.labels or ())[:60]}), "
                "and the task predicts numbers; read the data with targets = 'numbers' (in "
                "manifest.toml, or data.targets)"
            )

        def real(data: RaggedRows | None) -> Any:
            return None if data is None else replace(data, y=data.y.double())

        return replace(self, train=real(self.train), test=real(self.test), classes=0, labels=None)

    def example(self) -> Tensor:
        """Return the first row, as a batch of one; for tokens the row that has the largest one, for
        which an embedding may have no vector."""
        splits = [self.train.x] + ([] if self.test is None else [self.test.x])
        if self.train.x.dtype != torch.int64 or not all(map(len, splits)):
            return self.train.x[:1].clone()  # the caller may write into it
        x = max(splits, key=lambda x: int(x.max()))
        at = int(x.flatten(1).amax(1).argmax())
        return x[at : at + 1].clone()

    @property
    def inputs(self) -> Inputs:
        """The inputs of a model trained on these rows."""
        kind = REAL if self.train.x.is_floating_point() else WHOLE
        if self.train.x.dtype == torch.uint8:
            kind = PIXELS
        columns = self.columns if self.encoder is None else self.encoder.columns
        if self.text is not None:
            columns = (self.text.column,)
        return Inputs(
            self.shape,
            self.classes,
            kind,
            self.labels,
            self.image,
            columns,
            self.label_column,
            self.aside,
            self.scaler,
            target=self.target,
            encoder=self.encoder,
            text=self.text,
            resized=self.resized,
            pad=self.pad,
            ranges={**self.measured, **self.ranges},
            recode=self.recode,
        )

    def fingerprint(self) -> str:
        """Return a short digest of the federation: all labels and spans of training and held-out
        rows, an even sample of their features, and everyone's role and requirement."""
        digest = 0

        def add(values: NDArray[Any] | None) -> None:
            nonlocal digest
            content = b"none" if values is None else np.ascontiguousarray(values).tobytes()
            digest = zlib.crc32(content, digest)

        for data in (self.train, self.test):
            if data is None:
                add(None)
                continue
            for values in (data.y.cpu().numpy(), data.offsets, data.rows, data.weight):
                add(values)
            if isinstance(data, SharedRows):
                add(data.mix)
            every = max(1, len(data.x) // 1000)
            add(data.x[::every].cpu().numpy())
        roles = (self.ids, self.priority, self.importance, self.unseen)
        own = (self.requirement, self.requirement_test, self.solo_score, self.counted)
        for values in (*roles, *own):
            add(values)
        return f"{digest:08x}"

    def find_single_class(self) -> Int64:
        """Return the clients whose training rows all have one label."""
        y = self.train.y.numpy()[self.train.base(np.arange(self.train.offsets[-1]))]
        starts = self.train.offsets[:-1]
        return np.flatnonzero(np.maximum.reduceat(y, starts) == np.minimum.reduceat(y, starts))

    def label_counts(self) -> Int64:
        """Return the number of training rows of each class at each client, [client, class]."""
        y = self.train.y.numpy()[self.train.base(np.arange(self.train.offsets[-1]))]
        who = np.repeat(np.arange(self.n), self.train.sizes)
        flat = np.bincount(who * self.classes + y, minlength=self.n * self.classes)
        return flat.reshape(self.n, self.classes)

    def describe_targets(self) -> str:
        """Return a short description of the targets."""
        if self.classes:
            return plural(self.classes, "class")
        return f"targets {list(self.target)}" if self.target else "a number to predict"

    def __repr__(self) -> str:
        return (
            f"Federation({plural(self.n, 'client')}, {int(self.priority.sum())} priority, "
            f"{plural(int(self.train.offsets[-1]), 'row')}, {self.describe_targets()})"
        )
