"""What leaks: a requirement without privacy; and nothing that was not released from the files of a
private run, but for those of whoever simulates it."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file

import muster
from file_numbers import find_secrets
from muster.flower.client import app as client_app
from muster.privacy.fixed_point import centre, decode
from muster.privacy.noise import draw_vectors, seeded_words
from muster.report.html.page import report, report_public
from muster.results import store
from muster.run import contributors, private_round
from own_files import put
from secure_setup import SecureSetup


def solve_requirements(loss, claim):
    """rho_k from F_k and q_k of two rounds: `q = s (1 - s)` has two roots s, of which the same rho
    fits both rounds."""
    gap = np.log1p(np.sqrt(1 - 4 * claim)) - np.log1p(-np.sqrt(1 - 4 * claim))
    first, second = (np.stack([f - g, f + g]) for f, g in zip(loss, gap, strict=True))
    best = np.abs(first[:, None] - second).min(1).argmin(0)
    return first[best, np.arange(loss.shape[1])]


def test_requirements_follow_from_claims_and_losses():
    model = muster.models.Softmax()
    fed = muster.with_solo(muster.data.digits(clients=6), model, rounds=3)
    run = muster.simulate(fed, muster.methods.maxfl(), model, 2, dtype="float64")
    said = run.clients.sort("round", "client")
    loss, claim = (said[name].to_numpy().reshape(2, 6) for name in ("loss", "claim"))
    np.testing.assert_allclose(solve_requirements(loss, claim), fed.requirement, rtol=1e-9)


# The files of a private run


class Secrets:
    """Numbers of private runs that are not released, by kind, written down as clients compute them.

    Noise is the same in every test: a number of a page has few digits, and meets another by chance.
    """

    def __init__(self, monkeypatch):
        self.kinds = {kind: [] for kind in ("update", "contribution", "sum", "loss", "F(w)")}
        self.apart = {}  # by round: the contributions of nodes, each of which sees its own alone
        words = seeded_words(5, 0)
        for module in (private_round, contributors):
            monkeypatch.setattr(module, "system_words", words)
        monkeypatch.setattr(client_app, "draw_vectors", lambda *of: draw_vectors(*of, words))
        make, whole = contributors.contribute, contributors.encode
        contribute = contributors.LocalContributors.contribute

        def note_update(privacy, updates, *rest):
            sent = make(privacy, updates, *rest)
            self.kinds["update"] += [*updates, *sent]
            return sent

        def note_contribution(*args):
            vectors = whole(*args)
            self.kinds["contribution"] += [*vectors, *map(centre, vectors)]
            return vectors

        def note_sum(own, offer, roster, *rest):
            answers = contribute(own, offer, roster, *rest)
            (total,) = answers.sums
            scale, n = own.job.scale(offer), offer.population
            known = answers.appraisal.loss
            self.kinds["loss"] += known.tolist()
            self.apart.setdefault(offer.round, []).append((total, known, roster.priority))
            if sum(len(loss) for _, loss, _ in self.apart[offer.round]) == n:
                totals, losses, first = zip(*self.apart[offer.round], strict=True)
                whole = np.sum(totals, 0, np.uint32)
                exact = decode(whole, own.job.privacy.clip, scale)
                self.kinds["sum"] += [whole, centre(whole), exact, exact / n]
                self.kinds["F(w)"].append(np.concatenate(losses)[np.concatenate(first)].mean())
            return answers

        monkeypatch.setattr(contributors, "contribute", note_update)
        monkeypatch.setattr(contributors, "encode", note_contribution)
        monkeypatch.setattr(contributors.LocalContributors, "contribute", note_sum)

    def find(self, folder):
        """Where they are in the files of a folder."""
        assert all(self.kinds.values())
        return find_secrets(folder, self.kinds)


class JsonTracker(muster.trackers.Tracker):
    """A tracker of a file."""

    def __init__(self, folder):
        super().__init__()
        self.file = folder / "tracker.jsonl"

    def begin(self, name, settings):
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def log(self, values, round):
        with self.file.open("a") as stream:
            print(json.dumps({"round": round, **values}), file=stream)

    def end(self):
        pass


def simulate(folder, **privacy):
    """A private simulation with everything that it may write: checkpoints, results, pages."""
    run = muster.simulate(
        muster.data.digits(clients=8, priority=3),
        muster.methods.fedalign(epsilon=0.6, warmup=0),
        muster.models.Softmax(),
        rounds=3,
        local=muster.Local(steps=2, batch_size=8, lr=0.5),
        dtype="float64",
        privacy=muster.privacy.Gaussian(clip=0.5, noise=1.0, delta=1e-3, **privacy),
        checkpoint=folder / "run" / "checkpoints",
        on_round=JsonTracker(folder / "public"),
    )
    store.save(run, folder / "run")
    report({"fedalign": [run]}, folder / "run" / "report.html")
    report_public({"fedalign": [run]}, folder / "public" / "report.html")
    return run


# Whoever simulates has all rows. These places say how single clients did; docs/privacy.md names
# them. (The first model answers every class alike: all losses of it are F(w) too.)
SIMULATOR = {
    ("run/clients.parquet", "loss"): {"loss", "F(w)"},
    ("run/rounds.parquet", "loss"): {"F(w)"},
    ("run/run.toml", "facts.start_loss"): {"loss", "F(w)"},
    ("run/report.html", "page"): {"loss", "F(w)"},
    ("run/checkpoints/round/clients-000000.parquet", "loss"): {"loss", "F(w)"},
    ("run/checkpoints/round/rounds.parquet", "loss"): {"F(w)"},
    ("run/checkpoints/round/facts.json", "start_loss"): {"loss", "F(w)"},
    ("run/checkpoints/progress.jsonl", "loss"): {"F(w)"},
    ("run/final.parquet", "rows"): {"rows"},
    ("run/holdings.parquet", "rows"): {"rows"},
}


@pytest.mark.parametrize("secure", [False, True])
def test_a_private_simulation_writes_no_update_and_no_exact_sum(tmp_path, monkeypatch, secure):
    """And of losses and numbers of rows nothing to what may be passed on."""
    secrets = Secrets(monkeypatch)
    run = simulate(tmp_path, secure=secure)
    secrets.kinds["rows"] = [run.final["rows"].to_numpy()]
    assert 0 < run.rounds["joined"].min() < 8
    assert (tmp_path / "public" / "tracker.jsonl").stat().st_size
    assert secrets.find(tmp_path) == SIMULATOR


@pytest.mark.parametrize("secure", [False, True])
def test_a_private_federation_writes_nothing_of_a_client(tmp_path, monkeypatch, secure):
    """But for numbers of rows, where the server is told them."""
    secrets = Secrets(monkeypatch)
    monkeypatch.setattr(store, "delete_checkpoints", lambda folder: None)
    setup = SecureSetup(tmp_path, privacy={"noise": 1.0, "secure": secure}, evaluate_every=0)
    setup.declared = False
    secrets.kinds["rows"] = [setup.fed.train.sizes]
    run = setup.run()
    report({"fedalign": [run]}, tmp_path / "run" / "report.html")
    report_public({"fedalign": [run]}, tmp_path / "run" / "public.html")
    assert list((tmp_path / "run" / "checkpoints").glob("round-*/s.safetensors"))
    expected = {} if secure else {("final.parquet", "rows"): {"rows"}}
    assert secrets.find(tmp_path / "run") == expected


def test_the_model_of_a_private_run_says_nothing_of_columns_but_what_was_agreed(tmp_path):
    """Without privacy its recipe has the mean and deviation of columns, to flag other rows."""
    draw = np.random.default_rng(0)
    for place in ("north", "south", "west"):
        columns = {name: draw.normal(1, 2, 40) for name in ("age", "weight")}
        table = pl.DataFrame({**columns, "ill": draw.integers(0, 2, 40)})
        table.write_csv(put(tmp_path / "data") / f"{place}.csv")
    put(tmp_path / "data", manifest="[range]\nweight = [-300, 300]\n")
    fed = muster.Federation.from_folder(tmp_path / "data", label="ill")
    secrets = {"statistics": list(fed.inputs.ranges["age"])}

    def play(privacy):
        model = muster.models.Linear()
        task = muster.tasks.binary()
        run = muster.simulate(fed, muster.methods.fedavg(), model, 1, task=task, privacy=privacy)
        return store.save(run, tmp_path / f"{privacy is None}")

    assert find_secrets(play(None), secrets) == {
        ("model.json", "inputs.ranges.age"): {"statistics"}
    }
    private = play(muster.privacy.Gaussian(clip=0.5, noise=1.0))
    assert find_secrets(private, secrets) == {}
    assert store.load(private).recipe.inputs.ranges == {"weight": (-300, 300)}


PLANTED = {
    "json": lambda file: file.write_text(json.dumps({"a": [{"b": 1.2345678}]})),
    "jsonl": lambda file: file.write_text('{"a": 1}\n{"b": "lost 1.23457 here"}\n'),
    "toml": lambda file: file.write_text("[a]\nb = 1.2346\n"),
    "html": lambda file: file.write_text("<style>1</style><main><td>1.2346</td></main>"),
    "parquet": lambda file: pl.DataFrame({"a": [0.5, 1.2345678], "b": [1, 2]}).write_parquet(file),
    "safetensors": lambda file: save_file({"a": np.array([9.0, 0.3, -0.2, 0.1])}, file),
}


@pytest.mark.parametrize("form", PLANTED)
def test_a_planted_number_is_found_in_every_form_of_file(tmp_path, form):
    PLANTED[form](tmp_path / f"x.{form}")
    secrets = {"loss": [1.2345678], "update": [np.array([0.1, 0.0, -0.2, 0.3])]}
    (kinds,) = find_secrets(tmp_path, secrets).values()
    assert kinds == {"update" if form == "safetensors" else "loss"}
    close = {"loss": [1.2355678], "update": [np.array([0.1, 0.0, -0.2, 0.31])]}
    assert find_secrets(tmp_path, close) == {}


def test_a_file_of_another_form_has_to_be_searched_too(tmp_path):
    (tmp_path / "x.csv").write_text("1.2345678")
    with pytest.raises(AssertionError, match="of a form that is not searched"):
        find_secrets(tmp_path, {"loss": [1.2345678]})
