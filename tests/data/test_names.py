"""Data sets and partitions by name: what registers, muster's own or anyone's, can be configured."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import muster
from muster.base import registry
from muster.config.experiment import load
from muster.data import DATA, PARTITIONS, Portions, federate
from muster.data.split.partition import Partition
from muster.federation import Federation

# Small numbers to read in a test are large ones to train on.
pytestmark = pytest.mark.filterwarnings("ignore:features need scaling")

MINE = '''
import numpy as np
from sklearn.datasets import load_digits

class Rows:
    def __init__(self, columns):
        self.columns, self.features = columns, dict.fromkeys(columns)
        self.column_names = list(columns)
    def __len__(self): return len(self.columns["label"])
    def select_columns(self, names): return Rows({n: self.columns[n] for n in names})
    def with_format(self, kind): return self
    def __getitem__(self, key): return self.columns

class Cut:
    num_partitions = 4
    def __init__(self):
        x, y = load_digits(return_X_y=True)
        self.dataset = Rows({"pixels": x, "label": y})
    def load_partition(self, k):
        return Rows({n: v[k::4] for n, v in self.dataset.columns.items()})

def halves(priority: int = 1, seed: int = 0):
    """Two clients."""
    from muster.data import IID, federate
    x, y = load_digits(return_X_y=True)
    return federate(x / 16, y, IID().split(y, 2, seed), priority=priority)
'''


@pytest.fixture
def registered(monkeypatch):
    """What a test registers is gone after it."""
    for role in (Federation, Partition):
        monkeypatch.setitem(registry._parts, role, dict(registry._parts[role]))


@pytest.fixture
def mine(tmp_path, monkeypatch, registered):
    (tmp_path / "mine_for_names.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("mine_for_names", None)


def test_every_name_is_that_of_a_function_that_makes_a_federation():
    assert DATA["digits"] is muster.data.digits
    assert DATA["folder"] is muster.data.from_folder
    assert DATA["huggingface"] is muster.data.from_partitioner
    for name, make in DATA.items():
        assert inspect.signature(make).return_annotation == "Federation", name
    assert set(PARTITIONS) >= {"iid", "shards", "dirichlet", "label_mix"}


def test_a_data_set_that_registers_later_is_known_at_once():
    registry.part(Federation, "testing only")(muster.data.digits)
    try:
        assert DATA["testing only"] is muster.data.digits
    finally:
        del registry._parts[Federation]["testing only"]
    assert "testing only" not in DATA


def test_a_partition_of_ones_own_is_named_in_a_configuration(registered):
    @registry.part(Partition, "every_other")
    @dataclass(frozen=True)
    class EveryOther:
        start: int = 0

        def split(self, y, clients, seed):
            rows = np.arange(self.start, len(y))
            return Portions.of([rows[k::clients] for k in range(clients)])

    chosen = load(
        {"data": {"name": "digits", "clients": 3, "partition": {"kind": "every_other", "start": 9}}}
    )
    fed = chosen.federation(0)
    assert fed.n == 3
    halves = [d.rows[d.offsets[1] : d.offsets[2]] for d in (fed.train, fed.test)]
    own = np.sort(np.concatenate(halves))
    assert own.tolist() == list(range(10, 1797, 3))
    assert chosen.resolve()["data"]["partition"] == {"kind": "every_other", "start": 9}


def test_a_data_set_of_ones_own_is_named_by_its_path(mine):
    chosen = load({"data": {"name": "mine_for_names:halves", "priority": 2}}, trusted=True)
    fed = chosen.federation(0)
    assert (fed.n, int(fed.priority.sum()), int(fed.train.offsets[-1])) == (2, 2, 1797)


def test_a_partitioner_is_named_by_its_path(mine):
    table = {"name": "huggingface", "partitioner": "mine_for_names:Cut", "priority": 2}
    chosen = load({"data": table}, trusted=True)
    fed = chosen.federation(0)
    assert (fed.n, int(fed.priority.sum()), fed.classes) == (4, 2, 10)
    again = load(chosen.resolve(), trusted=True).federation(0)
    assert np.array_equal(fed.train.rows, again.train.rows)
    with pytest.raises(muster.MusterError, match=r"data\.partitioner: 'mine_for_names:Cat' cannot"):
        muster.data.from_partitioner("mine_for_names:Cat")


def test_federate_is_no_data_set():
    assert federate not in DATA.values()
