"""The trained model of a run, rebuilt as an nn.Module from saved weights and a recipe.

    run.model()                 the trained nn.Module
    run.model(client="north")   a client's own, where the method has them (Ditto, pFedMe, local)

A run stores the recipe of its model: what was built, for which rows. On disk that is `model.json`,
plain values next to the weights. Of the user's own code only its name is stored, and nothing is
imported because a file names it: `build` gives the module then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Int64
from ..base.checks import is_whole
from ..base.errors import MusterError, first_line, nearest
from ..base.lazy import nn, pl, torch
from ..base.registry import find_name, kinds
from ..base.schema import convert, to_table
from ..data.files.manifest import read_manifest
from ..federation import Inputs, Scaler
from ..federation.text_encoder import Tokenizer
from ..models.specs import Spec
from ..tasks.task import Task, target_size

if TYPE_CHECKING:
    Built = nn.Module | Spec | Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class ModelRecipe:
    """The values from which a run's model is built again, and its predictions are read.

    Attributes:
        inputs: the form of its rows, and the names of its classes
        outputs: the number of its outputs
        serves: the model the method trains: "global", or each client's "own"
        model: the table of the spec that built it; None: a module of the user's
        called: the import path of what built it
        module: the module itself, in the process that trained it
        task: the table of its task; of the user's own task, its name
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
    ) -> ModelRecipe:
        """Return the recipe of a module that `model` built."""
        name = find_name(Spec, model)
        ours = name is not None and ":" not in name
        called = f"{type(model).__module__}:{type(model).__qualname__}"
        table = to_table(model) if ours else None
        kind = find_name(Task, task)
        known = to_table(task) if kind is not None and ":" not in kind else {"kind": repr(task)}
        outputs = task.outputs(target_size(inputs))
        return cls(inputs, outputs, serves, table, called, module, known)

    def table(self) -> dict[str, Any]:
        """Return all of it but the module, as plain values."""
        rest = {k: v for k, v in vars(self).items() if k not in ("module", "inputs")}
        return {**rest, "inputs": self.inputs.to_dict()}

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> ModelRecipe:
        """Read a recipe from plain values."""
        return cls(**{**table, "inputs": Inputs.from_dict(table["inputs"])})

    def get_task(self) -> Task | None:
        """Return its task; None for the user's own."""
        if self.task.get("kind") not in kinds(Task):
            return None
        task: Task = convert(self.task, Task, "task")
        return task

    def build(self) -> nn.Module:
        """Return the module, with arbitrary parameters."""
        if self.module is not None:
            return self.module
        if self.model is None:
            raise MusterError(
                f"model: this run trained {self.called}, your own code, which is not saved with "
                "it; give what builds it: run.model(build=...), or --model module:name"
            )
        spec: Spec = convert(self.model, Spec, "model")
        return spec.build(self.inputs.space(self.outputs), 0)


@dataclass(frozen=True, eq=False)
class ClientModels:
    """The own models of those clients that have trained one.

    Attributes:
        clients: their numbers
        models: by the names of the module's state, each [client, *shape]
    """

    clients: Int64
    models: dict[str, NDArray[Any]]

    def get(self, k: int, name: str) -> dict[str, NDArray[Any]]:
        """Return the model of client k, which an error calls `name`."""
        at = np.flatnonzero(self.clients == k)
        if not len(at):
            raise MusterError(f"client {name}: has not trained, so it has no own model")
        return {name: stack[at[0]] for name, stack in self.models.items()}


def find_client(client: str | int, final: pl.DataFrame) -> int:
    """Return a client's number from its name or its number."""
    names = final["name"].to_list() if "name" in final.columns else []
    if client in names:
        return names.index(client)
    whole = int(client) if is_whole(client) or str(client).isdecimal() else -1
    if not 0 <= whole < len(final):
        known = nearest(str(client), names) if names else f"allowed: 0 to {len(final) - 1}"
        raise MusterError(f"client: no '{client}'; {known}")
    return whole


def assemble(
    recipe: ModelRecipe | None,
    state: Mapping[str, NDArray[Any]],
    build: Built | None,
    own: Mapping[str, NDArray[Any]] | None = None,
) -> nn.Module:
    """Return the module with these weights, overridden by a client's own, in `eval` mode."""
    if build is None and recipe is None:
        raise MusterError(
            "model: only the weights of this run were saved (by an earlier version); give what "
            "builds the module: run.model(build=...)"
        )
    if build is None:
        assert recipe is not None
        module = recipe.build()
    else:
        module = build_module(build, recipe)
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
        # Copied, so that the run's arrays do not change with the module.
        module.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in state.items()})
    except RuntimeError as error:
        why = str(error).strip().splitlines()[-1].strip()
        raise MusterError(f"model: it is not the module that was trained: {why}") from None
    target = module.state_dict()
    with torch.no_grad():
        for name, a in (own or {}).items():
            target[name].copy_(torch.from_numpy(a.copy()))
    return module.eval()


def build_module(build: Built, recipe: ModelRecipe | None) -> nn.Module:
    """Return the module that a user gives: the module, its class, a function, or a spec."""
    try:
        made = build() if callable(build) and not isinstance(build, nn.Module) else build
    except Exception as error:
        raise MusterError(f"build: cannot be called ({first_line(error)}); give a module") from None
    if isinstance(made, Spec) and not isinstance(made, nn.Module) and recipe is not None:
        made = made.build(recipe.inputs.space(recipe.outputs), 0)
    if not isinstance(made, nn.Module):
        raise MusterError(f"build: {type(made).__name__}; give an nn.Module, or what returns one")
    return made


def use_tokenizer(recipe: ModelRecipe, tokenizer: str | Tokenizer | None) -> ModelRecipe:
    """Return the recipe with the tokenizer of its texts, where one is given."""
    inputs = recipe.inputs
    if tokenizer is None:
        return recipe
    if inputs.text is None:
        raise MusterError("tokenizer: the rows of this run are not texts; leave it out")
    return replace(recipe, inputs=replace(inputs, text=inputs.text.with_tokenizer(tokenizer)))


def use_scale(recipe: ModelRecipe, scale: str | Path | None) -> ModelRecipe:
    """Return the recipe with the scale that clients agreed on: a manifest's, or none. Without one,
    the recipe must have the scale of its rows."""
    inputs = recipe.inputs
    if scale is None and not inputs.scaled:
        raise MusterError(
            "rows: across a network clients scale their own rows, and their scale is not known "
            "here; give scale, the manifest with the [mean] and [std] they agreed on, or scale none"
        )
    if scale is None:
        return recipe
    if inputs.scaled:
        raise MusterError("scale: this run has the scale of its rows; leave it out")
    if str(scale) == "none":
        return replace(recipe, inputs=replace(inputs, scaled=True))
    found = read_manifest(Path(scale).expanduser())
    if not found.mean:
        raise MusterError(f"{scale}: has no [mean] and [std]; give those the clients agreed on")
    columns = inputs.columns or tuple(found.mean)
    if set(columns) != set(found.mean):
        (name, *_) = sorted(set(columns) ^ set(found.mean))
        raise MusterError(f"{scale}: '{name}' is in its [mean] or the model's columns, not in both")
    mean, std = (np.array([values[c] for c in columns]) for values in (found.mean, found.std))
    if mean.shape != inputs.shape:
        raise MusterError(
            f"{scale}: {len(mean)} features in [mean]; the model takes rows of shape {inputs.shape}"
        )
    agreed = replace(inputs, columns=columns, scaler=Scaler(mean, std), scaled=True)
    return replace(recipe, inputs=agreed)
