"""Checkpoints: the state of a run under way, saved so that it can resume with the same bits.

Checksums of all files are written last, so that damage on disk is detected. The last two
checkpoints stay: a run whose last one is damaged resumes from the one before, with a warning.

Of a run on several ranks, rank 0 reads and writes them, and the others get a copy: so only rank 0's
machine needs the folder. The files are copied as they are (safetensors, parquet, JSON), and the
other ranks read them as rank 0 does, with the same checks.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.checks import check_whole
from ..base.durable import atomic_folder
from ..base.errors import MusterError, MusterWarning
from ..base.lazy import safetensors, torch
from ..base.params import Params, State, reorder
from ..base.untrusted_files import TENSORS, descriptor_path, open_file, plain_name, read_json
from ..engines.compute import Ranks
from ..protocol import RunState
from ..results.ledger import SCORE, Ledger
from ..results.store import digest, get_round, list_checkpoints, reading, writing
from ..results.validation import check_ledger

if TYPE_CHECKING:
    from torch import Tensor

KEEP_LAST = 2
SUMS = "sums.json"
NEVER = 10**9  # rounds


@dataclass(frozen=True)
class Keep:
    """Settings of evaluation and checkpoints.

    Attributes:
        evaluate_every: evaluate the model on every client every n rounds and after the last one; 0:
            after the last only
        checkpoint: the folder where the state is saved every `checkpoint_every` rounds; None:
            nowhere
        resume: resume from the last checkpoint there
    """

    evaluate_every: int = 1
    checkpoint: Path | None = None
    checkpoint_every: int = 10
    resume: bool = False

    def __post_init__(self) -> None:
        check_whole("evaluate_every", self.evaluate_every, 0)
        check_whole("checkpoint_every", self.checkpoint_every)
        if self.resume and self.checkpoint is None:
            raise MusterError("resume: needs checkpoint=FOLDER, the folder of its checkpoints")


def save_checkpoint(
    folder: Path, state: RunState, ledger: Ledger, identity: dict[str, str]
) -> None:
    """Save the state after a round, then delete all but the last two checkpoints."""
    place = folder / f"round-{state.round:08d}"
    if place.exists():
        if not find_damage(place):
            return  # the same state: a run is deterministic
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
    for old in list_checkpoints(folder)[:-KEEP_LAST]:
        shutil.rmtree(old, ignore_errors=True)


def find_damage(place: Path) -> str:
    """Return what is wrong with the files of a checkpoint; "" when nothing is."""
    try:
        for name, expected in read_texts(place / SUMS).items():
            if digest(place / plain_name(name)) != expected:
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (OSError, ValueError) as error:
        return f"{SUMS} cannot be read ({error})"
    return ""


def read_identity(folder: Path) -> dict[str, str]:
    """Read the identity of the run in the last sound checkpoint of a folder; {} without any."""
    place = find_last(folder)
    if place is None:
        return {}
    with reading(place):
        return read_texts(place / "identity.json")


def find_last(folder: Path) -> Path | None:
    """Return the last sound checkpoint of a folder."""
    places = reversed(list_checkpoints(folder))
    return next((place for place in places if not find_damage(place)), None)


def read_texts(file: Path) -> dict[str, str]:
    """Read a JSON file of texts by name."""
    found = read_json(file)
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise ValueError(f"{file.name}: a table of texts belongs there")
    return found


def load_checkpoint(
    folder: Path,
    identity: dict[str, str],
    beginning: RunState,
    score: str = SCORE,
) -> tuple[RunState, Ledger] | None:
    """Read the last sound checkpoint of a run; None without any. One of another run is refused.

    Args:
        identity: of the run that resumes (`training_loop.build_identity`)
        beginning: the run's initial state, whose form the saved one must have
        score: the name of the run's score
    """
    found = list_checkpoints(folder)
    wrong = {place: find_damage(place) for place in found}
    sound = [place for place in found if not wrong[place]]
    if not found:
        return None
    if not sound:
        raise MusterError(
            f"{found[-1]}: {wrong[found[-1]]}, and there is no sound checkpoint before it; restore "
            f"one from a copy, or start from round 1 without the folder {folder}"
        )
    place = sound[-1]
    for bad in found[found.index(place) + 1 :]:
        warnings.warn(
            f"{bad}: {wrong[bad]}; resuming from {place.name} instead",
            MusterWarning,
            stacklevel=2,
        )
    with reading(place):
        saved = read_texts(place / "identity.json")
        with open_file(file := place / "s.safetensors", TENSORS) as stream:
            tensors = safetensors.load_file(descriptor_path(stream, file))
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
            f"resume: the checkpoint has no {', '.join(lacks)}: it is of another version of "
            "muster; resume with that one, or start again in another folder"
        )
    with reading(place):
        check_ledger(ledger, len(beginning.present))
        return restore_state(beginning, get_round(place), tensors), ledger


def check_same_form(what: str, expected: Params, saved: Params) -> None:
    """Refuse saved tensors of other names, shapes or types than a run's."""
    if expected.keys() != saved.keys():
        raise ValueError(f"{what}: {min(expected.keys() ^ saved.keys())} is not in both")
    for name, t in expected.items():
        if t.shape != saved[name].shape or t.dtype != saved[name].dtype:
            raise ValueError(f"{what}: {name} has another shape or type than in this run")


def restore_state(beginning: RunState, round: int, tensors: dict[str, Tensor]) -> RunState:
    """Return the state that was saved, each tensor where it is in the initial one, in the order of
    names there."""
    model: dict[str, Tensor] = {}
    server: State = {}
    clients: dict[str, Tensor] = {}
    present, known = beginning.present, beginning.server
    first = next(iter(beginning.model.values()))
    for key, t in tensors.items():
        where, _, name = key.partition("/")
        if where == "model":
            model[name] = t.to(first.device)
        elif where == "present":
            present = t.numpy()
        elif where == "clients":
            clients[name] = t
        else:
            part, _, name = name.partition("/")
            device = known.get(part, {}).get(name, first).device
            server.setdefault(part, {})[name] = t.to(device)
    check_same_form("model", beginning.model, model)
    pool = {"present": torch.from_numpy(beginning.present)}
    check_same_form("pool", pool, {"present": torch.from_numpy(present)})
    memories = beginning.clients and beginning.clients.restore(clients)
    server = {p: reorder(t, known.get(p, ())) for p, t in reorder(server, known).items()}
    return replace(
        beginning,
        round=round,
        model=reorder(model, beginning.model),
        server=server,
        clients=memories,
        present=present,
    )


@contextmanager
def share_checkpoint(ranks: Ranks, keep: Keep) -> Iterator[Keep]:
    """Provide each rank's `Keep`: rank 0's own; that of the others has a copy of the checkpoint
    that rank 0 resumes from, if there is one, in a folder that is removed afterwards."""
    if ranks.size == 1:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="muster-rank-") as folder:
        mine = keep.checkpoint if keep.resume and ranks.rank == 0 else None
        ranks.copy_folder(mine and find_last(mine), Path(folder))
        if ranks.rank == 0:
            yield keep
        elif not list_checkpoints(Path(folder)):
            yield replace(keep, checkpoint=None, resume=False)
        else:
            yield replace(keep, checkpoint=Path(folder), checkpoint_every=NEVER, resume=True)
