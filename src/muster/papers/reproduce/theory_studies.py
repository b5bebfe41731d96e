"""Studies of the theory as parts of an experiment: running one, and what decides its results.

A study has no settings in the experiment's file: what it computes is in its code. So its digest is
of the modules of `muster.papers.theory` that it is made of, without what says but does not compute.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from pathlib import Path

from ...base.lazy import pl
from ..theory.study import STUDIES
from .plan import Size


def studied(name: str, size: Size, seeds: int | None) -> pl.DataFrame:
    """A study of the theory, whose runs are seconds and not kept."""
    make = STUDIES[name]
    takes = inspect.signature(make).parameters
    given = {"quick": size == "quick", **({} if seeds is None else {"seeds": seeds})}
    return make(**{key: value for key, value in given.items() if key in takes})


def digest(name: str) -> str:
    """Of the code that decides a study's results: when it changes, they are outdated."""
    own = Path(inspect.getfile(STUDIES[name]))
    code = "\n".join(bare(path.read_text()) for path in sorted(made_of(own)))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def made_of(path: Path) -> set[Path]:
    """A module and all that it takes from its own folder, directly or not."""
    found, ahead = {path}, [path]
    while ahead:
        for node in ast.walk(ast.parse(ahead.pop().read_text())):
            if not isinstance(node, ast.ImportFrom) or node.level != 1:
                continue
            names = [node.module] if node.module else [alias.name for alias in node.names]
            new = {path.with_name(f"{name}.py") for name in names} - found
            found |= new
            ahead += new
    return found


def bare(source: str) -> str:
    """Code without docstrings, lines of comment and empty lines."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for i in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[i] = ""
    kept = (line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return "\n".join(kept)
