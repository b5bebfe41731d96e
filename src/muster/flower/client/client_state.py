"""A client's diary: what it remembers between rounds, kept where the client is.

Flower keeps a record of each client's state while a run lasts. With a folder of its own the diary
outlives that: a server that is restarted goes on with clients that remember.

What a client did in a round counts only once the server says so. A reply that came too late, or
was lost with a server that died, must not move the client's memory: so the diary keeps two, the
one its last training began from and the one it ended with, and every message says which of them
counts. Nothing is dropped before the client trains again: a server that dies may come back with
the state it had before.
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
from ..server.fit_columns import named
from ..transport.private_files import private_folder
from ..transport.wire import UNSAID, pack, unpack

NOTES = "notes"
HELD = "held"
BASE, LATEST = "base.", "latest."  # before the name of a part


class Diary:
    """The memory of one client in one run, over a Flower state record."""

    def __init__(
        self,
        state: RecordDict,
        run: str,
        counted: int,
        dtype: torch.dtype,
        folder: Path | None = None,
    ) -> None:
        self.state, self.run, self.dtype, self.folder = state, run, dtype, folder
        if not state.config_records.get(NOTES) and folder is not None:
            self._load(folder)
        if self.note("run", "") != run:
            state.clear()
            state[NOTES] = ConfigRecord({"run": run})
        self.counted, self.counts = counted, self._counting(counted)

    def note(self, name: str, default: Any) -> Any:
        """Something noted, or else a default."""
        notes = self.state.config_records.get(NOTES)
        return default if notes is None else notes.get(name, default)

    def write_note(self, **values: Any) -> None:
        """Note something."""
        self.state[NOTES] = ConfigRecord({**self.state.config_records[NOTES], **values})

    def held(self, t: int) -> Params | None:
        """The model of round t, if it came before."""
        if self.note("held", -1) != t:
            return None
        return unpack(self.state.array_records[HELD], self.dtype)

    def hold(self, t: int, model: Params) -> None:
        """Keep the model of round t for the next message about it."""
        self.state[HELD] = pack(model)
        # A run that goes on from an earlier round may come to another model for the same one.
        self.write_note(held=t, appraised=-1)

    def fitted(self, name: str, carried: str) -> str:
        """What features are made by, as it came with this message or before; "": nothing is. It
        goes by its hash."""
        text = carried or self.note("fitted", "")
        if (named(text) if text else "") != name:
            raise MusterError("features: what they are made by did not come, and is not held")
        if carried:
            self.write_note(fitted=text)
        return text

    def appraisal(self, t: int) -> tuple[float, float] | None:
        """Its loss and score at the model of round t, if it measured them."""
        if self.note("appraised", -1) != t:
            return None
        return self.note("loss", 0.0), self.note("score", 0.0)

    def note_appraisal(self, t: int, loss: float, score: float) -> None:
        """Keep what it measured."""
        self.write_note(appraised=t, loss=loss, score=score)

    def solo(self) -> tuple[float, float, float] | None:
        """What it has alone (loss, held-out loss, held-out score), if it knows."""
        found = self.note("solo", [])
        return (found[0], found[1], found[2]) if found else None

    def note_solo(self, loss: float, test_loss: float, test_score: float) -> None:
        """Keep what it has alone."""
        self.write_note(solo=[loss, test_loss, test_score])
        self.save()

    def memory(self, new: State) -> State:
        """What the client remembers, as a stack of one: of the last counted round, or new."""
        found = self._parts(self.counts) if self.counts else {}
        fresh = found or new
        return {
            part: {name: t[None] for name, t in reorder(m, new.get(part, ())).items()}
            for part, m in reorder(fresh, new).items()
        }

    def write(self, round: int, memory: State) -> None:
        """The memory (a stack of one) after a round; it counts once the server says so."""
        if self.counts != BASE:
            self._put(BASE, self._parts(self.counts) if self.counts else {})
            self.write_note(base=self.counted)
            self.counts = BASE
        self._put(LATEST, {p: {n: t[0] for n, t in m.items()} for p, m in memory.items()})
        self.write_note(latest=round)
        self.save()

    def _counting(self, counted: int) -> str:
        """Which memory is that of the last counted round; "": none, the client begins anew."""
        base, latest = self.note("base", 0), self.note("latest", 0)
        if counted in (base, UNSAID):
            return BASE
        if counted == latest:
            return LATEST
        if counted == 0:
            return ""
        raise MusterError(
            f"memory: the server counts on round {counted} and this client remembers rounds "
            f"{base} and {latest}; give the node its memory-path of that run, or start anew"
        )

    def _parts(self, prefix: str) -> State:
        return {
            key.removeprefix(prefix): unpack(record, self.dtype)
            for key, record in self.state.array_records.items()
            if key.startswith(prefix)
        }

    def _put(self, prefix: str, memory: State) -> None:
        for key in [k for k in self.state if k.startswith(prefix)]:
            del self.state[key]
        for part, m in memory.items():
            self.state[prefix + part] = pack(m)

    @property
    def _file(self) -> Path | None:
        return None if self.folder is None else self.folder / "memory.safetensors"

    def save(self) -> None:
        """Write the diary to its folder, whole or not at all."""
        if self.folder is None or self._file is None:
            return
        private_folder(self.folder)
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
                f"{file}: cannot be read ({error}); remove it to start anew"
            ) from None
        self.state[NOTES] = ConfigRecord(notes)
        memory: State = {}
        for key, t in tensors.items():
            part, name = key.split("/", 1)
            memory.setdefault(part, {})[name] = t
        for part, m in memory.items():
            self.state[part] = pack(m)
