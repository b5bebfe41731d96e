"""The words of the project: banned turns, and names that say what a thing is or does.

The glossary is in CONTRIBUTING.md. `python tests/test_words.py` lists every finding.
"""

from __future__ import annotations

import ast
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "muster"
MODULES = sorted(SOURCE.rglob("*.py"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(SOURCE.rglob("*.toml")),
    *sorted((ROOT / "examples").glob("*.[pt][yo]*")),
]
BANNED = re.compile(
    r"\b(?:makes? of|go(?:es)? by|went by|(is|are|was|were) said|told|tells? of|anew|alike"
    r"|c[ao]mes? of|seen to|gone on with|(is|are|was|were) let in|an advice|by heart"
    r"|patience|diary|handout|of one's own|of its own(?=[.,;:)]|$))\b",
    re.IGNORECASE | re.MULTILINE,
)
FIRST = {"What", "Whether"}  # how no docstring begins
PARTICIPLES = re.compile(
    "told|kept|made|held|said|sent|seen|known|given|drawn|built|found|taken|chosen|written|shown"
    "|settled|heard|meant|lost|foreseen|laid|begun|.{2,}ed"
)
NOT_PARTICIPLES = {"seed", "need", "feed", "speed", "embed", "fed", "unseen"}
# Public names, and part classes, whose repr run folders store.
PUBLIC = {
    "Aligned", "AsAsked", "Claimed", "Interrupted", "ComparisonInterrupted", "SweepInterrupted",
    "TuningInterrupted", "mwfed", "sent140",
}  # fmt: skip
APART = {"method", "py", "examples"}  # Method's own module, the marker of types, configurations
EXEMPT = {
    ("src/muster/run/audit.py", "told"): "a key in checkpoints",
    ("src/muster/config/dotted_keys.py", "patience"): "an earlier name of a key",
    ("CHANGELOG.md", "patience"): "an earlier name of a key",
}
# Names that stand in two places, each for the reason given.
REPEATED_FILES = {
    "__init__": "packages",
    "__main__": "programs",
    "app": "Flower's server app and client app",
    "faults": "faults of clients' replies, and the same faults on the wire",
}
REPEATED_CLASSES = {"Linear": "a model and a schedule, both public"}


def is_participle(name: str, function: bool = False) -> bool:
    """True if a class or module is called by a participle, or a function by nothing else."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    if not words or name in PUBLIC or (function and len(words) > 1):
        return False
    last = words[-1].lower()
    return bool(PARTICIPLES.fullmatch(last)) and last not in NOT_PARTICIPLES


@cache
def defined(path: Path) -> list[ast.Module | ast.ClassDef | ast.FunctionDef]:
    """A module and every class and function in it, each with its docstring for a body."""
    found, rest = [], [ast.parse(path.read_text())]
    while rest:  # no expression defines any
        node = rest.pop()
        inside = ast.iter_child_nodes(node)
        rest += [n for n in inside if isinstance(n, (ast.stmt, ast.ExceptHandler, ast.match_case))]
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            node.body = node.body[:1]
            found.append(node)
    return found


def decorators(node: ast.ClassDef | ast.FunctionDef) -> str:
    return " ".join(ast.unparse(d) for d in node.decorator_list)


def findings() -> Iterator[str]:
    """Every place that has a banned turn or a name that is not allowed."""
    for path in [*MODULES, *PAGES]:
        where, text = path.relative_to(ROOT), path.read_text()
        for found in BANNED.finditer(text):
            if (str(where), found[0]) not in EXEMPT:
                yield f"{where}:{text.count(chr(10), 0, found.start()) + 1}: '{found[0]}'"
    for path in MODULES:
        where = path.relative_to(ROOT)
        if is_participle(path.stem):
            yield f"{where}: a participle as a module's name"
        for node in defined(path):
            first = (ast.get_docstring(node) or "-").split()[0]
            if first in FIRST:
                yield f"{where}:{getattr(node, 'lineno', 1)}: a docstring that begins with {first}"
            if isinstance(node, ast.Module):
                continue
            function = isinstance(node, ast.FunctionDef)
            if is_participle(node.name, function) and "property" not in decorators(node):
                yield f"{where}:{node.lineno}: a participle as a name: {node.name}"
            if node.name == "of" and "classmethod" not in decorators(node):
                yield f"{where}:{node.lineno}: a method called 'of' that is no classmethod"


def repeated(names: Iterator[tuple[str, Path]]) -> dict[str, list[str]]:
    """The names that stand in more than one place, with the places."""
    places = defaultdict(list)
    for name, path in names:
        places[name].append(str(path.relative_to(SOURCE)))
    return {name: where for name, where in places.items() if len(where) > 1}


def classes() -> Iterator[tuple[str, Path]]:
    for path in MODULES:
        for node in defined(path):
            if isinstance(node, ast.ClassDef):
                yield node.name, path


def test_words_are_plain():
    assert list(findings()) == []


def test_names_of_tests_are_plain():
    names = [
        name
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    ]
    assert len(names) > 1000
    assert [name for name in names if BANNED.search(name.replace("_", " "))] == []


def test_no_file_has_the_name_of_another():
    """But for commands, which are named by what they run (cli/compare.py, study/compare.py)."""
    rest = (path for path in MODULES if path.parent != SOURCE / "cli" or path.stem[0] == "_")
    assert set(repeated((path.stem, path) for path in rest)) == set(REPEATED_FILES)


def test_no_class_has_the_name_of_another():
    assert set(repeated(classes())) == set(REPEATED_CLASSES)


def test_every_word_of_the_glossary_is_in_use():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", page, re.MULTILINE)
    code = "\n".join(path.read_text() for path in MODULES).lower()
    assert len(terms) >= 40
    assert [term for term in terms if term.lower() not in code] == []


def test_files_that_pages_name_are_there():
    for page in PAGES:
        for name in re.findall(r"`((?:src/muster|tests|[a-z]+)/[\w/]+\.py)`", page.read_text()):
            if (SOURCE / name.split("/")[0]).is_dir() or name.startswith(("src/", "tests/")):
                assert (ROOT / name).exists() or (SOURCE / name).exists(), f"{page.name}: {name}"


def test_names_that_pages_mention_are_there():
    """But for CHANGELOG, which has earlier names too."""
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        for name in set(re.findall(r"\bmuster(?:\.[A-Za-z_]\w*)+", page.read_text())):
            try:
                found = pkgutil.resolve_name(name)
            except (ImportError, AttributeError):
                found = None
            assert found is not None, f"{page.name}: {name}"


def test_the_map_in_the_guide_names_what_is_there():
    page = (
        (ROOT / "docs" / "guide.md")
        .read_text()
        .partition("| where | what |")[2]
        .partition("\n\n")[0]
    )
    rooms = set(re.findall(r"`(\w+)/?`", "\n".join(re.findall(r"^\| (`.*?`) \|", page, re.M))))
    assert rooms == {p.stem for p in SOURCE.iterdir() if p.stem[0] != "_" and p.stem not in APART}


if __name__ == "__main__":
    print("\n".join(findings()))
