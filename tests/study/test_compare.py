"""Comparisons from Python: matched runs, kept in a folder, interrupted and gone on with."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
import torch
from rich.console import Console
from torch import nn

import muster
import reference
from helpers import federation, same_bits
from muster.base.rng import as_seeds
from muster.results import store
from muster.study.compare import label_methods

M = muster.methods
METHODS = {"align": M.fedalign(0.4), "all": M.fedavg()}
LOCAL = muster.Local(steps=3, batch_size=4, lr=0.1)


def data(seed):
    train, priority = reference.problem(seed, clients=8)
    return federation(train, priority)


def both(methods=METHODS, seeds=2, rounds=6, **more):
    settings = {"data": data, "model": muster.models.Softmax(), "local": LOCAL} | more
    return muster.compare(methods=methods, seeds=seeds, rounds=rounds, **settings)


def single(label, seed, **more):
    settings = {"rounds": 6, "local": LOCAL} | more
    return muster.simulate(
        data(seed), METHODS[label], muster.models.Softmax(), seed=seed, **settings
    )


def stop_at(n):
    """An on_round that stands for Ctrl-C in the nth round of all."""
    seen = []

    def on_round(row):
        seen.append(row["round"])
        if len(seen) == n:
            raise KeyboardInterrupt

    return on_round


def test_every_run_is_what_simulate_gives(tmp_path):
    done = both(seeds=[3, 1], folder=tmp_path, dtype="float64", evaluate_every=2)
    assert list(done.runs) == ["align", "all"]
    assert done.seeds == (3, 1)
    assert done.complete
    for label, mine in done.runs.items():
        for seed, run in zip(done.seeds, mine, strict=True):
            alone = single(label, seed, dtype="float64", evaluate_every=2)
            assert same_bits(run, alone)
            assert same_bits(alone, muster.load(tmp_path / f"{label}-seed{seed}"))
    assert done["all"] is done.runs["all"]


def test_one_federation_serves_all_seeds():
    fed = data(0)
    done = both(data=fed, methods=[M.fedavg()])
    for seed, run in zip(done.seeds, done["fedavg"], strict=True):
        assert same_bits(
            run, muster.simulate(fed, M.fedavg(), muster.models.Softmax(), 6, LOCAL, seed=seed)
        )


def test_methods_without_labels_are_called_by_their_names():
    others = [M.fedavg(), M.fedalign(0.1), M.fedavg(), M.fedavg(), M.Method("fedavg-2")]
    names = ["fedavg", "fedalign", "fedavg-2", "fedavg-3", "fedavg-2-2"]
    assert list(label_methods(others)) == names
    assert list(label_methods(others).values()) == others


def test_the_summary_pairs_seed_with_seed():
    done = both(seeds=3)
    frame = done.summary(rounds=[2, 6], measures=iter(["loss", "admitted_nonpriority"]))
    assert len(frame) == 2 * 2 * 2
    assert frame["round"].unique(maintain_order=True).to_list() == [2, 6]
    assert set(frame["measure"]) == {"loss", "admitted_nonpriority"}
    a, b = (np.array([r.rounds["loss"][1] for r in done[k]]) for k in ("align", "all"))
    (row,) = frame.filter(
        pl.col("method") == "all", pl.col("round") == 2, pl.col("measure") == "loss"
    ).rows(named=True)
    assert row["mean"] == pytest.approx(b.mean())
    assert row["difference"] == pytest.approx((b - a).mean())
    half = 4.302653 * (b - a).std(ddof=1) / np.sqrt(3)  # t(0.975, 2)
    assert row["difference_half"] == pytest.approx(half, rel=1e-6)
    assert done.summary()["round"].unique().to_list() == [6], "the last round, unasked"
    assert done.summary(4)["round"].unique().to_list() == [4]


def test_rounds_and_methods_that_are_not_there_are_refused():
    done = both(rounds=2)
    assert [*done] == [*METHODS]
    assert len(done) == len(METHODS)
    assert "nobody" not in done
    with pytest.raises(muster.MusterError, match="unknown method 'nobody'"):
        done["nobody"]
    with pytest.raises(muster.MusterError, match="rounds: 999; allowed: whole numbers from 1 to 2"):
        done.summary([1, 999])
    with pytest.raises(muster.MusterError, match=r"class Softmax; give an instance: Softmax\(\)"):
        muster.simulate(data(0), METHODS[next(iter(METHODS))], muster.models.Softmax, 1)


def test_a_comparison_shows_itself(tmp_path):
    done = both(report_at=[2, 6], measures=["fairness", "loss"], folder=tmp_path / "c")
    console = Console(width=150)
    for one in (done, muster.load(tmp_path / "c")):
        with console.capture() as capture:
            console.print(one)
        for head in ("fairness @2", "fairness @6", "loss @6", "paired difference to align"):
            assert head in capture.get()
        assert repr(one).startswith("Comparison(fairness after round 6: align 0.")
        assert repr(one).endswith("; 2 seeds, which vary the data in an unknown way)")
    assert done.figure(tmp_path / "f.png").stat().st_size > 5000
    assert "1 seed)" in repr(both(seeds=1))


def test_what_is_finished_is_not_run_again(tmp_path):
    first = both(folder=tmp_path)
    begun = []

    def on_start(label, seed, already):
        begun.append((label, seed, already))

    def never(row):
        raise AssertionError("a finished run was run again")

    again = both(folder=tmp_path, on_start=on_start, on_round=never)
    assert begun == [("align", 0, 6), ("all", 0, 6), ("align", 1, 6), ("all", 1, 6)]
    assert all(same_bits(a, b) for k in METHODS for a, b in zip(first[k], again[k], strict=True))


def test_more_methods_and_seeds_come_to_what_is_there(tmp_path):
    both(methods={"all": METHODS["all"]}, folder=tmp_path)
    ran = []
    more = both(seeds=3, folder=tmp_path, on_round=lambda row: ran.append(row["round"]))
    assert len(ran) == 6 * 4, "two runs were there"
    assert {k: len(v) for k, v in more.runs.items()} == {"align": 3, "all": 3}
    assert muster.load(tmp_path).seeds == (0, 1, 2)


@pytest.mark.parametrize("stop", [1, 8, 15, 20])
def test_ctrl_c_gives_whole_seeds_and_goes_on_to_the_same_bits(tmp_path, stop):
    whole = both()
    with pytest.raises(muster.ComparisonInterrupted) as caught:
        both(folder=tmp_path, on_round=stop_at(stop))
    partial = caught.value.comparison
    assert not partial.complete
    assert partial.seeds == ((0,) if stop > 12 else ())
    assert "interrupted" in repr(partial)
    if partial.seeds:
        assert same_bits(partial["all"][0], whole["all"][0])
        assert len(partial.summary()) > 0
    else:
        for use in (partial.summary, lambda: partial.figure(tmp_path / "f.png"), partial.__rich__):
            with pytest.raises(muster.MusterError, match="no seed was finished by every method"):
                use()
    back = muster.load(tmp_path)
    assert (back.seeds, back.complete) == (partial.seeds, False)
    label, seed = (("align", 0), ("all", 0), ("align", 1), ("all", 1))[(stop - 1) // 6]
    assert store.get_last_checkpoint_round(tmp_path / f"{label}-seed{seed}" / "checkpoints") == (
        (stop - 1) % 6 + 1
    )
    left = []
    done = both(folder=tmp_path, on_round=lambda row: left.append(row["round"]))
    assert len(left) == 24 - stop
    assert done.complete
    assert all(same_bits(a, b) for k in METHODS for a, b in zip(whole[k], done[k], strict=True))
    assert not list(tmp_path.rglob("checkpoints"))


def test_ctrl_c_without_a_folder_or_outside_a_run_is_the_same():
    with pytest.raises(muster.ComparisonInterrupted) as caught:
        both(on_round=stop_at(13))
    assert caught.value.comparison.seeds == (0,)

    def slow(seed):
        if seed == 1:
            raise KeyboardInterrupt
        return data(seed)

    with pytest.raises(KeyboardInterrupt) as caught:
        both(data=slow)
    assert caught.value.comparison.seeds == (0,)


@dataclass(frozen=True)
class Odd:
    """A part whose repr has an address in it."""

    how: object = len
    appraises: bool = False

    def __call__(self, *args):
        return M.fedavg().join(*args)


CHANGES = {
    "local": ({"local": muster.Local(steps=2)}, "settings local = Local"),
    "rounds": ({"rounds": 7}, "settings rounds = 6, this comparison has 7"),
    "model": ({"model": muster.models.MLP((3,))}, r"settings model = Softmax\(\)"),
    "dtype": ({"dtype": "float64"}, "settings dtype = 'float32'"),
    "method": ({"methods": {"all": M.fedprox()}}, "methods all = Method"),
    "data": ({"data": lambda seed: data(seed + 5)}, "data 0 = federation"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_runs_made_otherwise_are_not_taken_for_these(tmp_path, change):
    both(folder=tmp_path, rounds=6, seeds=1)
    settings, message = CHANGES[change]
    with pytest.raises(muster.MusterError, match=message):
        both(**{"folder": tmp_path, "rounds": 6, "seeds": 1, **settings})
    assert muster.load(tmp_path).complete, "nothing of it was touched"
    muster.save(single("all", 0), tmp_path / "other" / "mine")
    with pytest.raises(muster.MusterError, match="holds runs of something else"):
        both(folder=tmp_path / "other")


def test_what_settings_are_does_not_depend_on_the_process(tmp_path):
    def module(shift):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 4))
        with torch.no_grad():
            net[0].bias += shift
        return net

    def run(shift):
        odd = {"odd": M.Method("odd", join=Odd(lambda: 0))}
        return both(odd, seeds=1, rounds=1, model=module(shift), folder=tmp_path)

    run(0.0)
    run(0.0)
    with pytest.raises(muster.MusterError, match="settings model = Sequential"):
        run(1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "seeds: 0; allowed: whole numbers from 1"),
        ({"seeds": [1, 1]}, r"seeds: \[1, 1\]; give a count, or different seeds"),
        ({"seeds": [-1]}, "seeds: -1; allowed: whole numbers from 0"),
        ({"seeds": []}, r"seeds: \[\]; give a count"),
        ({"methods": []}, "methods: give a list of methods, or a mapping"),
        ({"methods": M.fedavg()}, "methods: give a list of methods, or a mapping"),
        ({"methods": ["fedavg"]}, "methods: 'fedavg' is a str; give methods"),
        ({"methods": {"a/b": M.fedavg()}}, "method label: 'a/b'; give a plain name"),
        ({"report_at": [7]}, "report_at: 7; allowed: whole numbers from 1 to 6"),
        ({"measures": "los"}, "unknown measure 'los'; did you mean 'loss'"),
        ({"evaluate_evry": 2}, "unknown argument 'evaluate_evry'; did you mean 'evaluate_every'"),
        ({"seed": 2}, "unknown argument 'seed'"),
        ({"jobs": 2}, "compare: jobs is an argument of sweep and tune; here give `executor`"),
        ({"data": lambda seed: None}, "data: NoneType; give a Federation, or a function"),
        ({"data": "digits"}, "data: str; give a Federation, or a function"),
        ({"rounds": 0}, "rounds: 0; allowed: whole numbers from 1"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_written(tmp_path, change, message):
    with pytest.raises(muster.MusterError, match=message):
        both(**{"folder": tmp_path / "c", **change})
    assert not (tmp_path / "c").exists()


def test_numpy_seeds_are_seeds():
    assert as_seeds(np.arange(3)) == (0, 1, 2)
    assert as_seeds(np.int64(2)) == (0, 1)
    assert as_seeds(iter([4, 2])) == (4, 2)


def test_reading_back(tmp_path):
    done = both(folder=tmp_path)
    back = muster.load(str(tmp_path))
    assert isinstance(back, muster.Comparison)
    assert list(back.runs) == ["align", "all"], "in the order they were given"
    assert all(same_bits(a, b) for k in METHODS for a, b in zip(done[k], back[k], strict=True))
    assert {k: len(v) for k, v in muster.load_runs(tmp_path).items()} == {"align": 2, "all": 2}
    assert isinstance(muster.load(tmp_path / "all-seed1"), muster.Run)
    made = tomllib.loads((tmp_path / "comparison.toml").read_text())["made"]
    assert made["settings"]["local"] == repr(LOCAL)
    (tmp_path / "comparison.toml").write_text("seeds = [")
    with pytest.raises(muster.MusterError, match=r"comparison\.toml: cannot be read"):
        muster.load(tmp_path)


def test_a_killed_comparison_goes_on(tmp_path):
    """kill -9 in the middle of a run: what was finished stays, and the end is the same."""
    code = (
        "import os, signal, sys; sys.path[:0] = sys.argv[2:]\n"
        "import muster, test_compare as t\n"
        "def on_round(row, n=[0]):\n"
        "    n[0] += 1\n"
        "    if n[0] == 17: os.kill(os.getpid(), signal.SIGKILL)\n"
        "t.both(folder=sys.argv[1], checkpoint_every=2, on_round=on_round)\n"
    )
    paths = [str(p) for p in (*map(str, sys.path), __file__.rpartition("/")[0])]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), *paths], check=False)
    assert done.returncode == -9
    assert muster.load(tmp_path).seeds == (0,)
    left = []
    whole = both(folder=tmp_path, on_round=lambda row: left.append(row["round"]))
    assert len(left) == 24 - 16, "from the checkpoint of the sixteenth round"
    expected = both()
    assert all(same_bits(a, b) for k in METHODS for a, b in zip(expected[k], whole[k], strict=True))


def test_a_function_and_a_module_of_the_same_name_live_together():
    code = (
        "import muster\n"
        "before = muster.compare, muster.simulate\n"
        "from muster.run.simulate import simulate\n"
        "import muster.study.compare, muster.run.solo\n"
        "assert (muster.compare, muster.simulate) == before and callable(muster.solo)\n"
        "assert simulate is muster.simulate\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_seeds_of_a_comparison_can_be_divided_among_processes(tmp_path):
    first = both(seeds=2, only=[1], folder=tmp_path)
    assert (first.seeds, first.complete) == ((1,), True)
    assert not muster.load(tmp_path).complete, "the other seed belongs to it"
    both(seeds=2, only=[0], folder=tmp_path)
    whole = muster.load(tmp_path)
    assert (whole.seeds, whole.complete) == ((0, 1), True)
    alone = both(seeds=2)
    assert all(same_bits(a, b) for n in alone.runs for a, b in zip(alone[n], whole[n], strict=True))
    listed = tomllib.loads((tmp_path / "comparison.toml").read_text())
    assert set(listed["made"]["data"]) == {"0", "1"}
    with pytest.raises(muster.MusterError, match="only: 5; allowed: the seeds of the comparison"):
        both(seeds=2, only=[5])
