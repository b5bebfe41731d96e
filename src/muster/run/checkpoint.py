"""Checkpoints: the state of a run under way, saved so that it goes on to the same bits.

Every file has its checksum, written last: a bit that flips on the disk is noticed, not computed
with. The last two checkpoints are kept, so that a run whose last one is damaged goes on from the
one before, and says so.
"""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.durable import atomic_folder
from ..base.errors import MusterError, MusterWarning
from ..base.lazy import safetensors, torch
from ..base.params import Params, State, reorder
from ..base.untrusted_files import TENSORS, descriptor_path, open_file, plain_name, read_json
from ..protocol import RunState
from ..results.ledger import SCORE, Ledger
from ..results.store import digest, get_round, list_checkpoints, reading, writing
from ..results.validation import check_ledger

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2
SUMS = "sums.json"


def save_checkpoint(
    folder: Path, state: RunState, ledger: Ledger, identity: dict[str, str]
) -> None:
    """Save the state after a round; all but the last two go once this one is complete."""
    place = folder / f"round-{state.round:08d}"
    if place.exists():
        if not damage(place):
            return  # the same state: a run goes the same way every time
        shutil.rmtree(place)
    tensors = {f"model/{k}": t for k, t in state.model.items()}
    tensors["present/"] = torch.from_numpy(state.present)
    for part, table in state.server.items():
        tensors |= {f"server/{part}/{k}": t for k, t in table.items()}
    if state.clients is not None:
        tensors |= {f"clients/{k}": t for k, t in state.clients.to_tensors().items()}
    with writing(place), atomic_folder(place) as new:
        safetensors.save_file(
            {k: t.cpu().contiguous() for k, t in tensors.items()}, new / "s.safetensors"
        )
        ledger.write(new)
        (new / "identity.json").write_text(json.dumps(identity))
        sums = {file.name: digest(file) for file in sorted(new.iterdir())}
        (new / SUMS).write_text(json.dumps(sums))
    for old in list_checkpoints(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def damage(place: Path) -> str:
    """What is wrong with the files of a checkpoint; "" when nothing is."""
    try:
        for name, expected in texts(place / SUMS).items():
            if digest(place / plain_name(name)) != expected:
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (OSError, ValueError) as error:
        return f"{SUMS} cannot be read ({error})"
    return ""


def read_identity(folder: Path) -> dict[str, str]:
    """What the last sound checkpoint in a folder was made with; nothing without any."""
    sound = [place for place in list_checkpoints(folder) if not damage(place)]
    if not sound:
        return {}
    with reading(sound[-1]):
        return texts(sound[-1] / "identity.json")


def texts(file: Path) -> dict[str, str]:
    """The texts by name that a JSON file holds."""
    found = read_json(file)
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise ValueError(f"{file.name}: a table of texts belongs there")
    return found


def load_checkpoint(
    folder: Path,
    identity: dict[str, str],
    beginning: RunState,
    device: torch.device,
    score: str = SCORE,
) -> tuple[RunState, Ledger] | None:
    """The last sound checkpoint, laid over the state a run begins with; None without any. One of
    another run is refused. `score` is what the run's score is called."""
    found = list_checkpoints(folder)
    wrong = {place: damage(place) for place in found}
    sound = [place for place in found if not wrong[place]]
    if not found:
        return None
    if not sound:
        raise MusterError(
            f"{found[-1]}: {wrong[found[-1]]}, and there is no sound checkpoint before it; remove "
            f"{folder} to start again"
        )
    place = sound[-1]
    for bad in found[found.index(place) + 1 :]:
        warnings.warn(
            f"{bad}: {wrong[bad]}; going on from {place.name} instead",
            MusterWarning,
            stacklevel=2,
        )
    with reading(place):
        saved = texts(place / "identity.json")
        with open_file(file := place / "s.safetensors", TENSORS) as held:
            tensors = safetensors.load_file(descriptor_path(held, file), device=str(device))
        ledger = Ledger.read(place, score)
    for key, value in identity.items():
        if saved.get(key) != value:
            raise MusterError(
                f"resume: the checkpoint in {folder} was made with {key}={saved.get(key)}, this "
                f"run has {key}={value}; resume with the same settings or use another folder"
            )
    lacks = [f"{p}/{n}" for p, t in beginning.server.items() for n in t]
    lacks = [name for name in lacks if f"server/{name}" not in tensors]
    if lacks:
        raise MusterError(
            f"resume: the checkpoint holds no {', '.join(lacks)}: it is of another version of "
            "muster; go on with that one, or start again in another folder"
        )
    with reading(place):
        check_ledger(ledger, len(beginning.present))
        return from_saved(beginning, get_round(place), tensors), ledger


def refuse_other_form(what: str, begun: Params, saved: Params) -> None:
    """Tensors that were saved must be like those a run begins with."""
    if begun.keys() != saved.keys():
        raise ValueError(f"{what}: {min(begun.keys() ^ saved.keys())} is not in both")
    for name, t in begun.items():
        if t.shape != saved[name].shape or t.dtype != saved[name].dtype:
            raise ValueError(f"{what}: {name} is not of the shape and kind that this run has")


def from_saved(beginning: RunState, round: int, tensors: dict[str, Tensor]) -> RunState:
    """The state that was saved, over the one a run begins with."""
    model: dict[str, Tensor] = {}
    server: State = {}
    clients: dict[str, Tensor] = {}
    present = beginning.present
    for key, t in tensors.items():
        where, _, name = key.partition("/")
        if where == "model":
            model[name] = t
        elif where == "present":
            present = t.cpu().numpy()
        elif where == "clients":
            clients[name] = t.cpu()
        else:
            part, _, name = name.partition("/")
            server.setdefault(part, {})[name] = t
    refuse_other_form("model", beginning.model, model)
    pool = {"present": torch.from_numpy(beginning.present)}
    refuse_other_form("pool", pool, {"present": torch.from_numpy(present)})
    memories = beginning.clients and beginning.clients.restore(clients)
    known = beginning.server
    server = {p: reorder(t, known.get(p, ())) for p, t in reorder(server, known).items()}
    return replace(
        beginning,
        round=round,
        model=reorder(model, beginning.model),
        server=server,
        clients=memories,
        present=present,
    )
