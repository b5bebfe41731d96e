"""Pictures of a report for the docs: `python tests/support/shots.py runs/demo/report.html docs`.

Of another report, name the picture: `... runs/help/report.html docs assist-help`. They are to be
looked at before they are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from browser import Browser

DEMO = ("report", "report-who", "report-dark", "report-phone")
SHOTS = {  # width, height, dark, and the element that is at the top
    "report": (1200, 1240, False, "header"),
    "report-who": (1200, 900, False, "#participation"),
    "report-dark": (1200, 1100, True, "#participation"),
    "report-phone": (390, 1000, False, "#curves"),
    "assist-help": (1000, 618, False, "#helpers"),
    "advice": (1100, 1230, False, "header"),
}


def main(report: str, folder: str, *names: str) -> None:
    with Browser() as browser:
        for name in names or DEMO:
            width, height, dark, top = SHOTS[name]
            page = browser.open(report, width=width, height=height, dark=dark)
            page.until("document.documentElement.hasAttribute('data-ready')")
            page.run("document.documentElement.style.scrollBehavior = 'auto'")
            page.run(f"document.querySelector({top!r}).scrollIntoView()")
            page.until("document.querySelector('#participation .legend li')")
            page.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 300)))")
            path = page.shot(Path(folder) / f"{name}.png")
            Image.open(path).convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(
                path, optimize=True
            )
            print(path, path.stat().st_size, page.errors)


if __name__ == "__main__":
    main(*sys.argv[1:])
