"""The page for those who decide: what it says, and how a browser shows it in both themes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import browser
from muster.report.advice_content import (
    Advice,
    ClientContent,
    format_gain,
    round_up,
)
from muster.report.html.advice import interval_chart, write_page, write_site_page
from muster.report.way_content import Outcomes, WayContent

BINS = ((10, 0.5, 1), *((0, 0.0, 0),) * 8, (10, 9.5, 8))
OUTCOMES = Outcomes(8, 1, 9, 2, BINS)


def client(name, verdict, gain, clear="", **more):
    way = WayContent("with everyone", 0.4, {"accuracy": 0.8}, gain, clear, 2e3, 3e3, OUTCOMES)
    alone = WayContent("alone", 0.5, {"accuracy": 0.7}, outcomes=OUTCOMES)
    settings = {
        "helps": (),
        "none": False,
        "thin": False,
        "seeds_needed": None,
        "rows_needed": None,
    } | more
    return ClientContent(
        name, verdict, "with everyone", rows=90, test_rows=30, alone=alone,
        ways={"with everyone": way}, **settings,
    )  # fmt: skip


@pytest.fixture
def advice():
    clients = [
        client("north", "join", (0.01, 0.1, 0.2), "gain"),
        client("south", "help", (-0.1, 0.01, 0.12), helps=("north",)),
        client("east", "stay out", (-0.3, -0.2, -0.1), "harm", none=True),
        client('<i>"west', "cannot tell", (-0.1, 0.06, 0.22), rows_needed=1234),
    ]
    return Advice(
        {c.name: c for c in clients}, "clinics", 16, 20, 200, "intervals: 95 % over rows", 0.05,
        ("with everyone",), "with everyone", ("pairs: not tried",), ("well", "ill"),
    )  # fmt: skip


def test_the_sentences(advice):
    said = {name: c.sentence() for name, c in advice.clients.items()}
    assert "from 0.500 alone to 0.400: +0.100 (+0.010 to +0.200)" in said["north"]
    assert "north clearly gains by training with it; it is not shown to gain" in said["south"]
    assert "Clearly worse than alone: with everyone." in said["east"]
    assert "About 1,300 rows would tell, if this holds; it has 120." in said['<i>"west']
    assert all("one is 3 points of accuracy" in text for text in said.values())
    assert advice.summary().startswith("north: join, with everyone; south: help north; east: stay")


def test_a_hundred_rows_in_words(advice):
    north = advice.clients["north"]
    right = "Right of 100 held-out rows: 70 alone, 80 with everyone"
    found = "89 and 89 of 100 ill are found, 82 and 82 of 100 well recognised"
    assert north.describe_hundred(advice.classes) == f"{right}; {found} (30 test rows a seed)."
    assert north.describe_hundred() == f"{right} (30 test rows a seed)."
    assert replace(north, alone=replace(north.alone, scores={})).describe_hundred() == ""


def test_classes_that_are_numbers_and_rows_that_are_not_there(advice):
    north = advice.clients["north"]
    said = north.describe_hundred(("0", "1"))
    assert "89 and 89 of 100 of class 1 are found, 82 and 82 of 100 of class 0 recognised" in said
    none = replace(north.alone, outcomes=replace(OUTCOMES, hits=0, misses=0))
    said = replace(north, alone=none).describe_hundred(advice.classes)
    assert "; 82 and 82 of 100 well recognised (30" in said


def test_a_way_that_fails_does_not_hide_the_others(advice, tmp_path):
    """A loss of thousands by one way leaves bars and shades of the others as they were."""
    north = advice.clients["north"]
    plain = interval_chart(north)
    failed = WayContent("by MaxFL", 5e3, {}, (-6e3, -5e3, -4e3), "harm")
    chart = interval_chart(replace(north, ways={**north.ways, "by MaxFL": failed}))
    bar, longer = (re.search(r'<line x1="([\d.]+)"[^>]*x2="([\d.]+)"[^>]*class="line m0"', c)
                   for c in (plain, chart))  # fmt: skip
    assert bar is not None
    assert longer is not None
    width, shown = (float(found[2]) - float(found[1]) for found in (bar, longer))
    assert shown > width / 10
    assert "◂ -5e+03" in chart
    assert chart.count("<circle") == 1
    both = {"north": replace(north, ways={**north.ways, "by MaxFL": failed})}
    ways = ("with everyone", "by MaxFL")
    page = write_page(replace(advice, clients=both, ways=ways), tmp_path / "r.html").read_text()
    assert '<td class="number up1">+0.100*</td><td class="number down3">-5000.000*</td>' in page


def test_advice_to_the_owner_names_a_method_and_its_cost(advice, tmp_path):
    said = advice.describe_method()
    assert said.startswith("For the owner: the way advised most is with everyone. Clearly better")
    assert "than alone: north; clearly worse: east. It takes 20 rounds" in said
    assert said.endswith("in which a client sends 2.0 kB and receives 3.0 kB.")
    assert said in write_page(advice, tmp_path / "report.html").read_text()
    assert "For the owner" not in write_site_page(advice, "north", tmp_path).read_text()
    assert "nobody is advised" in replace(advice, method="").describe_method()


def test_the_page_says_verdicts_costs_and_what_is_not_known(advice, tmp_path):
    page = write_page(advice, tmp_path / "report.html").read_text()
    for text in (
        "join, with everyone", "help north", "stay out", "cannot tell", "What is not known",
        "What it costs", "sensitivity", "0.889", "specificity", "0.818", "Do probabilities mean",
        "Pairs: not tried.", "the share of ill that is found", "2.0", "3.0",
    ):  # fmt: skip
        assert text in page
    assert '<i>"west' not in page
    assert not re.search(r"\sstyle=", page), "the page's own policy forbids it"
    assert 'href="#advice">Skip' in page


def test_a_sites_page_is_about_that_site(advice, tmp_path):
    path = write_site_page(advice, "south", tmp_path)
    assert path.name == "report-south.html"
    page = path.read_text()
    assert "help north" in page
    assert "stay out</span>" not in page
    assert "1,300" not in page


def test_long_names_fit_into_charts(advice):
    way = "with " + "a hospital with a long name" * 3
    client = next(c for c in advice.clients.values() if c.ways)
    ways = {way: replace(next(iter(client.ways.values())), name=way)}
    chart = interval_chart(replace(client, ways=ways))
    assert ">with a hospital with a lo…<" in chart
    assert "with a hospital with a long namea" in chart, "and are read aloud in full"


def test_numbers_in_words():
    assert format_gain((-0.01, 0.0, 0.01)) == "+0.000 (-0.010 to +0.010)"
    assert [round_up(n) for n in (9, 99, 101, 1201)] == [9, 99, 110, 1300]


@browser.needed
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_without_a_complaint(advice, tmp_path, dark):
    path = write_page(advice, tmp_path / "report.html")
    with browser.Browser() as running:
        page = running.open(path, width=390, dark=dark)
        page.until("document.documentElement.hasAttribute('data-ready')")
        assert page.errors == []
        assert page.run("document.querySelectorAll('.card').length") == 4
        assert page.run("document.querySelectorAll('svg.still').length") == 8
        wide = "document.documentElement.scrollWidth <= innerWidth"
        assert page.run(wide), "nothing is wider than a phone"
        texts = """[...document.querySelectorAll('.card svg.still text')].map(text => {
            const own = text.getBoundingClientRect();
            const chart = text.ownerSVGElement.getBoundingClientRect();
            return [own.left - chart.left, chart.right - own.right, own.height];
        })"""
        for left, right, height in page.run(texts):
            assert left > -1, "no name is cut off"
            assert right > -1
            assert height > 10, "letters are large enough to read on a phone"
        shades = "getComputedStyle(document.querySelector('.down3')).backgroundColor"
        assert page.run(shades) != "rgba(0, 0, 0, 0)"
