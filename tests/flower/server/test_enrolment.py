"""Enrolment: warnings about clients that may not mean the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import muster
from muster.flower.server.enrolment import find_other_labels


def test_numbers_of_classes_that_differ_are_reported():
    assert find_other_labels({"north": 2, "south": 2}) == ""
    line = find_other_labels({"north": 2, "south": 3, "east": 2})
    assert line.startswith("warning: labels: north has 2 classes and south 3: ")
    assert "network.classes" in line


def test_a_server_warns_of_a_client_that_counts_its_labels_from_one(setup):
    data = {"name": "digits", "clients": 3, "priority": 3, "partition": {"kind": "iid"}}
    case = setup("fedavg", rounds=1, data=data)
    case.network = replace(case.network, classes=0)
    case.run()
    assert not [line for line in case.said if line.startswith("warning")]
    file = case.nodes[1].config["data-path"]
    arrays = dict(np.load(file))
    np.savez(file, **{k: v + 1 if k.startswith("y") else v for k, v in arrays.items()})
    case.run(name="again")
    (line,) = [line for line in case.said if line.startswith("warning")]
    assert "client0 has 10 classes and client1 11" in line
    # Listed, they are the terms: that client's labels are no classes of it.
    case.network = replace(case.network, classes=10)
    with pytest.raises(muster.MusterError, match="client1: a priority client"):
        case.run(name="listed")
