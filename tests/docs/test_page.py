"""Benchmarks write the rows that they measured into a page, and leave the others as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
HEAD = ["workload", "s"]
TEXT = """Before.
<!-- speed -->
| workload | s |
|---|---|
| W1 | 1.0 |
| W2 | 2.0 |

Machine: one, 2 cores.
<!-- end speed -->
After.
"""


@pytest.fixture
def page(benchmark):
    return benchmark("page")


@pytest.fixture
def file(tmp_path):
    place = tmp_path / "speed.md"
    place.write_text(TEXT)
    return place


def test_rows_that_were_not_measured_stay_in_their_places(page, file):
    page.write_rows(file, "speed", [HEAD, ["W1", "0.5"]], "one, 2 cores")
    assert file.read_text() == TEXT.replace("1.0", "0.5")
    page.write_rows(file, "speed", [HEAD, ["W3", "3.0"]], "one, 2 cores")
    assert page.read_rows(file.read_text()) == [["W1", "0.5"], ["W2", "2.0"], ["W3", "3.0"]]


def test_a_table_does_not_mix_machines(page, file):
    said = (r"speed.md, table 'speed': W2 would stay, measured on one, 2 cores; this is two, 4 "
            "cores; measure those here too, or leave out --write")  # fmt: skip
    with pytest.raises(SystemExit, match=said):
        page.write_rows(file, "speed", [HEAD, ["W1", "0.5"]], "two, 4 cores")
    assert file.read_text() == TEXT
    page.write_rows(file, "speed", [HEAD, ["W2", "4"], ["W1", "3"]], "two, 4 cores")
    assert "| W1 | 3 |\n| W2 | 4 |\n\nMachine: two, 4 cores.\n<!--" in file.read_text()


def test_rows_without_a_machine_do_not_stay_next_to_others(page, file):
    file.write_text(TEXT.replace("Machine: one, 2 cores.\n", ""))
    with pytest.raises(SystemExit, match="a machine that it does not name; this is one, 2 cores"):
        page.check_machine(file, "speed", ["W1"], "one, 2 cores")
    page.check_machine(file, "speed", ["W1", "W2"], "one, 2 cores")


def test_several_rows_of_one_name_are_replaced_together(page):
    old = [["W5", "idle", "1"], ["W5", "busy", "2"], ["W2", "idle", "3"]]
    assert page.merge_rows(old, [["W5", "idle", "4"]]) == [["W5", "idle", "4"], old[2]]
    assert page.merge_rows(old, [["W5", "busy", "4"]], 2) == [old[0], ["W5", "busy", "4"], old[2]]


def test_a_page_without_a_place_for_a_table_is_an_error(page):
    for text in ("", TEXT.replace("<!-- end speed -->", "")):
        with pytest.raises(ValueError, match="no place for 'speed', between <!-- speed --> and"):
            page.replace_block(text, "speed", "")


@pytest.mark.parametrize(
    ("name", "table"),
    [*(("speed.md", t) for t in ("speed", "scale", "methods", "busy", "against", "memory")),
     ("speed.md", "peers"), ("scaling.md", "large"), ("reliability.md", "faults")],
)  # fmt: skip
def test_a_table_that_is_written_again_is_the_same(page, name, table):
    text = (DOCS / name).read_text()
    _, block, _ = page.split_page(text, table)
    head = [cell.strip() for cell in block.splitlines()[0][1:-1].split("|")]
    below = "\n".join(line for line in block.splitlines() if not line.startswith("|"))
    again = page.format_table([head, *page.read_rows(block)])
    assert page.replace_block(text, table, again + "\n" + below) == text
    if machine := page.find_machine(block):
        assert below == f"\nMachine: {machine}."
    elif notes := page.read_notes(block):
        assert page.format_notes(notes) in below
        assert {row[0] for row in page.read_rows(block)} == {*notes}


@pytest.mark.parametrize("command", ["run", "against"])
def test_a_table_of_another_machine_is_refused_before_anything_is_measured(
    benchmark, monkeypatch, file, command
):
    module = benchmark(command)
    file.write_text(TEXT.replace("speed", "against" if command == "against" else "speed"))
    monkeypatch.setattr(module, "PAGE", file)
    monkeypatch.setattr(module, "name_machine", lambda: "two, 4 cores")
    sources = [str(DOCS.parent / "src")] * 2 if command == "against" else []
    with pytest.raises(SystemExit, match="W2 would stay, measured on one, 2 cores"):
        module.main([*sources, "W1", "--write"])


def test_a_measured_row_is_written_next_to_the_others(benchmark, monkeypatch, file):
    run = benchmark("run")
    monkeypatch.setattr(run, "PAGE", file)
    monkeypatch.setattr(run, "name_machine", lambda: "one, 2 cores")
    monkeypatch.setattr(run, "speed", lambda names, console: [HEAD, *([n, "9.0"] for n in names)])
    assert run.main(["W2", "--write"]) == 0
    assert file.read_text() == TEXT.replace("2.0", "9.0")
