"""Studies of the papers' theory: each is one function that returns one long frame.

    bound        Theorem 1 and A.9: the bound, printed and repaired, and the measured error
    corollary2   theta_T, rho_T and the error for four decays of eps_t
    toy          MaxFL's Fig. 2 a-c, for two and for three clients; Lemmas 2.1, 2.2, Theorem 2.1
    weights      MaxFL's Fig. 3: q_k against the gap
    rate         Theorem 3.1: how fast the gradient of MaxFL's objective vanishes

The first column, `study`, names the study: `verdicts` judges the paper's statements from the frame
alone, and `figures` draws it. A study's settings are in its code, so its digest is of the modules
it is built from, without what does not compute: docstrings, comments and imports.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path

from ...base.lazy import pl
from .study_bound import bound, corollary2
from .study_toy import rate, toy, weights

__all__ = ["STUDIES", "bound", "corollary2", "digest", "rate", "run_study", "toy", "weights"]

STUDIES: dict[str, Callable[..., pl.DataFrame]] = {
    "bound": bound,
    "corollary2": corollary2,
    "toy": toy,
    "weights": weights,
    "rate": rate,
}


def run_study(name: str, quick: bool = False, seeds: int | None = None) -> pl.DataFrame:
    """Run a study by its name; `quick` and `seeds` reach those that have them."""
    study = STUDIES[name]
    options = {"quick": quick, **({} if seeds is None else {"seeds": seeds})}
    known = inspect.signature(study).parameters
    return study(**{key: value for key, value in options.items() if key in known})


def digest(name: str) -> str:
    """Return the digest of the code that decides a study's results: other code outdates them."""
    module = Path(inspect.getfile(STUDIES[name]))
    code = "\n".join(strip_source(path.read_text()) for path in sorted(find_modules(module)))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def find_modules(path: Path) -> set[Path]:
    """Return a module and all that it imports from its own folder, directly or not."""
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


def strip_source(source: str) -> str:
    """Return code without docstrings, imports, lines of comment and empty lines."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            for i in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[i] = ""
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
