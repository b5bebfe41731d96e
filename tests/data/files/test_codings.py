"""Codings that differ, ids as categories, typos, copies of rows, test labels nobody learned."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

import muster
from muster.data.files.codings import find_codings, find_shift, find_spellings, find_typos
from muster.federation.spellings import are_near, find_own_spellings, is_within
from own_files import put

load = muster.Federation.from_folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(seed=0, rows=40, labels=("no", "yes"), **more):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 2)).round(4)
    given = {name: np.asarray(value)[:rows] for name, value in more.items()}
    y = np.array(labels)[(np.arange(rows) % 2)]
    return pl.DataFrame({"age": x[:, 0], "dose": x[:, 1], **given, "label": y})


def write(folder, **tables):
    put(folder)
    for name, frame in tables.items():
        frame.write_csv(f"{folder}/{name}.csv")
    return folder


@pytest.mark.parametrize(("south", "message"), [
    (("No", "Yes"), "'No' (client 'south') and 'no' (client 'north') seem to be one class"),
    (("0", "1"), "'0' (client 'south') and 'no' (client 'north') seem to be one class"),
    (("nein", "ja"), "seem to be one class"),
    (("1", "2"), "client 'south' has '1', '2', client 'north' 'no', 'yes': two codings"),
    (("7", "8"), "client 'south' has '7', '8', client 'north' 'no', 'yes': two codings"),
])  # fmt: skip
def test_labels_in_two_codings_are_refused(here, south, message):
    write("h", north=table(0), south=table(1, labels=south))
    with pytest.raises(muster.MusterError) as error:
        load("h")
    assert message in str(error.value)
    assert "[recode.label]" in str(error.value)
    assert "\n" not in str(error.value)


def test_six_classes_of_two_are_refused_whatever_holds_the_clients(here):
    parts = [table(i, labels=c) for i, c in enumerate([("no", "yes"), ("0", "1"), ("No", "Yes")])]
    sites = pl.Series("client", np.repeat(["a", "b", "c"], 40))
    pl.concat(parts).with_columns(sites).write_csv("all.csv")
    with pytest.raises(muster.MusterError, match="seem to be one class"):
        load("all.csv")


def test_a_manifest_recodes_labels_and_classes_that_are_listed_are_meant(here):
    write("h", north=table(0), south=table(1, labels=("0", "1")))
    both = load("h", classes=["no", "yes", "0", "1"])
    assert both.labels == ("no", "yes", "0", "1")
    put("h", manifest="[recode.label]\n0 = 'no'\n1 = 'yes'\n")
    fed = load("h")
    assert fed.labels == ("no", "yes")
    assert fed.label_counts().tolist() == [[16, 16], [16, 16]]


@pytest.mark.parametrize("labels", [("cat", "dog"), ("3a", "1"), ("A", "b")])
def test_labels_that_differ_are_read_as_ever(here, labels):
    write("h", north=table(0, labels=labels), south=table(1, labels=(*labels[:1], "horse")))
    assert load("h").classes == 3


def test_a_typo_among_labels_is_a_warning(here):
    frame = table(0, rows=200, labels=("benign", "malignant"))
    frame = frame.with_columns(
        pl.Series("label", ["benign", "malingant", *frame["label"].to_list()[2:]])
    )
    write("h", north=frame, south=table(1, labels=("benign", "malignant")))
    with pytest.warns(
        muster.MusterWarning, match="label 'malingant' .1 of 240 rows. is a class apart"
    ):
        assert load("h").classes == 3


def test_an_id_is_no_category(here):
    ids = [f"patient-{i}" for i in range(40)]
    write("h", north=table(0, patient_id=ids), south=table(1, patient_id=[f"{i}x" for i in ids]))
    with pytest.raises(
        muster.MusterError, match="'patient_id' has 80 levels in 80 rows: it identifies rows"
    ):
        load("h", categories=["patient_id"])
    wards = [f"ward {i % 21}" for i in range(60)]
    write("w", north=table(0, 60, ward=wards), south=table(1, 60, ward=wards))
    assert len(load("w", categories=["ward"]).encoder.levels["ward"]) == 21


def test_a_category_in_two_spellings_and_a_typo_are_warnings(here):
    sex = ["female", "male"] * 18 + ["Female", "male", "mael", "male"]
    write("h", north=table(0, sex=sex), south=table(1, sex=["female", "male"] * 20))
    with pytest.warns(muster.MusterWarning) as heard:
        assert load("h", categories=["sex"]).encoder.levels["sex"] == (
            "Female",
            "female",
            "mael",
            "male",
        )
    said = sorted(str(w.message) for w in heard)
    assert len(said) == 2
    assert "'Female' (1 row) is a level apart from 'female'" in said[0]
    assert "'mael' (1 row) is a level apart from 'male'" in said[1]
    put("h", manifest="categories = ['sex']\n[recode.sex]\nFemale = 'female'\nmael = 'male'\n")
    assert load("h").encoder.levels["sex"] == ("female", "male")


def test_a_test_label_that_no_training_row_has_is_refused(here):
    split = ["train"] * 30 + ["test"] * 10
    frame = table(0, split=split)
    labels = [*frame["label"].to_list()[:-1], "maybe"]
    write("h", north=frame.with_columns(pl.Series("label", labels)), south=table(1, split=split))
    with pytest.raises(
        muster.MusterError, match="column 'label', row 40: label 'maybe' is in no training row"
    ):
        load("h", split="split")
    assert load("h", split="split", classes=["no", "yes", "maybe"]).classes == 3
    with pytest.warns(muster.MusterWarning, match="'maybe' is in no training row"):
        load("h/north.csv", split="split")  # others may have learned it


def copies(seed=0):
    """40 rows of which the last ten are copies of the first ten."""
    return pl.concat([table(seed, 30), table(seed, 30)[:10]])


def test_copies_of_training_rows_among_test_rows_are_a_warning(here):
    write("h", north=copies(), south=table(1))
    with pytest.warns(
        muster.MusterWarning, match="test rows are copies of training rows: test sc"
    ) as heard:
        fed = load("h")
    learned = {tuple(row) for k in range(2) for row in fed.train.client(k)[0].tolist()}
    tested = [tuple(row) for k in range(2) for row in fed.test.client(k)[0].tolist()]
    n = sum(row in learned for row in tested)
    assert n > 0
    assert str(heard[0].message).startswith(f"{n} of {len(tested)} test rows are copies")
    assert str(heard[0].message).endswith('within a client with duplicates = "drop"')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = load("h", duplicates="drop")
    assert alone.train.sizes.tolist() == [24, 32]
    assert alone.test.sizes.tolist() == [6, 8]


def test_copies_at_another_client_are_counted_apart(here):
    write("h", north=table(0, rows=30), south=table(0, rows=30))
    with pytest.warns(muster.MusterWarning, match=r"\d of them of other clients'"):
        load("h", duplicates="drop")


def test_rows_of_few_values_are_equal_by_chance(here):
    few = pl.DataFrame({"a": [0, 1] * 30, "b": [0, 0, 1] * 20, "label": [0, 1, 1, 0] * 15})
    write("h", north=few, south=few)
    assert load("h").n == 2  # without a warning


def test_rows_keep_their_numbers_in_errors_after_copies_are_dropped(here):
    frame = copies().with_columns(pl.Series("label", ["no", "yes"] * 19 + ["no", "-"]))
    write("h", north=frame)
    with pytest.raises(muster.MusterError, match="row 40: label '-' is not among"):
        load("h", duplicates="drop", classes=["no", "yes"])


def test_values_are_compared_without_case_and_one_edit_is_a_typo():
    assert find_spellings(["A b", "a  B", "c"]) == [("A b", "a  B")]
    assert find_codings([{"f", "m"}, {"female", "male"}]) == {
        "female": ["f", "female"], "male": ["m", "male"],
    }  # fmt: skip
    assert find_codings([{"f", "m", "female"}]) == {}
    assert find_typos({"grade 1": 90, "grade 2": 1}) == {}  # another grade
    assert find_typos({"north": 10, "noth": 8}) == {}  # not rare
    assert find_typos({"benign": 60, "begnin": 3}, edits=2) == {"begnin": "benign"}
    assert find_typos({"typical": 60, "atypical": 2, "type a": 60, "type b": 2}) == {}
    for a, b in [
        ("abcd", "abd"),
        ("abcd", "abdc"),
        ("abcd", "abxd"),
        ("abcd", "xabcd"),
        ("abc", "abcd"),
    ]:
        assert is_within(a, b, 1)
        assert is_within(b, a, 1)
    for a, b in [("abcd", "ab"), ("abcd", "badc"), ("abcd", "dbca")]:
        assert not is_within(a, b, 1)


def test_names_that_may_be_one():
    for name in ("bening", "begnin", "benigne", "Benign tumour", "ben"):
        assert are_near("benign", name)
        assert are_near(name, "benign")
    for one, other in [
        ("benign", "malignant"), ("male", "female"), ("grade 2", "grade 3"), ("m", "male"),
        ("type a", "type b"), ("type i", "type ii"), ("stage_i", "stage_ii"),
        ("normal", "abnormal"), ("hypertension", "hypotension"),
    ]:  # fmt: skip
        assert not are_near(one, other)
    usual = {"benign", "malignant"}
    for odd in ("bening", "benigne", "Benign tumour"):
        sites = {"a": usual, "b": usual, "c": {odd, "malignant"}}
        assert find_own_spellings(sites) == {odd: "benign"}
        assert find_own_spellings({**sites, "d": {"malignant"}}) == {odd: "benign"}
        assert find_own_spellings({**sites, "d": {odd, "benign"}}) == {}
    assert find_own_spellings({"a": usual, "b": {"lymphoma", "malignant"}}) == {}
    two = {"a": {"bening"}, "b": {"benign"}}
    assert find_own_spellings(two, {"benign": 3, "bening": 5}) == {"benign": "bening"}
    towns = {who: {f"{who}berg {n}x" for n in range(20)} for who in ("lich", "list")}
    assert find_own_spellings(towns) == {}


def test_numbers_of_thousands_of_digits_are_no_codes():
    long = "9" * 5000
    assert find_shift({"a": {"0", "1"}, "b": {"1", "2"}}) == ("a", "b")
    assert find_shift({"a": {"0", long}, "b": {"1", long}}) is None
