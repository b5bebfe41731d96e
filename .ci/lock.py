"""Write constraints-hashed.txt: the pins of constraints.txt, each with the sha256 of its archives.

    make lock        (python .ci/lock.py)

Every archive of a pinned version that the package index lists is in it, so that other systems and
versions of Python find theirs; and what pip would take here, which may be a build of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from urllib.request import urlopen

from pip._internal.models.index import PyPI

HERE = Path(__file__).parent.parent
PINS, LOCK = HERE / "constraints.txt", HERE / "constraints-hashed.txt"
INDEX = os.environ.get("PIP_INDEX_URL") or PyPI.simple_url
# Archives that need packages which are not pinned (CUDA): pip would take these rather than a build
# without them.
LEFT_OUT = {"torch": "linux"}
HEAD = """\
# Made by `make lock` of constraints.txt; do not edit. `make setup` installs these, each archive
# checked against a sha256. torch on Linux is a build without CUDA for Python 3.11; other builds
# have other sums: add one as `--hash=sha256:...` (`pip hash FILE` prints it) next to those here, or
# set up without the check: `make setup HASHES=`.
"""


class Links(HTMLParser):
    """The archives that a page of an index links to: their names and sums."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link that has a sum."""
        address, _, part = (dict(attrs).get("href") or "").partition("#")
        if tag == "a" and part.startswith("sha256="):
            name = unquote(address.rpartition("/")[2])
            self.found.append((name, part.removeprefix("sha256=")))


def normal(name: str) -> str:
    """A package's name as indexes write it.

    >>> normal("Jinja2"), normal("ml_dtypes")
    ('jinja2', 'ml-dtypes')
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: Path = PINS) -> dict[str, str]:
    """The version of each package."""
    lines = file.read_text().splitlines()
    return dict(line.rstrip(" \\").split("==") for line in lines if line[:1].isalpha())


def version_of(archive: str, package: str) -> str:
    """The version of an archive by its name, without what marks a build; "" of other packages.

    >>> version_of("torch-2.1+cpu-cp311-cp311-linux.whl", "torch"), version_of("a-1.0.zip", "a")
    ('2.1', '1.0')
    """
    bare = archive.removesuffix(".tar.gz").removesuffix(".zip")
    parts = bare.split("-") if archive.endswith(".whl") else bare.rsplit("-", 1)
    if len(parts) < 2 or normal(parts[0]) != normal(package):
        return ""
    return parts[1].partition("+")[0]


def listed(package: str, version: str) -> set[str]:
    """The sums of all archives of a version in the index."""
    page = Links()
    with urlopen(f"{INDEX.rstrip('/')}/{normal(package)}/", timeout=60) as answer:
        page.feed(answer.read().decode())
    left_out = LEFT_OUT.get(package, "\0")
    return {
        found
        for name, found in page.found
        if version_of(name, package) == version and left_out not in name
    }


def chosen_here(versions: dict[str, str]) -> dict[str, str]:
    """The sum of the archive that pip takes of each package on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps",
             "--ignore-installed", "--report", report, *(f"{n}=={v}" for n, v in versions.items())],
            check=True,
        )  # fmt: skip
        every = json.loads(report.read_text())["install"]
    return {
        normal(one["metadata"]["name"]): one["download_info"]["archive_info"]["hashes"]["sha256"]
        for one in every
    }


def written(versions: dict[str, str], sums: dict[str, set[str]]) -> str:
    """The lock as text."""
    lines = [HEAD.rstrip()]
    for name, version in versions.items():
        hashes = "".join(f" \\\n    --hash=sha256:{one}" for one in sorted(sums[name]))
        lines.append(f"{name}=={version}{hashes}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Ask the index, and write the lock."""
    versions = pins()
    here = chosen_here(versions)
    with ThreadPoolExecutor(8) as crowd:
        found = dict(zip(versions, crowd.map(listed, versions, versions.values()), strict=True))
    sums = {name: found[name] | {here[normal(name)]} for name in versions}
    LOCK.write_text(written(versions, sums))
    print(f"{LOCK.name}: {len(versions)} packages, {sum(map(len, sums.values()))} archives")


if __name__ == "__main__":
    main()
