"""A messy folder, as hospitals send it: every file in its own dialect, with its own codings."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CODES = {
    "nord": {"no": "no", "yes": "yes", "f": "weiblich", "m": "männlich"},
    "ost": {"no": "0", "yes": "1", "f": "weiblich", "m": "männlich"},
    "süd": {"no": "No", "yes": "Yes", "f": "weiblich", "m": "männlich"},
}
WARDS = ("Chirurgie", "Innere", "Gynäkologie")


def records(name: str, rows: int, draw: np.random.Generator) -> list[dict[str, str]]:
    """Patients of a hospital, as text; ill are the old, and men more often."""
    codes, found = CODES[name], []
    for i in range(rows):
        age, sex = draw.uniform(20, 90), "fm"[draw.integers(2)]
        ill = age / 15 + (sex == "m") - 4 + draw.normal(0, 0.5) > 0
        found.append({
            "patient_id": f"{name[0].upper()}-{i:04d}",
            "alter": f"{age:.1f}",
            "größe": f"{draw.normal(170 if sex == 'f' else 180, 7):.1f}",
            "geschlecht": codes[sex],
            "station": WARDS[draw.integers(3)],
            "aufnahme": f"{draw.integers(1, 28):02d}.{draw.integers(1, 13):02d}.2023",
            "notiz": f"Patient {i} kam mit Schmerzen, Befund {draw.integers(1000)}",
            "krank": codes["yes" if ill else "no"],
        })  # fmt: skip
    return found


def write_messy_folder(folder: Path, rows: int = 60, converted: bool = False) -> Path:
    """Write three hospitals' files; return the folder.

    nord: commas, UTF-8; a typo, a word for a missing number, five copies of rows.
    ost: semicolons, latin-1, decimal commas, columns in another order, one more column, and four
    rows of nord's.
    süd: tabs; heights in metres (unless they are `converted`), missing values.
    """
    folder.mkdir()
    draw = np.random.default_rng(0)
    nord, ost, süd = (records(name, rows, draw) for name in CODES)
    nord[3]["geschlecht"] = "weilbich"
    nord[4]["alter"] = "k.A."
    nord += nord[10:15]
    recoded = {"no": "0", "yes": "1"}
    ost += [{**record, "krank": recoded[record["krank"]]} for record in nord[20:24]]
    for record in ost:
        record["blutgruppe"] = "AB0"[draw.integers(3)]
        for name in ("alter", "größe"):
            record[name] = record[name].replace(".", ",")
    for record in süd:
        record["größe"] = f"{float(record['größe']) / (1 if converted else 100):.3f}"
    süd[0]["alter"] = süd[1]["station"] = ""
    put(folder / "nord.csv", nord, ",", "utf-8")
    put(folder / "ost.csv", ost, ";", "latin-1", backwards=True)
    put(folder / "süd.csv", süd, "\t", "utf-8")
    return folder


def put(
    path: Path, rows: list[dict[str, str]], mark: str, encoding: str, backwards: bool = False
) -> None:
    """Write rows as a CSV file in a dialect."""
    names = list(rows[0])[:: -1 if backwards else 1]
    lines = [mark.join(names)]
    for row in rows:
        quoted = [f'"{row[name]}"' if mark in row[name] else row[name] for name in names]
        lines.append(mark.join(quoted))
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
