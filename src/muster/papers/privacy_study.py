"""The table of docs/privacy.md: what company is worth to priority clients, by the noise."""

from __future__ import annotations

from ..base.lazy import pl
from .page_tables import fill, format_points, last_rounds, markdown, points

FEDALIGN, ALONE = "FedALIGN", "priority only"
PANELS = {  # panel, priority clients of 100, how it differs
    "exact": ("20", "no privacy"),
    "public": ("20", ""),
    "released": ("20", "epsilon 2, F(w) released"),
    "joins": ("20", "epsilon 2, at most 20 contributions of a client"),
    "exact-half": ("50", "no privacy"),
    "public-half": ("50", ""),
}


def company_table(frame: pl.DataFrame) -> str:
    """Return test accuracies of both methods, and the lead of company, for each cell."""
    here, lines = last_rounds(frame), list[list[str]]()
    for panel, (priority, words) in PANELS.items():
        cells = here.filter(pl.col("panel") == panel).sort("privacy.epsilon", descending=True)
        for (value,), some in cells.group_by("privacy.epsilon", maintain_order=True):
            means = [
                100 * float(some.filter(pl.col("method") == m)["test_accuracy"].mean())  # type: ignore[arg-type]
                for m in (ALONE, FEDALIGN)
            ]
            lead = format_points(points(some, FEDALIGN, ALONE))
            name = words or f"epsilon {value:g}"
            lines.append([priority, name, *(f"{mean:.1f}" for mean in means), lead])
    return markdown(["priority clients", "", ALONE, FEDALIGN, "lead"], lines)


def privacy_page(page: str, frame: pl.DataFrame | None) -> str:
    """Return docs/privacy.md with its table; `frame` has the results of the experiment."""
    return page if frame is None else fill(page, {"company": company_table(frame)})
