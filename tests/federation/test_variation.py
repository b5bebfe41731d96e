"""How seeds vary data is said by every data set, kept with results, and read back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import muster
from muster.base.errors import MusterError
from muster.data.split.resplit import splits_differ
from muster.federation import Federation, Variation


def rows(n=12, seed=0):
    draw = np.random.default_rng(seed)
    return [(draw.normal(size=(n, 2)), np.arange(n) % 2) for _ in range(3)]


def test_rows_that_seeds_share_widen_an_interval_by_their_odds():
    """Measures of m of N rows that two seeds draw correlate by rho = m / N; rho / (1 - rho) is test
    / train of held-out rows and train / test of training rows."""
    split = Variation("split", 690, 230)
    for rho, held_out in ((230 / 920, True), (690 / 920, False)):
        assert split.ratio(held_out) == pytest.approx(rho / (1 - rho), rel=1e-12)


def test_of_rows_that_are_dealt_again_a_few_clients_share_fewer():
    dealt = Variation("deal and split", 800, 200, objective_share=0.1, seen_share=0.5)
    for whose, share in (("objective", 0.1), ("seen", 0.5), ("unseen", 0.5), ("all", 1.0)):
        for rows, held_out in ((200, True), (800, False)):
            rho = share * rows / 1000
            assert dealt.ratio(held_out, whose) == pytest.approx(rho / (1 - rho), rel=1e-12)
    kept = replace(dealt, varies="split")
    assert kept.ratio(True, "objective") == pytest.approx(0.25)
    fed = muster.data.digits(clients=10, priority=2, unseen=5)
    assert (fed.variation.objective_share, fed.variation.seen_share) == pytest.approx((0.2, 0.5))


def test_clients_in_the_objective_may_hold_out_another_share():
    """20 rows to train on and 60 to test, next to others with 300 and 100."""
    x, y = np.eye(80), np.arange(80) % 2
    train = [(x[:20], y[:20]), *[(np.eye(80)[:75], y[:75])] * 4]
    test = [(x[20:], y[20:]), *[(np.eye(80)[:25], y[:25])] * 4]
    fed = Federation.from_arrays(train, test, priority=[0], varies="split")
    assert fed.variation.ratio(True, "objective") == pytest.approx(60 / 20)
    assert fed.variation.ratio(False, "objective") == pytest.approx(20 / 60)
    assert fed.variation.ratio(True, "all") == pytest.approx(160 / 320)
    # Results of before do not say it.
    said = {k: v for k, v in fed.variation.table.items() if k != "objective_test"}
    assert Variation.combine([said]).ratio(True, "objective") == pytest.approx(160 / 320)


@pytest.mark.parametrize("kind", ["data", "deal", "training"])
def test_seeds_that_divide_nothing_again_are_left_as_they_are(kind):
    assert Variation(kind, 690, 230).ratio(True) == Variation(kind, 690, 230).ratio(False) == 0


def test_an_unstated_variation_is_taken_for_a_split_and_reported():
    unknown = Variation("unknown", 80, 20)
    assert unknown.ratio(True) == 0.25
    assert "not known how they vary the data: taken for new splits" in unknown.interval_note(5)
    # Of results that do not even say how many rows there were, there is nothing to correct by.
    assert Variation().ratio(True) == 0
    assert "too narrow if they split the same rows again" in Variation().interval_note(5)


def test_runs_that_say_different_things_leave_it_unknown():
    same = [Variation("split", 80, 20).table, None, Variation("split", 82, 18).table]
    assert Variation.combine(same) == Variation("split", 81, 19)
    assert Variation.combine([*same, Variation("data", 80, 20).table]) == Variation()
    assert Variation.combine([None, None]) == Variation()


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda s: muster.data.synth(seed=s, max_rows=60), "data"),
        (lambda s: muster.data.digits(seed=s), "deal and split"),
        (lambda s: muster.data.diabetes(seed=s), "split"),
    ],
)
def test_data_sets_say_what_their_seeds_do(make, kind):
    """As told by the rows themselves: training rows of one seed among the test rows of another."""
    a, b = make(0), make(1)
    assert a.variation.varies == kind
    assert splits_differ(a, [b]) == ("split" in kind)
    assert a.variation.train_rows == a.train.sizes.sum()
    assert a.variation.test_rows == a.test.sizes.sum()


def test_the_hospitals_split_their_patients_again():
    fed = muster.data.heart()
    assert fed.variation.varies == "split"
    assert fed.variation.train_rows + fed.variation.test_rows == 920


def test_files_are_split_again_unless_they_say_which_rows_are_for_testing(tmp_path):
    lines = [f"{i / 20},{i % 2},{'test' if i % 5 == 0 else 'train'}" for i in range(20)]
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,label,part", *lines]))
    drawn = Federation.from_folder(tmp_path, features=("x",))
    told = Federation.from_folder(tmp_path, features=("x",), split="part")
    none = Federation.from_folder(tmp_path, features=("x",), test_fraction=0.0)
    kinds = [fed.variation.varies for fed in (drawn, told, none)]
    assert kinds == ["split", "training", "training"]


def test_a_shared_test_set_stays_while_rows_are_dealt_again():
    y = np.arange(40) % 10
    parts = muster.data.IID().split(y, 4, 0)
    fed = muster.data.federate(np.eye(40), y, parts, test=(np.eye(40), y), varies="deal")
    assert fed.variation == Variation("deal", 40, 0)
    assert fed.variation.ratio(False) == 0


def test_rows_held_out_for_tuning_are_split_again_of_data_that_stay():
    fed = muster.data.digits(clients=4)
    assert muster.data.for_tuning(replace(fed, varies="deal"), 0.25).varies == "deal and split"
    assert muster.data.for_tuning(replace(fed, varies="training"), 0.25).varies == "split"
    assert muster.data.for_tuning(fed, 0.25, apart=True).varies == "deal"
    drawn = muster.data.synth(max_rows=60)
    assert muster.data.for_tuning(drawn, 0.25).varies == "data"


def test_an_unknown_variation_is_a_one_line_error():
    with pytest.raises(MusterError, match=r"varies: 'rows'; allowed: .*data.*split.*deal"):
        Federation.from_arrays(rows(), varies="rows")


def compared(data, folder=None, seeds=2):
    methods = [muster.methods.fedavg(), muster.methods.fedavg_priority()]
    return muster.compare(
        data, methods, muster.models.Softmax(), rounds=1, seeds=seeds, folder=folder
    )


def test_one_federation_for_all_seeds_varies_the_training_alone():
    fed = muster.data.digits(clients=4)
    done = compared(fed)
    assert set(done.summary()["varies"]) == {"training"}
    again = compared(lambda seed: muster.data.digits(clients=4, seed=seed))
    assert set(again.summary()["varies"]) == {"deal and split"}


def test_results_read_back_know_it_and_those_of_before_do_not(tmp_path):
    done = compared(lambda seed: muster.data.digits(clients=4, seed=seed), tmp_path / "now")
    back = muster.load(tmp_path / "now")
    assert back.summary().equals(done.summary())
    assert back.summary()["test_rows"][0] == 284
    for marker in (tmp_path / "now").glob("*/run.toml"):
        text = marker.read_text()
        head, _, rest = text.partition("[facts.varies]")
        marker.write_text(head + "[" + rest.split("\n[", 1)[1])
    old = muster.load(tmp_path / "now").summary()
    assert set(old["varies"]) == {"unknown"}
    assert old["mean"].equals(done.summary()["mean"])
    assert (old["half"] < done.summary()["half"]).all()


def test_a_function_of_the_seed_that_says_nothing_is_unknown_and_corrected():
    def made(seed, **more):
        both = rows(seed=seed), rows(seed=seed + 100)
        return Federation.from_arrays(*both, priority=[0], **more)

    silent, drawn = compared(made), compared(lambda seed: made(seed, varies="data"))
    one, other = (done.summary(measures="test_accuracy") for done in (silent, drawn))
    assert one["half"][0] == pytest.approx(other["half"][0] * np.sqrt((1 / 2 + 1) / (1 / 2)))
