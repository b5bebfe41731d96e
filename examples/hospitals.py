"""Eight hospitals, two of which the model is for: your own files from folder to comparison.

    python examples/hospitals.py [FOLDER]

scikit-learn's breast cancer records (30 measurements a patient) are dealt to eight hospitals of
different sizes with different shares of malignant cases. Six enter the diagnosis as it is; two
enter most of their malignant cases as benign. Each hospital is a CSV file and a manifest says who
is who, as it would be with files of your own. Then FedALIGN is compared with learning from the two
priority hospitals alone and with learning from all, on five seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import torch
from rich.console import Console
from sklearn.datasets import load_breast_cancer

import muster

# Name: patients, the share of them that is malignant, the share of these entered as benign.
HOSPITALS = {
    "north": (30, 0.40, 0.0),
    "south": (36, 0.35, 0.0),
    "east": (90, 0.30, 0.0),
    "west": (75, 0.45, 0.0),
    "harbour": (60, 0.25, 0.0),
    "hill": (48, 0.50, 0.0),
    "old_town": (110, 0.35, 0.8),
    "airport": (100, 0.40, 0.8),
}
PRIORITY = ("north", "south")
ROUNDS = 40

MANIFEST = """\
label = "diagnosis"
classes = ["benign", "malignant"]
scale = "pooled"        # every measurement less its mean, by its deviation
test_fraction = 0.5     # of each hospital's patients
"""


def write(folder: Path) -> None:
    """One CSV file a hospital, and the manifest."""
    data = load_breast_cancer()
    draw = np.random.default_rng(1)
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    piles = [list(draw.permutation(np.flatnonzero(data.target == t))) for t in (1, 0)]
    folder.mkdir(parents=True, exist_ok=True)
    for hospital, (patients, share, wrong) in HOSPITALS.items():
        malignant = round(share * patients)
        taken = (patients - malignant, malignant)  # of each pile, so that nobody is dealt twice
        rows = np.concatenate(
            [[p.pop() for _ in range(n)] for p, n in zip(piles, taken, strict=True)]
        )
        sick = np.arange(patients) >= patients - malignant + round(wrong * malignant)
        diagnosis = pl.Series("diagnosis", sick).replace_strict(
            {True: "malignant", False: "benign"}, return_dtype=pl.String
        )
        frame = pl.DataFrame(data.data[rows], names).with_columns(diagnosis)
        frame.sample(fraction=1, shuffle=True, seed=0).write_csv(folder / f"{hospital}.csv")
    roles = "".join(f"\n[clients.{name}]\npriority = true\n" for name in PRIORITY)
    (folder / "manifest.toml").write_text(MANIFEST + roles)


def main(folder: Path) -> None:
    torch.set_num_threads(1)  # a model this small gains nothing from more
    write(folder)
    console = Console()
    console.print(f"data: {folder} (look at it: muster data show {folder}/)", soft_wrap=True)
    methods = {
        "fedalign": muster.methods.fedalign(epsilon=0.2),
        "priority only": muster.methods.fedavg_priority(),
        "all": muster.methods.fedavg(),
    }
    done = muster.compare(
        lambda seed: muster.Federation.from_folder(folder, seed=seed),
        methods,
        muster.models.Softmax(),
        rounds=ROUNDS,
        local=muster.Local(steps=5, batch_size=16, lr=0.05),
    )
    console.print(done)
    others = pl.concat([run.clients for run in done["fedalign"]]).filter(~pl.col("priority"))
    names = muster.Federation.from_folder(folder).names
    console.print("how often fedalign let each of the others in")
    for k, often in others.group_by("client").agg(pl.col("admitted").mean()).sort("client").rows():
        console.print(f"  {names[k]:10}{often:5.0%} of the rounds it was asked in", highlight=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("hospitals"))
