"""The model a run leaves, as a module again, and its answers to new rows.

    run.model()                 the trained nn.Module
    run.model(client="north")   a client's own, where the method keeps them (Ditto, pFedMe, local)
    run.predict(rows)           class names and probabilities of new rows

A run remembers the recipe of its model: what was built, of which rows. On disk that is
`model.json`, plain values next to the weights. Of code of the user's only its name is kept, and
nothing is imported because a file says so: then `build` gives the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Int64
from ..checks import is_whole
from ..data.files.manifest import read_manifest
from ..data.files.new_rows import columns_of, read_rows
from ..errors import MusterError, first_line, nearest
from ..federation import Inputs, Scale, Space
from ..federation.ragged import features
from ..lazy import nn, pl, torch
from ..models import Spec
from ..parts.other_tasks import Binary, Numbers, Poisson, Survival
from ..parts.scores import r2
from ..parts.task import Multiclass, Task, numbers_in
from ..registry import kinds, name_of
from ..schema import convert, plain

TOGETHER = 4096  # rows that go through a model at once
ROW, LABEL, ANSWER, CHANCE = "row", "label", "prediction", "p_"  # columns of predictions

if TYPE_CHECKING:
    Built = nn.Module | Spec | Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a run's model is put together again, and asked.

    inputs   what it takes, and what its answers mean
    outputs  how many numbers it answers with
    serves   whose model the method is for: the global one, or each client's own
    model    the table of the spec that built it; None: a module of the user's
    called   the import path of what built it
    module   the module itself, as long as it is at hand
    task     the table of its task; of code of the user's, what it is called
    """

    inputs: Inputs
    outputs: int
    serves: str = "global"
    model: dict[str, Any] | None = None
    called: str = ""
    module: nn.Module | None = None
    task: dict[str, Any] = field(default_factory=lambda: {"kind": "multiclass"})

    @classmethod
    def of(
        cls, model: nn.Module | Spec, module: nn.Module, inputs: Inputs, task: Task, serves: str
    ) -> Recipe:
        """The recipe of a module that `model` became."""
        name = name_of(Spec, model)
        ours = name is not None and ":" not in name
        called = f"{type(model).__module__}:{type(model).__qualname__}"
        table = plain(model) if ours else None
        kind = name_of(Task, task)
        known = plain(task) if kind is not None and ":" not in kind else {"kind": repr(task)}
        outputs = task.outputs(numbers_in(inputs))
        return cls(inputs, outputs, serves, table, called, module, known)

    def table(self) -> dict[str, Any]:
        """All of it but the module, as plain values."""
        rest = {k: v for k, v in vars(self).items() if k not in ("module", "inputs")}
        return {**rest, "inputs": self.inputs.table()}

    @classmethod
    def of_table(cls, table: dict[str, Any]) -> Recipe:
        """What a table says."""
        return cls(**{**table, "inputs": Inputs.of_table(table["inputs"])})

    def build(self) -> nn.Module:
        """The module, with whatever parameters."""
        if self.module is not None:
            return self.module
        if self.model is None:
            raise MusterError(
                f"model: this run trained {self.called}, which is code of yours and is not kept "
                "with it; give what builds it: run.model(build=...), or --model module:name"
            )
        inputs = self.inputs
        spec: Spec = convert(self.model, Spec, "model")
        return spec.build(Space(inputs.shape, self.outputs, inputs.image), 0)


@dataclass(frozen=True, eq=False)
class Own:
    """The models that clients keep for themselves, of those that have trained.

    clients  whose
    models   by the names of the module's state, each [client, *shape]
    """

    clients: Int64
    models: dict[str, NDArray[Any]]

    def of(self, k: int, called: str) -> dict[str, NDArray[Any]]:
        """One client's."""
        at = np.flatnonzero(self.clients == k)
        if not len(at):
            raise MusterError(f"client {called}: has not trained, so it has no model of its own")
        return {name: stack[at[0]] for name, stack in self.models.items()}


def position(client: str | int, final: pl.DataFrame) -> int:
    """A client's number, from its name or its number."""
    names = final["name"].to_list() if "name" in final.columns else []
    if client in names:
        return names.index(client)
    whole = int(client) if is_whole(client) or str(client).isdecimal() else -1
    if not 0 <= whole < len(final):
        known = nearest(str(client), names) if names else f"allowed: 0 to {len(final) - 1}"
        raise MusterError(f"client: no '{client}'; {known}")
    return whole


def assembled(
    recipe: Recipe | None,
    state: Mapping[str, NDArray[Any]],
    build: Built | None,
    own: Mapping[str, NDArray[Any]] | None = None,
) -> nn.Module:
    """The module that holds these weights, and over them a client's own, ready to be asked."""
    if build is None and recipe is None:
        raise MusterError(
            "model: nothing but weights was kept of this run (it was saved by an earlier "
            "version); give what builds the module: run.model(build=...)"
        )
    if build is None:
        assert recipe is not None
        module = recipe.build()
    else:
        module = built(build, recipe)
    module = deepcopy(module)
    first = next((a for a in state.values() if a.dtype.kind == "f"), np.zeros(0, np.float32))
    module.to("cpu", torch.from_numpy(first[:0].copy()).dtype)
    wrong = set(module.state_dict()) ^ set(state)
    if wrong:
        raise MusterError(
            f"model: {min(wrong)} is in the run's weights or in the module, not in both; give the "
            "module that was trained"
        )
    try:
        # Copied as they are: the arrays stay the run's own.
        module.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in state.items()})
    except RuntimeError as error:
        why = str(error).strip().splitlines()[-1].strip()
        raise MusterError(f"model: it is not the module that was trained: {why}") from None
    held = module.state_dict()
    with torch.no_grad():
        for name, a in (own or {}).items():
            held[name].copy_(torch.from_numpy(a.copy()))
    return module.eval()


def built(build: Built, recipe: Recipe | None) -> nn.Module:
    """What a user says builds the module: the module, its class, a function, or a spec."""
    try:
        made = build() if callable(build) and not isinstance(build, nn.Module) else build
    except Exception as error:
        raise MusterError(f"build: cannot be called ({first_line(error)}); give a module") from None
    if isinstance(made, Spec) and not isinstance(made, nn.Module) and recipe is not None:
        inputs = recipe.inputs
        made = made.build(Space(inputs.shape, recipe.outputs, inputs.image), 0)
    if not isinstance(made, nn.Module):
        raise MusterError(f"build: {type(made).__name__}; give an nn.Module, or what returns one")
    return made


def answers(module: nn.Module, x: NDArray[Any]) -> Float64:
    """Outputs for rows that are prepared."""
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    found = []
    with torch.no_grad():
        for start in range(0, len(x), TOGETHER):
            rows = features(torch.from_numpy(x[start : start + TOGETHER].copy()), dtype)
            found.append(module(rows).double().numpy())
    return np.concatenate(found)


def told(recipe: Recipe, z: Float64) -> dict[str, Any]:
    """What outputs mean, as columns: of classes the likeliest and the chance of each, of numbers
    the numbers, of survival the log risk."""
    task = as_known(recipe.task)
    if isinstance(task, Multiclass | Binary):
        p = torch.softmax(torch.from_numpy(z)[:, : recipe.inputs.classes], dim=1).numpy()
        if isinstance(task, Binary):
            yes = torch.sigmoid(torch.from_numpy(z)[:, 0]).numpy()
            p = np.stack([1.0 - yes, yes], 1)
        names = np.array(recipe.inputs.names)
        chances = {f"{CHANCE}{name}": p[:, c] for c, name in enumerate(names.tolist())}
        return {ANSWER: names[p.argmax(1)], **chances}
    z = np.exp(z) if isinstance(task, Poisson) else z
    if isinstance(task, Survival):
        return {"log_risk": z[:, 0]}
    if isinstance(task, Numbers):
        many = z.shape[1] > 1
        return {f"{ANSWER}_{i}" if many else ANSWER: z[:, i] for i in range(z.shape[1])}
    raise MusterError(
        f"predict: there is no table of answers for the task {recipe.task.get('kind')}; ask "
        "run.model() itself"
    )


def as_known(table: dict[str, Any]) -> Task | None:
    """The task of a table, where it is one of ours."""
    if table.get("kind") not in kinds(Task):
        return None
    task: Task = convert(table, Task, "task")
    return task


def predictions(module: nn.Module, recipe: Recipe, rows: Any) -> pl.DataFrame:
    """One row for each of the new rows: the class with the highest probability, and every
    probability; or whatever its task predicts. Where the rows have labels, those too."""
    inputs = recipe.inputs
    if not inputs.scaled:
        raise MusterError(
            "predict: across a network clients scale their own rows, and how is not known here; "
            "give scale, the manifest with the [mean] and [std] they agreed on, or scale none"
        )
    if isinstance(rows, (str, Path)):
        x, y = read_rows(Path(rows).expanduser(), inputs)
    elif isinstance(rows, Mapping) or hasattr(rows, "columns"):
        x, y = columns_of(as_frame(rows), inputs)
    else:
        x, y = np.asarray(rows), None
    z = answers(module, inputs.prepared(x))
    said = {
        ROW: np.arange(1, len(z) + 1),
        **({} if y is None else {LABEL: y.alias(LABEL)}),
        **told(recipe, z),
    }
    return pl.DataFrame(said)


def rescaled(recipe: Recipe, scale: str | Path) -> Recipe:
    """The recipe with the scale that clients agreed on: a manifest's, or none."""
    inputs = recipe.inputs
    if inputs.scaled:
        raise MusterError("scale: this run knows how its rows were scaled; leave it out")
    if str(scale) == "none":
        return replace(recipe, inputs=replace(inputs, scaled=True))
    found = read_manifest(Path(scale).expanduser())
    if not found.mean:
        raise MusterError(f"{scale}: has no [mean] and [std]; give those the clients agreed on")
    columns = inputs.columns or tuple(found.mean)
    if set(columns) != set(found.mean):
        (name, *_) = sorted(set(columns) ^ set(found.mean))
        raise MusterError(f"{scale}: '{name}' is in its [mean] or the model's columns, not in both")
    mean, std = (np.array([told[c] for c in columns]) for told in (found.mean, found.std))
    if mean.shape != inputs.shape:
        raise MusterError(
            f"{scale}: {len(mean)} features in [mean]; the model takes rows of shape {inputs.shape}"
        )
    agreed = replace(inputs, columns=columns, scale=Scale(mean, std), scaled=True)
    return replace(recipe, inputs=agreed)


def as_frame(rows: Any) -> pl.DataFrame:
    """Columns as a polars frame: a frame, a mapping, or another library's frame."""
    if isinstance(rows, pl.DataFrame):
        return rows
    names = list(rows) if isinstance(rows, Mapping) else list(rows.columns)
    try:
        return pl.DataFrame({str(name): np.asarray(rows[name]) for name in names}, strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise MusterError(f"rows: not a table ({first_line(error)}); give a frame") from None


def score(said: pl.DataFrame) -> dict[str, float] | None:
    """Accuracy and loss of predictions whose rows have labels, R2 and the mean absolute error of
    numbers; None where there is nothing to hold them against."""
    if LABEL not in said.columns or ANSWER not in said.columns:
        return None
    if said[ANSWER].dtype.is_float():
        y, told = (said[name].to_numpy().astype(np.float64) for name in (LABEL, ANSWER))
        found = r2(y, told, np.ones(len(y)))
        return {"R2": found, "mean absolute error": float(np.abs(y - told).mean())}
    names = [name.removeprefix(CHANCE) for name in said.columns if name.startswith(CHANCE)]
    at = said[LABEL].replace_strict(names, list(range(len(names))), return_dtype=pl.Int64)
    p = said.select(pl.col(f"{CHANCE}{name}") for name in names).to_numpy()
    chance = p[np.arange(len(p)), at.to_numpy()]
    with np.errstate(divide="ignore"):
        loss = float(-np.log(chance).mean())
    right = (said[LABEL] == said[ANSWER]).to_numpy()
    return {"accuracy": float(right.mean()), "loss": loss}
