"""The result of a run: its model, and everything that happened, as polars frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..base.errors import MusterError, plural
from ..base.lazy import get_provider, nn, pl
from ..data.files.new_rows import RowOptions, Unknown
from ..federation.text_encoder import Tokenizer
from .export import check_export_path, export
from .model import ClientModels, ModelRecipe, assemble, find_client, use_scale, use_tokenizer
from .predict import predict_rows
from .run_warnings import Facts, find_warnings

if TYPE_CHECKING:
    from .model import Built

OnRound = Callable[[dict[str, Any]], None]

page = get_provider("report")
HOLDINGS = {"client": int, "label": int, "rows": int}


@dataclass(frozen=True)
class Run:
    """A finished (or interrupted) run.

    Attributes:
        weights: the model, under the module's state_dict names
        rounds: one row per round, measured on the model after that round's step
        clients: one row per round and asked client: its loss and accuracy at the broadcast model
        moves: one row for each time a client left the pool or returned to it
        attackers: one row per round and attacker: its share of the step, and the share that an
            honest reply would have had
        final: one row per client: the last model on its training and held-out data
        holdings: one row per client and class that it has training rows of, where that is known
        own: the clients' own models, where the method has them
        recipe: how to build the model again: columns, scale, labels, model spec
        note: a remark on the data that belongs with these results
        facts: baselines and origin: the loss before the first round, that of a constant
            prediction, the accuracy of always predicting the most frequent class, the environment
        warnings: reasons to doubt the numbers, a sentence each
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
    own: ClientModels | None = None
    recipe: ModelRecipe | None = None
    holdings: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=HOLDINGS))

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, where the data has them."""
        return None if self.recipe is None else self.recipe.inputs.labels

    def model(self, client: str | int | None = None, build: Built | None = None) -> nn.Module:
        """Return the trained module in `eval` mode; changing it does not change the run.

        Args:
            client: name or number of a client, for its own model, where the method has them
            build: for a loaded run that trained your own module: the module, its class, or a
                function that returns one; its parameters do not matter
        """
        if client is None:
            if self.recipe is not None and self.recipe.serves == "own":
                raise MusterError(
                    f"model: {self.method} has no common model, each client has its own; choose "
                    "one with client=..."
                )
            return assemble(self.recipe, self.weights, build)
        k = find_client(client, self.final)
        if self.own is None:
            why = "they stay with the clients" if self.engine == "flower" else "none were saved"
            raise MusterError(
                f"client: {self.method} has no clients' own models here ({why}); leave client out "
                "for the common one"
            )
        return assemble(self.recipe, self.weights, build, self.own.get(k, str(client)))

    def predict(
        self,
        rows: Any,
        client: str | int | None = None,
        build: Built | None = None,
        scale: str | Path | None = None,
        tokenizer: str | Tokenizer | None = None,
        keep: Sequence[str] = (),
        unknown: Unknown = "error",
    ) -> pl.DataFrame:
        """Return the model's predictions for new rows, read and scaled as its training rows were.

        Args:
            rows: a CSV, parquet or npz file; a frame with the columns the model was trained on; an
                array of features; or, for a model of texts, a list of them. A column of labels is
                returned too
            client: as for `model`
            build: as for `model`
            scale: for a run across a network, whose clients scale their own rows: the manifest with
                the [mean] and [std] they agreed on, or "none"
            tokenizer: for a loaded run of texts: the function that turns a text into tokens, or its
                import path
            keep: columns of a table to carry through, such as an id
            unknown: for a category's level that no training row has: "error", or "missing" to treat
                it as missing and flag the row

        Returns:
            one row for each: `row` (from 1), the columns to keep, `label` where it is known, and
                what the task predicts: `prediction` and `p_CLASS`, the probability of every class;
                `p_LABEL` for several labels; `prediction` for numbers; `log_risk` for survival;
                `prediction` and `p`, the likeliest next token and its probability; for your own
                task the outputs, `output_0` and so on. Where rows of a table are unlike training
                rows, `flags` says how: values more than 7 standard deviations from their mean (or
                outside the range that was agreed on), unknown levels
        """
        return self.predict_and_score(rows, client, build, scale, tokenizer, keep, unknown)[0]

    def predict_and_score(
        self,
        rows: Any,
        client: str | int | None = None,
        build: Built | None = None,
        scale: str | Path | None = None,
        tokenizer: str | Tokenizer | None = None,
        keep: Sequence[str] = (),
        unknown: Unknown = "error",
    ) -> tuple[pl.DataFrame, dict[str, float] | None]:
        """Return the table of `predict`, and the task's scores and loss over all rows by name; None
        in their place without labels, and for your own task."""
        recipe = use_tokenizer(self._get_recipe(scale), tokenizer)
        options = RowOptions((keep,) if isinstance(keep, str) else tuple(keep), unknown)
        return predict_rows(self.model(client, build), recipe, rows, options)

    def export(
        self,
        path: str | Path,
        client: str | int | None = None,
        build: Built | None = None,
        scale: str | Path | None = None,
    ) -> Path:
        """Write the model for use without muster: `model.pt` (a state_dict), `model.ts`
        (TorchScript) or `model.onnx`; next to it, in `model.ts.json`, columns, scale and labels.

        TorchScript and ONNX take rows as they are in the table, as numbers, and return what
        `predict` does; a state_dict is of the module alone. `client`, `build` and `scale` as for
        `predict`.
        """
        file = check_export_path(path)
        return export(self.model(client, build), self._get_recipe(scale), file)

    def _get_recipe(self, scale: str | Path | None) -> ModelRecipe:
        """Return the recipe with the scale of its rows."""
        if self.recipe is None:
            raise MusterError(
                "predict: this run was saved by an earlier version, without the form of its rows; "
                "call run.model(build=...) yourself"
            )
        return use_scale(self.recipe, scale)

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings about this run, each with a suggested fix; empty when nothing is wrong."""
        return find_warnings(self.rounds, self.clients, self.facts)

    @property
    def concerns(self) -> list[str]:
        """The earlier name of `warnings`."""
        return self.warnings

    @property
    def idle(self) -> bool:
        """True if every round was skipped: no reply was admitted, and nothing was learned."""
        return len(self.rounds) > 0 and bool(self.rounds["skipped"].all())

    @property
    def label(self) -> str:
        """The label of its method, where its configuration has one method only; else its name."""
        labels = [method["label"] for method in self.config.get("methods", [])]
        return str(labels[0]) if len(labels) == 1 else self.method

    def report(self, path: str | Path, title: str = "") -> Path:
        """Write everything about this run to one HTML file that opens anywhere."""
        file = Path(path)
        page.report({self.label: [self]}, file, title=title, complete=self.complete)
        return file

    def _repr_html_(self) -> str:
        return str(page.render_inline({self.label: [self]}))

    def __repr__(self) -> str:
        state = "" if self.complete else ", interrupted"
        rounds = plural(len(self.rounds), "round")
        return f"Run({self.method}, seed {self.seed}, {rounds}{state})"


class NoQuorum(MusterError):
    """Too few of the objective's clients replied in a round."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `run` has everything up to the last finished round."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"interrupted after round {len(run.rounds)}")
        self.run = run
