"""A client's state between rounds, stored where the client is.

Flower stores a record of each client's state while a run lasts. In a folder the state outlives
that: a server that is restarted goes on with clients that still have theirs.

A client's work in a round counts only once the server says so. A reply that came too late, or was
lost with a server that died, must not change the client's state: so two are stored, the one before
its last training and the one after it, and every message says which of them counts. Nothing is
dropped before the client trains again: a server that dies may come back with its earlier state.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, RecordDict
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ...base.durable import atomic_file
from ...base.errors import MusterError
from ...base.params import Params, State, reorder
from ...base.untrusted_files import read_text
from ..server.fit_columns import hash_transform
from ..transport.private_files import make_private_folder, write_private
from ..transport.wire import UNSTATED, pack, unpack

NOTES = "notes"
HELD = "held"
REPLY = "reply"
BASE, LATEST = "base.", "latest."  # before the name of a part


class ClientState:
    """The state of one client in one run, in a Flower state record and a file.

    Args:
        state: the record that Flower stores
        run: a hash of the run; the state of another run is dropped
        counted: the last round (from 1) whose reply counted, by the server
        folder: of the file; None: there is none
        agreed: a hash of the terms that the owner agreed to, by which contributions are counted
    """

    def __init__(
        self,
        state: RecordDict,
        run: str,
        counted: int,
        dtype: torch.dtype,
        folder: Path | None = None,
        agreed: str = "",
    ) -> None:
        self.state, self.run, self.dtype, self.folder = state, run, dtype, folder
        self.agreed = agreed or run
        if not state.config_records.get(NOTES) and folder is not None:
            self._load(folder)
        if self.get("run", "") != run:
            state.clear()
            state[NOTES] = ConfigRecord({"run": run})
        self.counted, self.counts = counted, self._find_counted(counted)

    def get(self, name: str, default: Any) -> Any:
        """Return a stored value, or else a default."""
        notes = self.state.config_records.get(NOTES)
        return default if notes is None else notes.get(name, default)

    def put(self, **values: Any) -> None:
        """Store values by name."""
        self.state[NOTES] = ConfigRecord({**self.state.config_records[NOTES], **values})

    def get_model(self, t: int) -> Params | None:
        """Return the model of round t, if it is stored."""
        if self.get("held", -1) != t:
            return None
        return unpack(self.state.array_records[HELD], self.dtype)

    def put_model(self, t: int, model: Params) -> None:
        """Store the model of round t for the next message about it."""
        self.state[HELD] = pack(model)
        # A run that is resumed from an earlier round may have another model for the same round.
        self.put(held=t, appraised=-1)

    def get_reply(self, t: int) -> Params:
        """Return the model trained in round t, which was not sent with its sketch."""
        if self.get("replied", -1) != t:
            raise MusterError(f"round {t}: no model of this round is stored; nothing was sent")
        return unpack(self.state.array_records[REPLY], self.dtype)

    def put_reply(self, t: int, model: Params) -> None:
        """Store the model trained in round t until the server asks for it, or the next round."""
        self.state[REPLY] = pack(model)
        self.put(replied=t)

    def update_transform(self, name: str, carried: str) -> str:
        """Return the scaler and encoder of features (as text; "": none) with a hash: the one that
        this message carries, which is stored, or the stored one."""
        text = carried or self.get("fitted", "")
        if (hash_transform(text) if text else "") != name:
            raise MusterError("features: their scaler and encoder were not sent, nor stored before")
        if carried:
            self.put(fitted=text)
        return text

    def get_appraisal(self, t: int) -> tuple[float, float] | None:
        """Return its loss and score at the model of round t, if they are stored."""
        if self.get("appraised", -1) != t:
            return None
        return self.get("loss", 0.0), self.get("score", 0.0)

    def put_appraisal(self, t: int, loss: float, score: float) -> None:
        """Store its loss and score at the model of round t."""
        self.put(appraised=t, loss=loss, score=score)

    def get_solo(self) -> tuple[float, float, float] | None:
        """Return the loss, held-out loss and held-out score of training alone, if stored."""
        found = self.get("solo", [])
        return (found[0], found[1], found[2]) if found else None

    def put_solo(self, loss: float, test_loss: float, test_score: float) -> None:
        """Store the results of training alone."""
        self.put(solo=[loss, test_loss, test_score])
        self.save()

    def get_count(self, what: str) -> int:
        """Return how often it gave something (a contribution, say) under the terms that its owner
        agreed to. Other runs in between, another seed or another number for it change nothing."""
        file = self._find_count(what)
        try:
            return int(read_text(file))
        except FileNotFoundError:
            return 0
        except ValueError:
            raise MusterError(
                f"{file}: no number, and it counts what this client has given; put it back from a "
                "copy, or agree to new terms"
            ) from None

    def put_count(self, what: str, count: int) -> None:
        """Store how often it gave something: on disk when this returns."""
        write_private(self._find_count(what), str(count))
        self.put(**{what: count})
        self.save()

    def _find_count(self, what: str) -> Path:
        if self.folder is None:
            raise MusterError(
                "privacy: a node counts its contributions in its memory; start it with --memory "
                "FOLDER"
            )
        return self.folder / f"{self.agreed}.{what}"

    def get_memory(self, new: State) -> State:
        """Return the client's memory, as a stack of one: of the last counted round, or new."""
        found = self._parts(self.counts) if self.counts else {}
        fresh = found or new
        return {
            part: {name: t[None] for name, t in reorder(m, new.get(part, ())).items()}
            for part, m in reorder(fresh, new).items()
        }

    def put_memory(self, round: int, memory: State) -> None:
        """Store the memory (a stack of one) after a round; it counts once the server says so."""
        if self.counts != BASE:
            self._put_parts(BASE, self._parts(self.counts) if self.counts else {})
            self.put(base=self.counted)
            self.counts = BASE
        self._put_parts(LATEST, {p: {n: t[0] for n, t in m.items()} for p, m in memory.items()})
        self.put(latest=round)
        self.save()

    def _find_counted(self, counted: int) -> str:
        """Return the prefix of the memory of the last counted round; "": the client starts new."""
        base, latest = self.get("base", 0), self.get("latest", 0)
        if counted in (base, UNSTATED):
            return BASE
        if counted == latest:
            return LATEST
        if counted == 0:
            return ""
        raise MusterError(
            f"memory: the server's last counted round is {counted}, and this client has stored "
            f"{base} and {latest}; give the node its memory-path of that run, or start a new run"
        )

    def _parts(self, prefix: str) -> State:
        return {
            key.removeprefix(prefix): unpack(record, self.dtype)
            for key, record in self.state.array_records.items()
            if key.startswith(prefix)
        }

    def _put_parts(self, prefix: str, memory: State) -> None:
        for key in [k for k in self.state if k.startswith(prefix)]:
            del self.state[key]
        for part, m in memory.items():
            self.state[prefix + part] = pack(m)

    @property
    def _file(self) -> Path | None:
        return None if self.folder is None else self.folder / "memory.safetensors"

    def save(self) -> None:
        """Write the state to its folder, whole or not at all."""
        if self.folder is None or self._file is None:
            return
        make_private_folder(self.folder)
        tensors = {
            f"{prefix}{part}/{name}": t.contiguous()
            for prefix in (BASE, LATEST)
            for part, m in self._parts(prefix).items()
            for name, t in m.items()
        }
        notes = {k: v for k, v in self.state.config_records[NOTES].items() if k != "held"}
        with atomic_file(self._file) as new:
            save_file(tensors, new, metadata={NOTES: json.dumps(notes)})

    def _load(self, folder: Path) -> None:
        file = folder / "memory.safetensors"
        if not file.exists():
            return
        try:
            with safe_open(file, framework="pt") as saved:
                notes = json.loads(saved.metadata()[NOTES])
                tensors = {key: saved.get_tensor(key) for key in saved.keys()}  # noqa: SIM118
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise MusterError(
                f"{file}: cannot be read ({error}); remove it to start with a new state"
            ) from None
        self.state[NOTES] = ConfigRecord(notes)
        memory: State = {}
        for key, t in tensors.items():
            part, name = key.split("/", 1)
            memory.setdefault(part, {})[name] = t
        for part, m in memory.items():
            self.state[part] = pack(m)
