"""The report in a real browser: it draws, it answers, and it complains of nothing.

Needs `apt-get install chromium`; without it these tests are skipped.
"""

from __future__ import annotations

import base64

import polars as pl
import pytest

import browser
import muster
from big_run import NASTY, big_run

pytestmark = browser.needed

READY = "document.documentElement.hasAttribute('data-ready')"
DRAWN = """[...document.querySelectorAll('.chart')].every(chart =>
  chart.querySelector('svg path, svg line, svg rect, svg circle, canvas[style]'))"""
CANVAS = "document.querySelector('#participation canvas')"
UNNAMED = """[...document.querySelectorAll('.chart, button, select')].filter(e =>
  !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label'))).length"""
SAVES = """[...document.querySelectorAll('button.save')]
  .filter(b => b.textContent === 'Save as CSV').length"""


@pytest.fixture(scope="module")
def chromium():
    with browser.Browser() as running:
        yield running


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two methods on two seeds, with requirements, clients who leave, and attackers."""
    fed = muster.data.digits(clients=8, priority=3)
    work = muster.Local(steps=5, batch_size=16, lr=0.1)
    fed = muster.with_solo(fed, muster.models.Softmax(), 8, work)
    methods = {"fedalign": muster.methods.fedalign(0.5), "all": muster.methods.fedavg()}
    done = muster.compare(
        fed, methods, muster.models.Softmax(), 8, work, seeds=2,
        attack=muster.attacks.ForgeLoss(fraction=0.2),
    )  # fmt: skip
    return done.report(tmp_path_factory.mktemp("report") / "report.html", "a report")


def opened(chromium, path, **how):
    page = chromium.open(path, **how)
    page.until(READY)
    page.until(DRAWN)
    return page


@pytest.mark.parametrize(
    ("dark", "width"),
    [
        (False, 1200),
        (True, 390),
        pytest.param(False, 390, marks=pytest.mark.slow),
        pytest.param(True, 1200, marks=pytest.mark.slow),
    ],
)
def test_everything_is_drawn_without_a_complaint(chromium, report, dark, width):
    page = opened(chromium, report, dark=dark, width=width)
    assert page.run("document.querySelectorAll('main > section').length") == 13
    assert page.run("document.querySelectorAll('.chart').length") >= 10
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
    assert page.run("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    page.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.until(
        "[...document.querySelectorAll('details.lazy')].every(d => d.querySelector('table'))"
    )
    assert page.errors == []


def test_nothing_is_asked_of_the_network(chromium, report):
    page = opened(chromium, report)
    assert page.run("performance.getEntriesByType('resource').map(e => e.name)") == []


def test_methods_and_intervals_are_switched(chromium, report):
    page = opened(chromium, report)
    curves = "document.querySelector('#curves .chart').querySelectorAll('{}').length"
    assert page.run(curves.format(".line")) == 2
    assert page.run(curves.format(".band")) == 2
    page.run("document.querySelector('.switch').click()")
    assert page.run("document.querySelector('.switch').getAttribute('aria-pressed')") == "false"
    assert page.run(curves.format(".line")) == 1
    page.run("document.querySelector('.switch').click()")
    page.run("document.querySelector('.switches').lastChild.click()")
    assert page.run(curves.format(".line")) == 2
    assert page.run(curves.format(".band")) == 0
    assert page.errors == []


def test_the_theme_is_switched(chromium, report):
    page = opened(chromium, report)
    seen = []
    for _ in range(3):
        page.run("document.getElementById('theme').click()")
        seen.append(page.run("getComputedStyle(document.body).backgroundColor"))
    assert seen[0] == seen[2] == "rgb(255, 255, 255)"
    assert seen[1] == "rgb(20, 24, 29)"


def test_it_is_printed_light_with_everything_on_it(chromium, report):
    page = opened(chromium, report, dark=True)
    page.run("window.seen = []")
    page.run(
        "addEventListener('beforeprint', () => "
        "window.seen.push(getComputedStyle(document.body).backgroundColor))"
    )
    made = page.ask("Page.printToPDF", printBackground=True)
    assert base64.b64decode(made["data"]).count(b"/Type /Page\n") >= 3
    assert page.run("window.seen") == ["rgb(255, 255, 255)"]
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    assert page.errors == []


def test_charts_are_read_with_the_keyboard_and_the_pointer(chromium, report):
    page = opened(chromium, report)
    page.run("document.querySelector('#curves .chart').focus()")
    page.key("ArrowRight")
    assert page.run("document.getElementById('tip').textContent").startswith("round 1fedalign: ")
    page.run("document.querySelector('#participation .chart').focus()")
    page.key("ArrowRight")
    said = page.run("document.getElementById('tip').textContent")
    assert "round 1: admitted, priority client" in said
    page.run(f"{CANVAS}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    x, y = page.run(f"(b => [b.left, b.top])({CANVAS}.getBoundingClientRect())")
    page.point(x + 5, y + 5)
    assert page.run("document.getElementById('tip').classList.contains('on')")
    assert page.run("document.getElementById('tip').getAttribute('aria-live')") == "polite"
    assert page.run(UNNAMED) == 0
    assert page.errors == []


def test_another_run_and_another_order_are_picked(chromium, report):
    page = opened(chromium, report)
    legend = "document.querySelector('#participation .legend').textContent"
    page.until(f"{legend}.includes('priority client')")
    before = page.run(legend)
    page.run(
        "(s => { s.value = '1'; s.dispatchEvent(new Event('change')) })"
        "(document.querySelector('#participation select'))"
    )
    page.until(f"{legend} !== {before!r}")
    assert page.run("document.querySelector('#clients select').value") == "1", "all go together"
    page.run(
        "(s => { s.value = 'gain'; s.dispatchEvent(new Event('change')) })"
        "([...document.querySelectorAll('#clients select')].at(-1))"
    )
    page.run("document.querySelector('#clients details').open = true")
    page.until("document.querySelector('#clients details table')")
    gains = page.run(
        "(t => { const i = [...t.tHead.rows[0].cells].findIndex(c => c.textContent === 'gain');"
        "return [...t.tBodies[0].rows].map(r => parseFloat(r.cells[i].textContent)) })"
        "(document.querySelector('#clients details table'))"
    )
    assert gains == sorted(gains, reverse=True)
    assert page.errors == []


def test_tables_are_sorted_and_saved(chromium, report):
    page = opened(chromium, report)
    page.run("URL.createObjectURL = blob => { window.saved = blob; return '#' }")
    assert page.run("document.querySelectorAll('table[data-csv]').length") == page.run(SAVES)
    page.run("document.querySelector('#result .save').click()")
    text = page.run("window.saved.text()")
    assert text.startswith("method,test acc @8,loss @8,")
    assert text.splitlines()[1].startswith("fedalign,")
    page.run("document.querySelector('#result thead button').click()")
    first = "document.querySelector('#result tbody th').textContent"
    assert page.run(first) == "all"
    page.run("document.querySelector('#result thead button').click()")
    assert page.run(first) == "fedalign"


def test_names_that_look_like_code_are_shown(chromium, tmp_path):
    names = NASTY + [f"plain {i}" for i in range(12)]
    path = big_run(20, 6, names=names).report(tmp_path / "r.html", NASTY[0])
    page = opened(chromium, path)
    assert page.run("document.querySelector('h1').textContent") == NASTY[0]
    page.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.until("document.querySelector('#clients details table')")
    shown = page.run("[...document.querySelectorAll('#clients tbody th')].map(c => c.textContent)")
    assert set(NASTY) <= set(shown)
    page.run("URL.createObjectURL = blob => { window.saved = blob; return '#' }")
    page.run("document.querySelector('#clients details .save').click()")
    text = page.run("window.saved.text()")
    assert "'=1+1," in text, "a spreadsheet takes it for text"
    assert '"""quoted"""' in text
    assert page.run("document.querySelectorAll('b, main script').length") == 0
    assert page.errors == []


def test_a_thousand_clients_by_five_hundred_rounds(chromium, tmp_path):
    path = big_run(1000, 500).report(tmp_path / "r.html")
    page = opened(chromium, path)
    assert page.run("document.querySelector('#participation canvas').height") >= 1000
    page.run("document.querySelector('#participation .chart').focus()")
    page.key("End")
    assert "round 500: " in page.run("document.getElementById('tip').textContent")
    assert page.errors == []


@pytest.fixture(scope="module")
def helped(tmp_path_factory):
    """Help by evidence, with a guard, next to the same without one."""
    few = muster.data.Few(of=muster.data.Dirichlet(0.3), first=2, rows=20)
    fed = muster.data.digits(clients=10, priority=2, partition=few)
    methods = {"guarded": muster.methods.assist(guard=True), "plain": muster.methods.assist()}
    done = muster.compare(fed, methods, muster.models.Softmax(), 8, seeds=1)
    return done, done.report(tmp_path_factory.mktemp("helped") / "report.html")


TIP = "document.getElementById('tip')"
HELP = "document.querySelector('#helpers canvas')"


@pytest.mark.parametrize("dark", [False, True])
def test_helpers_are_read_cell_by_cell(chromium, helped, dark):
    done, path = helped
    page = opened(chromium, path, dark=dark)
    run = done["guarded"][0]
    table = run.clients.filter(~run.clients["priority"])
    order = page.run("[...document.querySelectorAll('#helpers .names div')].map(e => +e.innerText)")
    total = dict(table.group_by("client").agg(pl.col("weight").sum()).rows())
    assert [total[k] for k in order] == sorted(total.values(), reverse=True)
    page.run("document.querySelector('#helpers .chart').focus()")
    page.key("ArrowRight")
    for k in order:
        (row,) = table.filter((table["client"] == k) & (table["round"] == 1)).to_dicts()
        said = page.run(f"{TIP}.innerText").splitlines()
        assert said[0] == str(k)
        if row["weight"] > 0:
            assert said[1].startswith("round 1: counted for ")
            shown = float(said[1].split()[4])
            assert shown == pytest.approx(100 * row["weight"], abs=0.5)
        else:
            assert said[1] == f"round 1: did not count: {row['reason']}"
        assert said[2].startswith("all helpers ")
        model = "helped model" if run.rounds["helped"][0] else "model trained alone"
        assert said[3] == f"deployed: the {model}"
        page.key("ArrowDown")
    assert page.errors == []


def test_the_sentence_is_about_the_run_that_is_picked(chromium, helped):
    page = opened(chromium, helped[1])
    said = "document.querySelector('#helpers .said').textContent"
    assert "guarded, seed 0: Helpers counted for" in page.run(said)
    assert "was deployed in" in page.run(said)
    assert page.run("document.querySelector('#helpers svg').textContent.includes('deployed')")
    page.run(
        "(s => { s.value = '1'; s.dispatchEvent(new Event('change')) })"
        "(document.querySelector('#helpers select'))"
    )
    page.until(f"{said}.startsWith('plain')")
    assert "was deployed in" not in page.run(said)
    assert not page.run("document.querySelector('#helpers svg').textContent.includes('deployed')")
    assert page.errors == []


def test_a_tap_shows_what_a_pointer_does_and_it_stays(chromium, helped):
    page = opened(chromium, helped[1], width=390)
    page.run(f"{HELP}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    x, y = page.run(f"(b => [b.left + 5, b.top + 5])({HELP}.getBoundingClientRect())")
    page.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    page.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    page.until(f"{TIP}.classList.contains('on')")
    assert "round 1: counted for" in page.run(f"{TIP}.textContent")
    page.run("document.querySelector('#helpers .chart').dispatchEvent(new FocusEvent('blur'))")
    assert not page.run(f"{TIP}.classList.contains('on')")


def test_the_columns_of_both_pictures_lie_under_each_other(chromium, tmp_path):
    path = big_run(300, 40).report(tmp_path / "r.html")
    for width in (1200, 390):
        page = opened(chromium, path, width=width)
        rows = page.run("document.querySelectorAll('#helpers .names div').length")
        assert rows == 61, "sixty helpers, and the others together"
        assert page.run("document.querySelector('#helpers canvas').clientHeight") >= 10 * rows
        left, right = page.run(f"(b => [b.left, b.right])({HELP}.getBoundingClientRect())")
        bars = page.run(
            "(b => [b.left, b.right])(document.querySelector('#helpers svg .share.state2')"
            ".getBoundingClientRect())"
        )
        assert bars == pytest.approx([left, right], abs=1)
        assert page.errors == []
