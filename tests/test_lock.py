"""The set-up is of pinned versions, each with the sums of its archives, and lacks nothing."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("lock", ROOT / ".ci" / "lock.py")
lock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lock)


def needed(project, extra):
    """What an extra asks for, with the extras of ours that it names."""
    for line in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        asked = Requirement(line)
        if asked.name == "muster-fl":
            for inner in asked.extras:
                yield from needed(project, inner)
        else:
            yield asked


def test_every_pin_has_sums_and_no_others_are_listed():
    assert lock.pins(lock.LOCK) == lock.pins()
    text = lock.LOCK.read_text()
    entries = re.split(r"^(?=[A-Za-z])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(lock.pins())
    for entry in entries:
        first, *sums = entry.rstrip().split(" \\\n")
        assert sums, first
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", one) for one in sums), first
    assert lock.written(lock.pins(), lock_sums(entries)) == text


def lock_sums(entries):
    return {e.split("==")[0]: set(re.findall(r"sha256:(\w+)", e)) for e in entries}


def test_the_pins_are_what_the_project_asks_for():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = {lock.normal(name): version for name, version in lock.pins().items()}
    asked = [*needed(table["project"], "dev"), *map(Requirement, table["build-system"]["requires"])]
    for need in asked:
        version = pinned.get(lock.normal(need.name))
        assert version is not None, f"{need.name} is not pinned"
        assert need.specifier.contains(version), f"{need} is not {version}"


@pytest.mark.parametrize(("archive", "package", "version"), [
    ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", "torch", "2.13.0"),
    ("ml_dtypes-0.6.0.tar.gz", "ml_dtypes", "0.6.0"),
    ("flwr_datasets-0.6.1-py3-none-any.whl", "flwr-datasets", "0.6.1"),
    ("torchvision-1.0-py3-none-any.whl", "torch", ""),
])  # fmt: skip
def test_archives_are_distinguished_by_their_names(archive, package, version):
    assert lock.version_of(archive, package) == version


def test_a_page_of_an_index_is_read_by_its_sums():
    page = lock.Links()
    page.feed('<a href="../f/a-1.0.zip#sha256=ab">a</a><a href="b-1.0.zip">b</a>')
    assert page.found == [("a-1.0.zip", "ab")]
