"""What nodes on this machine are given: their part of the files as it is, or arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from flower_grid import LocalGrid, Node
from flower_parity import assert_same
from flower_setup import Setup
from flower_tables import AGREED, ROWS, patients
from messy_files import write_messy_folder
from muster.config.experiment import load
from muster.config.network import members_of
from muster.data import check
from muster.flower.local.local_data import write_node_files
from muster.flower.server.app import federate
from muster.flower.server.fit_columns import COLUMNS_QUERY

SETTINGS = {
    "name": "test",
    "rounds": 3,
    "dtype": "float64",
    "method": {"name": "fedalign", "epsilon": 0.5, "warmup": 0},
    "local": {"steps": 5, "batch_size": 8, "lr": 0.2},
    "trust": False,
}


class Handed(Setup):
    """A federation on this machine, without its processes."""

    def __init__(self, folder, table):
        self.folder, self.chosen = folder, load({**SETTINGS, **table})
        self.fed = self.chosen.federation(0)
        (folder / "work").mkdir()
        self.given = write_node_files(self.chosen, self.fed, folder / "work")
        self.nodes = [Node(owner) for owner in self.given.owners]
        self.surveyed = 0

    def run(self):
        members = members_of(self.fed, [node.key.decode() for node in self.nodes])
        listed = replace(self.chosen, members=members, network=self.given.network)
        grid = LocalGrid(self.nodes)
        self.said = []
        done = federate(grid, listed, self.folder / "run", self.said.append, self.given.inputs)
        self.surveyed = sum(m.metadata.message_type == COLUMNS_QUERY for m, _ in grid.log)
        return done


def clinics(folder, ending):
    """Clients' tables in a folder, or one table of all of them."""
    frames = {name: patients(name, n, seed) for seed, (name, n) in enumerate(ROWS.items())}
    if ending == "one table":
        every = [frame.with_columns(client=pl.lit(name)) for name, frame in frames.items()]
        pl.concat(every).sample(fraction=1, shuffle=True, seed=1).write_csv(folder / "all.csv")
        return str(folder / "all.csv")
    (folder / "clinics").mkdir()
    for name, frame in frames.items():
        file = folder / "clinics" / f"{name}.{ending}"
        frame.write_csv(file) if ending == "csv" else frame.write_parquet(file)
    return str(folder / "clinics")


@pytest.mark.parametrize("ending", ["csv", "parquet", "one table"])
def test_nodes_read_their_part_of_the_tables_and_agree_on_features(tmp_path, ending):
    data = {"name": "folder", "path": clinics(tmp_path, ending), "label": "ill",
            "priority": ["north", "south"], "test_fraction": 0.3}  # fmt: skip
    case = Handed(tmp_path, {"data": data, "network": {**AGREED, "label": "label"}})
    real = case.run()
    assert case.surveyed == 4, "columns are agreed on as across machines"
    assert_same(real, case.simulate())
    assert real.recipe.inputs.encoder.levels == {"pain": ("9", "10", "dull", "none", "sharp")}
    new = pl.DataFrame({"age": ["60"], "pain": ["sharp"], "sugar": [None], "tag": ["7"]})
    assert real.predict(new)["p_yes"].is_between(0, 1).all()


def test_a_split_in_the_files_is_the_nodes_too(tmp_path):
    (tmp_path / "c").mkdir()
    for seed, name in enumerate(("north", "south")):
        frame = patients(name, 40, seed)
        frame = frame.with_columns(part=pl.Series(["train", "train", "test", "train"] * 10))
        frame.write_csv(tmp_path / "c" / f"{name}.csv")
    data = {"name": "folder", "path": str(tmp_path / "c"), "label": "ill", "split": "part",
            "features": ["sugar", "age"]}  # fmt: skip
    network = {"scale": "pooled", "missing": "mean", "enrolment_timeout": 0.2, "timeout": 0.3}
    case = Handed(tmp_path, {"data": data, "network": network})
    assert_same(case.run(), case.simulate())
    assert case.fed.test.sizes.tolist() == [10, 10]


@pytest.mark.filterwarnings("ignore:1 of 37 test rows are copies")  # at two hospitals
def test_messy_files_are_the_nodes_as_their_manifest_says(tmp_path):
    """Dialects, recoded values, columns and copies that are left out: as in the simulation."""
    folder = write_messy_folder(tmp_path / "h")
    (folder / "manifest.toml").write_text(check(folder).manifest)
    network = {"scale": "pooled", "categories": ["geschlecht", "station"], "missing": "mean"}
    case = Handed(tmp_path, {"data": str(folder), "network": {**network, "timeout": 0.3}})
    assert_same(case.run(), case.simulate())
    assert case.surveyed == 3
    assert case.fed.encoder.levels["geschlecht"] == ("männlich", "weiblich")
    assert (case.fed.sizes + case.fed.test.sizes).tolist() == [60, 64, 60]


def test_arrays_are_scaled_together_too(tmp_path):
    (tmp_path / "c").mkdir()
    for seed in range(3):
        draw = np.random.default_rng(seed)
        y = draw.integers(0, 2, 40)
        x = draw.normal(50 + seed, 9, (40, 3)) + 20 * y[:, None]
        np.savez(tmp_path / "c" / f"site{seed}.npz", x=x, y=y)
    data = {"name": "folder", "path": str(tmp_path / "c"), "test_fraction": 0.25, "priority": 2}
    case = Handed(
        tmp_path, {"data": data, "network": {"scale": "priority", "enrolment_timeout": 0.2}}
    )
    real = case.run()
    assert case.surveyed == 3
    assert_same(real, case.simulate())
    assert real.recipe.inputs.scaler.mean[0] > 40


def test_where_the_terms_do_not_describe_files_rows_are_the_simulators(tmp_path):
    data = {"name": "digits", "clients": 3, "priority": 2}
    case = Handed(tmp_path, {"data": data, "network": {"enrolment_timeout": 0.2}})
    assert all(owner["data-path"].endswith(".npz") for owner in case.given.owners)
    assert_same(case.run(), case.simulate())
    assert case.surveyed == 0


def test_what_the_data_says_of_its_files_is_in_the_terms_too(tmp_path):
    data = {"name": "folder", "path": clinics(tmp_path, "csv"), "label": "ill",
            "categories": ["pain"], "missing": "mean", "test_fraction": 0.3}  # fmt: skip
    case = Handed(
        tmp_path, {"data": data, "network": {"scale": "pooled", "enrolment_timeout": 0.2}}
    )
    assert case.given.network.categories == ("pain",)
    assert case.given.network.missing == "mean"
    assert_same(case.run(), case.simulate())


def pictures(folder, sizes):
    """A folder for each client, of images of its own size: dark ones and bright ones."""
    draw = np.random.default_rng(0)
    for name, (height, width) in sizes.items():
        for k, kind in enumerate(("dark", "bright")):
            place = folder / name / kind
            place.mkdir(parents=True)
            for i in range(6):
                x = draw.integers(130 * k, 130 * k + 120, (height, width), dtype=np.uint8)
                Image.fromarray(x).save(place / f"{i}.png")
    return str(folder)


def test_nodes_bring_their_images_to_one_size_and_new_ones_are_too(tmp_path):
    path = pictures(tmp_path / "photos", {"north": (4, 6), "south": (8, 8), "west": (5, 5)})
    data = {"name": "folder", "path": path, "test_fraction": 0.5, "priority": 2}
    case = Handed(tmp_path, {"data": data, "network": {"resize": [4, 4], "enrolment_timeout": 0.2}})
    assert [Path(owner["data-path"]).name for owner in case.given.owners] == list(case.fed.names)
    real = case.run()
    assert_same(real, case.simulate())
    inputs = real.recipe.inputs
    assert (inputs.kind, inputs.scaled, inputs.resized) == ("pixels", True, True)
    new = pictures(tmp_path / "new", {"east": (7, 9)})
    said = real.predict(f"{new}/east")
    assert len(said) == 12
    assert set(said["prediction"]) <= {"dark", "bright"}


def test_images_of_nodes_that_read_them_as_they_are_can_be_asked_for_too(tmp_path):
    path = pictures(tmp_path / "photos", {"north": (4, 6), "south": (4, 6)})
    chosen = load({
        **SETTINGS, "data": {"name": "folder", "path": path}, "rounds": 1,
        "network": {"classes": ["bright", "dark"], "enrolment_timeout": 0.2},
    })  # fmt: skip
    nodes = [Node({"data-path": f"{path}/{name}"}) for name in ("north", "south")]
    members = members_of(chosen.federation(0), [node.key.decode() for node in nodes])
    listed = replace(chosen, members=members)
    run = federate(LocalGrid(nodes), listed, tmp_path / "run", lambda line: None)
    assert len(run.predict(f"{path}/north")) == 12
