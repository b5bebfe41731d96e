"""What benchmarks say of the machine they ran on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import pytest


@pytest.fixture
def machine(benchmark):
    return benchmark("machine")


def test_a_machine_has_a_processor_cores_versions_a_day_and_a_load(machine):
    said = machine.describe_machine()
    assert said.startswith(machine.name_machine() + ", Python ")
    assert re.search(r", \d+ cores?, Python 3.*, torch .*, muster .*, \d{4}-\d\d-\d\d, load", said)


@pytest.mark.parametrize("processor", ["arm", ""])
def test_a_system_without_the_files_of_linux_says_what_it_can(machine, monkeypatch, processor):
    def fail(self, *args, **named):
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", fail)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "getloadavg", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(platform, "processor", lambda: processor)
    monkeypatch.setattr(platform, "machine", lambda: "arm64" if processor else "")
    name = f"{processor or 'a processor without a name'}, 8 cores"
    assert machine.name_machine() == name
    assert re.fullmatch(rf"{name}, Python .*, \d{{4}}-\d\d-\d\d\.", machine.describe_machine())


def test_a_run_in_a_separate_process_answers_in_its_last_line(machine, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys, page\nprint('first')\nprint(json.dumps({'said': sys.argv[1:]}))\n"
    )
    assert machine.run_apart(str(script), "W1") == {"said": ["one", "W1"]}
