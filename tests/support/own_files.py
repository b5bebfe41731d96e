"""Small files of one's own, as hospitals might have them."""

from __future__ import annotations

from pathlib import Path

NORTH = "age,dose,label\n50,1.5,0\n60,2.5,1\n70,3.5,0\n80,4.5,1\n"
SOUTH = "dose,label,age\n1,1,51\n2,0,61\n3,1,71\n4,0,81\n"
# Eight rows each: half of them held out still leaves both classes.
NORTH8 = NORTH + "".join(NORTH.splitlines(keepends=True)[1:])
SOUTH8 = SOUTH + "".join(SOUTH.splitlines(keepends=True)[1:])
MANIFEST = """
label = "label"
test_fraction = 0.25
[clients.north]
priority = true
requirement = 0.35
[clients.south]
requirement = 0.5
importance = 0.2
"""


def put(folder, **texts):
    """Files of a folder: put("h", north=..., manifest=...)."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.{'toml' if name == 'manifest' else 'csv'}").write_text(text)
    return folder
