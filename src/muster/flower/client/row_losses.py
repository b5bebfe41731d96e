"""A client's losses on its held-out rows in the trainings of advice, and their summary.

The losses of single rows stay in a folder of the client, by training and seed. What leaves it is
their summary over all seeds: of each way the mean loss, number, mean and deviation of the rows'
gains, and for two classes how many rows were found, missed, recognised and taken for the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, ConfigRecordValues, RecordDict
from numpy.typing import NDArray

from ...base.durable import atomic_file
from ...base.errors import MusterError
from ...config.experiment import Experiment
from ...federation import Federation
from ...study.way_records import (
    LEAST_MINORITY,
    RowAnswers,
    average_rows,
    count_minority,
    hash_held_out,
    measure_gain,
)
from ..terms import shared_terms
from ..transport.private_files import make_private_folder
from ..transport.wire import REPORT

FOLDER = "advice"
COUNTS = ("hits", "misses", "rejections", "alarms")

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class RowLosses:
    """The losses of one client's rows in one advice, in a folder.

    Attributes:
        folder: for files; one for each training and seed
        seeds: number of seeds of the advice
    """

    folder: Path
    seeds: int

    @classmethod
    def of(cls, memory: Any, chosen: Experiment) -> RowLosses:
        """Return those of advice with these terms, in a client's folder of state."""
        if chosen.privacy is not None:
            raise MusterError("advice: these terms protect clients, and summaries have no noise")
        if not isinstance(memory, str) or not memory:
            raise MusterError(
                "advice: the losses of single rows stay with this node, in its private folder; "
                "start it with --memory FOLDER"
            )
        common = replace(
            chosen, methods={}, network=replace(chosen.network, features=(), classes=0)
        )
        settings = replace(chosen.settings, seed=0)
        name = hashlib.sha256(shared_terms(replace(common, settings=settings)).encode())
        return cls(Path(memory) / FOLDER / name.hexdigest()[:16], chosen.network.advice)

    def get_file(self, label: str, seed: int) -> Path:
        """Return the file of one training, whose label is part of a message."""
        name = hashlib.sha256(label.encode()).hexdigest()[:16]
        return self.folder / f"{name}-{seed}.npz"

    def save(
        self, label: str, seed: int, answers: RowAnswers, fed: Federation, train_loss: float
    ) -> None:
        """Store the answers of a training's last model to the rows held out."""
        make_private_folder(self.folder)
        minority = count_minority(fed)
        test = fed.test
        assert test is not None, "the rows that were answered"
        counts = [getattr(answers.outcomes, name) for name in COUNTS] if answers.outcomes else []
        with atomic_file(self.get_file(label, seed)) as new, new.open("wb") as file:
            np.savez(
                file,
                loss=answers.loss,
                hashes=hash_held_out(fed)[0],
                counts=np.array(counts, np.int64),
                train_loss=np.array(train_loss),
                thin=np.array(bool(minority) and minority[0] < LEAST_MINORITY),
                rows=np.array([int(fed.train.sizes[0]), int(test.sizes[0])]),
            )

    def load(self, label: str, seed: int) -> Arrays | None:
        """Return what was stored of a training; None if there is nothing."""
        file = self.get_file(label, seed)
        if not file.is_file():
            return None
        with np.load(file, allow_pickle=False) as found:
            return dict(found)

    def load_all(self, label: str) -> list[Arrays] | None:
        """Return what was stored of a training in every seed; None if some is missing."""
        found = [self.load(label, seed) for seed in range(self.seeds)]
        whole = [arrays for arrays in found if arrays is not None]
        return whole if len(whole) == self.seeds else None

    def get_train_loss(self, label: str, seed: int) -> float:
        """Return the training loss after a training of this seed."""
        found = self.load(label, seed)
        if found is None:
            raise MusterError(
                f"advice: seed {seed}: nothing is stored of training alone; give the node its "
                "--memory of this advice, or start a new one"
            )
        return float(found["train_loss"])

    def summarise(self, alone: str, labels: Sequence[str]) -> RecordDict:
        """Return the summary of these trainings against the one alone, as a report. A training that
        is not whole has NaN."""
        base = self.load_all(alone)
        if base is None:
            raise MusterError(
                "advice: training alone is not stored for every seed; nothing was sent"
            )
        own = average(base)
        columns: dict[str, list[float]] = {name: [] for name in ("loss", "gain", "deviation")}
        counts: list[int] = []
        for label in (alone, *labels):
            found = base if label == alone else self.load_all(label)
            losses = np.full(1, np.nan) if found is None else average(found)
            gain = measure_gain(own, losses)
            columns["loss"].append(float(losses.mean()))
            columns["gain"].append(np.nan if gain is None else gain.mean)
            columns["deviation"].append(np.nan if gain is None else gain.deviation)
            if len(base[0]["counts"]):
                summed = sum(a["counts"] for a in found) if found else np.zeros(len(COUNTS))
                counts += np.asarray(summed, np.int64).tolist()
        values: dict[str, ConfigRecordValues] = {
            **columns,
            "counts": counts,
            "units": len(own),
            "rows": [int(n) for n in base[0]["rows"]],
            "thin": bool(base[0]["thin"]),
        }
        return RecordDict({REPORT: ConfigRecord(values)})


def average(found: Sequence[Arrays]) -> NDArray[np.float64]:
    """Return each row's mean loss over the seeds that held it out."""
    return average_rows([a["hashes"] for a in found], [a["loss"] for a in found])


def get_label(chosen: Experiment) -> str:
    """Return the label of the one training that these terms are about."""
    if len(chosen.methods) != 1:
        raise MusterError("advice: a training has one method; nothing was done")
    return next(iter(chosen.methods))
