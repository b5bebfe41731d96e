"""The docs as a static site: what `mkdocs build` does beyond the pages that are here.

The README is the first page; CONTRIBUTING, SECURITY and the CHANGELOG are pages too; the reference
is made of the docstrings of everything public. Links between files of the repository become links
between pages, or plain text where there is no page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {  # of the site, and the files they are made of
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security-policy.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
ORDER = {
    "Tutorials": ["tutorial-comparison.md", "tutorial-own-files.md", "tutorial-federation.md"],
    "Guides": ["own-data.md", "data.md", "tasks.md", "report.md", "sweep.md", "federate.md"],
    "Evidence": ["reproduce.md", "claims.md", "gallery.md"],
    "Reference": ["api.md", "methods.md", "choices.md", "theory.md"],
    "Project": ["contributing.md", "security-policy.md", "changelog.md"],
}
# What the reference covers: the package's own names, and modules whose public names are listed.
MODULES = (
    "muster", "muster.methods", "muster.models", "muster.tasks", "muster.optimizers",
    "muster.schedules", "muster.parts", "muster.data", "muster.trackers", "muster.results.measures",
    "muster.base.registry",
)  # fmt: skip
KEY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*)  +(\S.*)")


# ---- the reference ----


def reference() -> str:
    """The page of everything public, module by module."""
    parts = ["# Reference\n\nMade from the docstrings; what is not here is not promised to stay.\n"]
    for name in MODULES:
        module = imported(name)
        about = described(inspect.getdoc(module) or "")
        parts.append(f"## `{name}`\n\n{about}\n")
        parts += [entry(name, title, thing) for title, thing in public(module)]
    return "\n".join(parts)


def imported(name: str) -> Any:
    import importlib

    return importlib.import_module(name)


def public(module: Any) -> Iterator[tuple[str, Any]]:
    """The classes and functions that a module offers, by name."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, thing in vars(module).items()
            if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
        ]
    for name in sorted(names):
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            yield name, thing


def entry(module: str, name: str, thing: Any) -> str:
    """A class or function: its signature, what its docstring says, and its public methods."""
    text = f"### `{name}`\n\n```python\n{signature(module, name, thing)}\n```\n\n"
    text += described(inspect.getdoc(thing) or "") + "\n"
    if inspect.isclass(thing):
        for inner, member in vars(thing).items():
            held = member.fget if isinstance(member, property) else member
            held = getattr(held, "__func__", held)
            if inner.startswith("_") or not inspect.isfunction(held) or not held.__doc__:
                continue
            given = "" if isinstance(member, property) else arguments(held)
            said = described(inspect.getdoc(held) or "")
            text += f"\n#### `{name}.{inner}{given}`\n\n{said}\n"
    return text


def signature(module: str, name: str, thing: Any) -> str:
    """How something is called, one argument per line where they are many."""
    line = f"{module}.{name}{arguments(thing)}"
    if len(line) <= 88:
        return line
    try:
        given = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return line
    return "\n".join([f"{module}.{name}(", *(f"    {written(p)}," for p in given), ")"])


def arguments(thing: Any) -> str:
    try:
        given = inspect.signature(thing).parameters
    except (TypeError, ValueError):
        return "(...)"
    return f"({', '.join(written(p) for name, p in given.items() if name != 'self')})"


def written(parameter: inspect.Parameter) -> str:
    """An argument with its default, without its type: the text says what it is."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    name = stars.get(parameter.kind, "") + parameter.name
    if parameter.default is parameter.empty:
        return name
    return f"{name}={re.sub(r' at 0x[0-9a-f]+', '', repr(parameter.default))}"


def described(doc: str) -> str:
    """A docstring as Markdown: lines of the form `key   what it is` become a list, examples and
    indented lines code."""
    made = []
    for block in re.split(r"\n\s*\n", doc.strip()):
        lines = block.splitlines()
        if lines[0].startswith(">>>"):
            made.append("```python\n" + "\n".join(lines) + "\n```")
        elif all(line.startswith("    ") for line in lines):
            made.append("```\n" + "\n".join(line[4:] for line in lines) + "\n```")
        elif KEY.fullmatch(lines[0]):
            made.append(keys(lines))
        else:
            made.append("\n".join(lines))
    return "\n\n".join(made)


def keys(lines: list[str]) -> str:
    """Lines of keys as a list."""
    items: list[str] = []
    for line in lines:
        if found := KEY.fullmatch(line):
            items.append(f"- `{found[1]}`: {found[2]}")
        else:
            items[-1] += f" {line.strip()}"
    return "\n".join(items)


# ---- links ----


def page_of(target: Path) -> str | None:
    """The page of the site that a file of the repository is on."""
    for page, source in PAGES.items():
        if target == ROOT / source:
            return page
    inside = target.is_relative_to(ROOT / "docs") and target.exists()
    return str(target.relative_to(ROOT / "docs")) if inside else None


def relinked(text: str, source: Path) -> str:
    """Links of a file of the repository as links of the site."""

    def one(found: re.Match[str]) -> str:
        mark, shown, where, place = found.groups()
        page = page_of((source.parent / where).resolve())
        return f"{mark}[{shown}]({page}{place or ''})" if page else f"{shown} (`{where}`)"

    return re.sub(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)", one, text)


# ---- what mkdocs calls ----


def on_config(config: Any) -> Any:
    """The order of the pages: those that are listed and there, then all others."""
    there = {path.name for path in (ROOT / "docs").glob("*.md")} | {*PAGES, "api.md"}
    nav: list[dict[str, Any]] = [{"muster": "index.md"}]
    listed = {"index.md"}
    for title, pages in ORDER.items():
        mine = [page for page in pages if page in there]
        listed.update(mine)
        if title == "Reference":
            rest = sorted(there - {p for pages in ORDER.values() for p in pages} - {"index.md"})
            mine += rest
        if mine:
            nav.append({title: mine})
    config.nav = nav
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for page, source in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "api.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A page with links that lead somewhere on the site."""
    name = page.file.src_uri
    if name == "api.md":
        return markdown
    return relinked(markdown, ROOT / PAGES[name] if name in PAGES else ROOT / "docs" / name)
