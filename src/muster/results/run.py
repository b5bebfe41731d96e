"""What a run leaves: its model, and everything that happened, as frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..base.errors import MusterError, plural
from ..base.lazy import get_provider, nn, pl
from ..federation.text import Tokenizer
from .export import as_export, export
from .model import Own, Recipe, assembled, position, read_by, rescaled
from .predict import predictions
from .run_warnings import Facts, concerns

if TYPE_CHECKING:
    from .model import Built

OnRound = Callable[[dict[str, Any]], None]

page = get_provider("report")
HOLDINGS = {"client": int, "label": int, "rows": int}


@dataclass(frozen=True)
class Run:
    """A finished (or interrupted) run.

    Attributes:
        weights: the model, under the module's own state_dict names
        rounds: one row per round, measured on the model after that round's step
        clients: one row per round and asked client: its loss and accuracy at the broadcast model
        moves: one row for each time a client left the pool or returned to it
        attackers: one row per round and attacker: its share of the step, and what honesty would
            have got
        final: one row per client: the last model on its training and held-out data

    holdings one row per client and class that it has training rows of, where that is known

    Attributes:
        own: the models that clients keep for themselves, where the method has them
        recipe: how the model is put together again: columns, scale, labels, what built it
        note: what these results must say of their data
        facts: what the numbers are to be held against: the loss before the first round, that of a
            constant prediction, the accuracy of always answering the most frequent class

    concerns what a person must be told before believing the numbers, a sentence each
    """

    weights: dict[str, NDArray[Any]]
    rounds: pl.DataFrame
    clients: pl.DataFrame
    moves: pl.DataFrame
    attackers: pl.DataFrame
    final: pl.DataFrame
    method: str
    seed: int
    engine: str = ""
    complete: bool = True
    config: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    facts: Facts = field(default_factory=dict)
    own: Own | None = None
    recipe: Recipe | None = None
    holdings: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=HOLDINGS))

    @property
    def labels(self) -> tuple[str, ...] | None:
        """What classes are called, where the data says so."""
        return None if self.recipe is None else self.recipe.inputs.labels

    def model(self, client: str | int | None = None, build: Built | None = None) -> nn.Module:
        """The trained module, ready to be asked (`eval`); changing it does not change the run.

        Args:
            client: whose own model, by name or number, where the method keeps them
            build: for a run that was loaded and trained a module of yours: the module, its class,
                or a function that returns one; its parameters do not matter
        """
        if client is None:
            if self.recipe is not None and self.recipe.serves == "own":
                raise MusterError(
                    f"model: {self.method} has no common model, each client has its own; say "
                    "whose with client=..."
                )
            return assembled(self.recipe, self.weights, build)
        k = position(client, self.final)
        if self.own is None:
            where = "they stay with the clients" if self.engine == "flower" else "none were kept"
            raise MusterError(
                f"client: {self.method} leaves no models of clients' own here ({where}); leave "
                "client out for the common one"
            )
        return assembled(self.recipe, self.weights, build, self.own.of(k, str(client)))

    def predict(
        self,
        rows: Any,
        client: str | int | None = None,
        build: Built | None = None,
        scale: str | Path | None = None,
        tokenizer: str | Tokenizer | None = None,
    ) -> pl.DataFrame:
        """The model's answers to new rows, read and scaled as its training rows were.

        Args:
            rows: a CSV, parquet or npz file; a frame with the columns the model was trained on; an
                array of features; or, of a model that reads texts, a list of them. With a column of
                labels, these are in the answer too
            client: as for `model`
            build: as for `model`
            scale: of a federation's run, whose clients scale their own rows: the manifest with the
                [mean] and [std] they agreed on, or "none"
            tokenizer: for a run that was loaded and reads texts: the function that makes tokens of
                them, or its import path

        One row for each: `row` (from 1), `label` where it is known, and what the task predicts:
        `prediction` and `p_CLASS`, the probability of every class; `p_LABEL` of several labels;
        `prediction` of numbers; `log_risk` of survival; `prediction` and `p`, the likeliest next
        token and its probability; of a task of your own the outputs, `output_0` and so on.
        """
        return self.predict_and_score(rows, client, build, scale, tokenizer)[0]

    def predict_and_score(
        self,
        rows: Any,
        client: str | int | None = None,
        build: Built | None = None,
        scale: str | Path | None = None,
        tokenizer: str | Tokenizer | None = None,
    ) -> tuple[pl.DataFrame, dict[str, float] | None]:
        """What `predict` gives, and where rows have labels, the scores and the loss of the task by
        name, over all of them. None without labels, and for a task of your own."""
        recipe = read_by(self._asked(scale), tokenizer)
        return predictions(self.model(client, build), recipe, rows)

    def export(
        self,
        path: str | Path,
        client: str | int | None = None,
        build: Built | None = None,
        scale: str | Path | None = None,
    ) -> Path:
        """Write the model for use without muster: `model.pt` (a state_dict), `model.ts`
        (TorchScript) or `model.onnx`; next to it, in `model.ts.json`, columns, scale and labels.

        TorchScript and ONNX take rows as they are in the table, as numbers, and give what `predict`
        does; a state_dict is of the module alone. `client`, `build` and `scale` as for `predict`.
        """
        where = as_export(path)
        return export(self.model(client, build), self._asked(scale), where)

    def _asked(self, scale: str | Path | None) -> Recipe:
        """The recipe, with all that has to be known of rows."""
        if self.recipe is None:
            raise MusterError(
                "predict: this run was saved by an earlier version, without the form of its rows; "
                "ask run.model(build=...) itself"
            )
        return rescaled(self.recipe, scale)

    @cached_property
    def concerns(self) -> list[str]:
        """What is wrong with this run, and what to do about it; empty when nothing is."""
        return concerns(self.rounds, self.clients, self.facts)

    @property
    def idle(self) -> bool:
        """Whether every round was skipped: nobody's reply counted, and nothing was learned."""
        return len(self.rounds) > 0 and bool(self.rounds["skipped"].all())

    @property
    def label(self) -> str:
        """What its method is called: its label, where its configuration has only that one."""
        labels = [method["label"] for method in self.config.get("methods", [])]
        return str(labels[0]) if len(labels) == 1 else self.method

    def report(self, path: str | Path, title: str = "") -> Path:
        """Write everything about this run to one HTML file that opens anywhere."""
        where = Path(path)
        page.report({self.label: [self]}, where, title=title, complete=self.complete)
        return where

    def _repr_html_(self) -> str:
        return str(page.render_inline({self.label: [self]}))

    def __repr__(self) -> str:
        state = "" if self.complete else ", interrupted"
        rounds = plural(len(self.rounds), "round")
        return f"Run({self.method}, seed {self.seed}, {rounds}{state})"


class NoQuorum(MusterError):
    """Too few of the clients that the model is for were heard in a round."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `run` holds everything up to the last finished round."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"interrupted after round {len(run.rounds)}")
        self.run = run
