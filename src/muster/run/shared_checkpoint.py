"""The checkpoint of a run on several ranks: rank 0 reads and writes it, the others get a copy.

So only rank 0's machine needs the folder. A checkpoint's files are copied as they are (safetensors,
parquet, JSON), and the other ranks read them as rank 0 does, with the same checks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..engines.compute import Ranks
from ..results.store import list_checkpoints
from .checkpoint import find_damage
from .training_loop import Keep

NEVER = 10**9  # rounds


@contextmanager
def share_checkpoint(ranks: Ranks, keep: Keep) -> Iterator[Keep]:
    """Provide each rank's `Keep`: rank 0's own; that of the others has a copy of the checkpoint
    that rank 0 resumes from, if there is one, in a folder that is removed afterwards."""
    if ranks.size == 1:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="muster-rank-") as folder:
        ranks.copy_folder(find_last(keep) if ranks.rank == 0 else None, Path(folder))
        if ranks.rank == 0:
            yield keep
        elif not list_checkpoints(Path(folder)):
            yield replace(keep, checkpoint=None, resume=False)
        else:
            yield replace(keep, checkpoint=Path(folder), checkpoint_every=NEVER, resume=True)


def find_last(keep: Keep) -> Path | None:
    """Return the last sound checkpoint, if a run resumes from one."""
    if not keep.resume or keep.checkpoint is None:
        return None
    sound = [place for place in list_checkpoints(keep.checkpoint) if not find_damage(place)]
    return sound[-1] if sound else None
