"""A node's part in secure sums: its keys, and its records, written before anything is sent.

Records are files of the node's memory folder, named by the hash of its public key: they hold for
every run that uses these keys. Without a folder a node takes part in no secure sum, since what it
forgets it might answer twice.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...base.durable import lock_folder
from ...base.errors import MusterError
from ...base.untrusted_files import TENSORS, open_file, read_text
from ...privacy.committee import (
    Committee,
    JoinerRecord,
    MemberRecord,
    answer_list,
    answer_offer,
    is_repeated,
    read_groups,
)
from ...privacy.fixed_point import Vectors
from ...privacy.masks import MOST_TEXT, Attempt, SumKey
from ...privacy.secure_sum import DrawNoise
from ..transport.private_files import check_key, make_private_folder, write_private

Record = TypeVar("Record")
JOINED, ANSWERED = "joined", "answered"  # ends of the names of records


@dataclass(frozen=True)
class SumParty:
    """One client in secure sums: its number, its keys and the folder of its records."""

    committee: Committee
    client: int
    key: SumKey
    folder: Path

    @classmethod
    def from_owner(cls, config: Mapping[str, Any], committee: Committee, client: int) -> SumParty:
        """Return the party that a node's owner configured."""
        for name, flag in (("sum-key", "--sum-key KEY.agg"), ("memory-path", "--memory FOLDER")):
            if not isinstance(config.get(name), str):
                raise MusterError(f"{name}: secure sums need it; start the node with {flag}")
        path = Path(config["sum-key"])
        check_key(path)
        key = SumKey.from_text(read_text(path, MOST_TEXT, follow=True), str(path))
        return cls(committee, client, key, make_private_folder(Path(config["memory-path"])))

    def join(self, attempt: Attempt, contribute: Callable[[], Vectors]) -> JoinerRecord:
        """Return its masked contribution, computed now or, if it was asked before, as it was."""
        file = self._file(JOINED)
        before = self._read(file, JoinerRecord.from_bytes)
        if before is not None and is_repeated(before, attempt):
            return before
        values = contribute()
        with lock_folder(self.folder):
            before = self._read(file, JoinerRecord.from_bytes)
            record = answer_offer(self.committee, self.key, self.client, attempt, values, before)
            write_private(file, record.to_bytes())
        return record

    def answer(
        self,
        attempt: Attempt,
        listed: bytes,
        size: int,
        noise: DrawNoise,
        group_of: Mapping[int, int] | None = None,
    ) -> Vectors:
        """Return its answer to a list, as a member of the committee; `group_of` are the groups of
        the agreed draw."""
        groups = read_groups(listed, len(self.committee.keys))
        file = self._file(ANSWERED)
        with lock_folder(self.folder):
            before = self._read(file, MemberRecord.from_bytes)
            record = answer_list(
                self.committee,
                self.key,
                self.client,
                attempt,
                groups,
                size,
                noise,
                before,
                group_of,
            )
            write_private(file, record.to_bytes())
        return record.values

    def _file(self, ending: str) -> Path:
        public = self.key.public.to_text()
        return self.folder / f"{hashlib.sha256(public.encode()).hexdigest()[:16]}.{ending}"

    def _read(self, file: Path, parse: Callable[[bytes], Record]) -> Record | None:
        try:
            with open_file(file, TENSORS) as opened:
                return parse(opened.read())
        except FileNotFoundError:
            return None
        except (ValueError, struct.error):
            raise MusterError(
                f"{file}: damaged; make new keys for secure sums, since nobody knows what was sent "
                "with these"
            ) from None
