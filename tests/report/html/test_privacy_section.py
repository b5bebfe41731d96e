"""The account in reports, tables and trackers; and pages that show nothing else."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

import muster
from muster.cli.main import main
from muster.cli.watch import build_table
from muster.privacy import Gaussian
from muster.report.html.content import Content
from muster.report.html.page import render_page, report_public
from muster.report.tables import comparison_tables, run_table
from muster.results import store
from muster.run.progress import list_progress


def play(privacy, **more):
    fed = muster.data.digits(clients=8, priority=3)
    method = muster.methods.fedalign(epsilon=0.5, warmup=1)
    return muster.simulate(fed, method, muster.models.Softmax(), rounds=3, privacy=privacy, **more)


@pytest.fixture(scope="module")
def private():
    return play(Gaussian(0.5, epsilon=3.0, delta=1e-3))


@pytest.fixture(scope="module")
def seeded():
    return play(Gaussian(0.5, epsilon=3.0, delta=1e-3, seeded=True))


def printed(*what):
    console = Console(width=200, record=True, file=io.StringIO())
    for each in what:
        console.print(each)
    return console.export_text()


def test_the_report_and_the_tables_say_what_each_role_has_spent(private, seeded):
    page = render_page(Content({"fedalign": [private], "again": [seeded]}))
    section = page.partition('<section id="privacy"')[2].partition("</section>")[0]
    assert "fedalign: private: epsilon 3.00 for a client of the objective" in section
    assert "again: not private: the noise is of the seed" in section
    text = printed(run_table(private))
    assert re.search(r"epsilon, objective .* 3\.0000", text)
    assert re.search(r"epsilon, others .* 2\.\d+", text)
    assert "fedalign: private: epsilon 3.00" in text
    both = printed(*comparison_tables({"a": [private], "b": [seeded]}, (3,)))
    assert "a: private: epsilon 3.00" in both
    assert "b: not private" in both


def test_a_page_of_runs_without_privacy_says_so():
    plain = render_page(Content({"plain": [play(None)]}))
    assert "No run here is private" in plain


def test_a_public_page_shows_released_numbers_and_no_others(private, tmp_path, capsys):
    store.save(private, tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--public"]) == 0
    text = (tmp_path / "run" / "report.html").read_text()
    body = text.partition("<main>")[2].partition("</main>")[0]
    assert re.findall(r'<section id="(\w+)"', text) == ["privacy", "released"]
    assert '"sections":{}' in text  # no numbers behind charts
    shown = set(re.findall(r"\d+\.\d{3,}", body))
    facts = private.facts["privacy"]
    columns = ("eps", "reference_loss", "releases", "epsilon_objective", "epsilon_others")
    allowed = {f"{v:.5g}" for c in columns for v in private.rounds[c].drop_nulls()}
    allowed |= {f"{v:.5g}" for v in facts.values() if isinstance(v, float)}
    allowed |= {f"{facts['noise']:.4g}"}
    assert shown <= allowed
    for secret in ("test_accuracy", "loss", "joined", "seconds"):
        for value in private.rounds[secret].drop_nulls().to_list():
            if isinstance(value, float):
                assert f"{value:.4g}" not in shown
    assert "accuracy" not in body


def test_a_run_that_ended_before_its_first_round_has_a_public_page(private, tmp_path):
    none = replace(private, rounds=private.rounds.head(0))
    assert "Released numbers" in report_public({"x": [none]}, tmp_path / "x.html").read_text()


def test_what_is_not_private_has_no_public_page(seeded, tmp_path):
    with pytest.raises(muster.MusterError, match="--public: x, seed 0 is not private: the noise"):
        report_public({"x": [seeded]}, tmp_path / "x.html")
    with pytest.raises(muster.MusterError, match="not private: everything is exact"):
        report_public({"x": [play(None)]}, tmp_path / "x.html")
    assert not list(tmp_path.iterdir())


def test_results_are_read_back_with_their_account(private, tmp_path):
    store.save(private, tmp_path / "run")
    again = store.load(tmp_path / "run")
    assert again.facts["privacy"] == private.facts["privacy"]
    assert again.rounds["releases"].to_list() == [1, 2, 3]


def test_watch_shows_what_was_spent_so_far(tmp_path):
    def stop(row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(muster.Interrupted):
        play(
            Gaussian(0.5, epsilon=3.0, delta=1e-3),
            checkpoint=tmp_path / "run" / "checkpoints",
            on_round=stop,
        )
    text = printed(build_table(list_progress(tmp_path / "run"), tmp_path / "run"))
    assert "epsilon, objective" in text
    assert "epsilon, others" in text


def test_trackers_get_released_numbers_alone(private):
    logged = []

    class Notes(muster.trackers.Tracker):
        def begin(self, name, settings):
            pass

        def log(self, values, round):
            logged.append(values)

        def end(self):
            pass

    play(Gaussian(0.5, epsilon=3.0, delta=1e-3), on_round=Notes())
    assert len(logged) == 3
    allowed = {"eps", "reference_loss", "releases", "epsilon_objective", "epsilon_others"}
    assert set().union(*logged) == allowed
