"""Tables of pages: each goes between its markers."""

from __future__ import annotations

import pytest

from muster.papers.page_tables import fill


def test_tables_are_put_between_their_markers():
    page = "a\n<!-- table x -->\nold\n<!-- end -->\nb\n"
    assert fill(page, {"x": "| new |"}) == "a\n<!-- table x -->\n| new |\n<!-- end -->\nb\n"
    with pytest.raises(ValueError, match="no place for the table y"):
        fill(page, {"y": ""})
