"""Site hooks for mkdocs: README and other root files as pages, and links between files as links
between pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {  # pages of the site and the files they show
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security-policy.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")


def find_page(target: Path) -> str | None:
    """Return the page that shows a file of the repository, if there is one."""
    for page, source in PAGES.items():
        if target == ROOT / source:
            return page
    inside = target.is_relative_to(ROOT / "docs") and target.exists()
    return str(target.relative_to(ROOT / "docs")) if inside else None


def rewrite_links(text: str, source: Path) -> str:
    """Turn links between files of the repository into links between pages, or into plain text."""

    def rewrite(found: re.Match[str]) -> str:
        mark, label, where, anchor = found.groups()
        page = find_page((source.parent / where).resolve())
        return f"{mark}[{label}]({page}{anchor or ''})" if page else f"{label} (`{where}`)"

    return LINK.sub(rewrite, text)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/ (called by mkdocs)."""
    from mkdocs.structure.files import File

    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page (called by mkdocs)."""
    name = page.file.src_uri
    return rewrite_links(markdown, ROOT / PAGES[name] if name in PAGES else ROOT / "docs" / name)
