"""`muster.data.check`: every problem of a folder at once, and a manifest by which it is read."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import muster
import muster.cli.data_check
from messy_files import write_messy_folder
from muster.base.errors import format_row_points
from muster.cli.main import main
from muster.config.network import Network
from muster.data.files.column_check import check_column, far_values
from muster.federation.data_warnings import find_data_warnings
from muster.flower.client.node_data import check_own_data, read_own_data
from own_files import put


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kinds(found):
    return {(p.client, p.column, p.kind) for p in found.problems}


MESS = {
    ("ost", "", "dialect"), ("süd", "", "dialect"), ("", "blutgruppe", "columns"),
    ("", "patient_id", "id"), ("", "aufnahme", "date"), ("", "notiz", "text"),
    ("nord", "alter", "missing"), ("nord", "geschlecht", "typo"), ("süd", "größe", "unit"),
    ("ost", "krank", "coding"), ("süd", "krank", "spelling"), ("nord", "", "duplicate"),
    ("nord", "", "shared"),
}  # fmt: skip


def test_every_problem_of_a_messy_folder_is_found_at_once(here):
    found = muster.data.check(write_messy_folder(here / "h"))
    assert kinds(found) == MESS
    by = {(p.client, p.column): p for p in found.problems}
    assert "latin-1" in by["ost", ""].text
    assert by["nord", "geschlecht"].text == "'weilbich' (1 row) may be a typo of 'weiblich'"
    assert "100 times" in by["süd", "größe"].text or "101 times" in by["süd", "größe"].text
    rows = {p.kind: p.text for p in found.problems if p.client == "nord"}
    assert rows["duplicate"].startswith("5 rows")
    assert rows["shared"].startswith("4 rows the same as at ost")
    assert found.rows == {"nord": 65, "ost": 64, "süd": 60}
    assert "süd: 12 test rows: one is 8 points of accuracy" in found.notes
    assert all(str(problem) in str(found) for problem in found.problems)
    with pytest.raises(AttributeError):
        found.problems = ()


def test_from_messy_files_to_predictions(here, capsys):
    """The whole way: check, its manifest, a run, new rows in yet another dialect."""
    write_messy_folder(here / "h", converted=True)
    with pytest.raises(muster.MusterError):
        muster.Federation.from_folder("h", label="krank")
    assert main(["data", "check", "h"]) == 1
    printed = capsys.readouterr().out
    assert "h/manifest.toml, written" in printed
    text = Path("h/manifest.toml").read_text()
    table = tomllib.loads(text)
    assert table["features"] == ["alter", "größe", "geschlecht", "station"]
    assert table["classes"] == ["no", "yes"]
    assert table["clients"]["ost"] == {"separator": ";", "decimal": ",", "encoding": "latin-1"}
    assert table["recode"]["krank"] == {"0": "no", "1": "yes", "No": "no", "Yes": "yes"}
    assert "# label = 'krank': what to predict\n" in text
    # What the manifest settles is no problem any more; four rows are at two hospitals still.
    assert kinds(muster.data.check("h")) == {("nord", "", "shared")}
    lines = Path("h/ost.csv").read_bytes().splitlines(keepends=True)
    Path("h/ost.csv").write_bytes(b"".join(lines[:-4]))
    assert main(["data", "check", "h"]) == 0
    assert "no problems" in capsys.readouterr().out

    fed = muster.Federation.from_folder("h")
    assert fed.labels == ("no", "yes")
    assert fed.names.tolist() == ["nord", "ost", "süd"]
    assert (fed.sizes + fed.test.sizes).tolist() == [60, 60, 60]
    assert fed.encoder.levels["geschlecht"] == ("männlich", "weiblich")
    local = muster.Local(steps=10, batch_size=16, lr=0.3)
    run = muster.simulate(
        fed, muster.methods.fedavg(), muster.models.Linear(), rounds=30, local=local,
        task=muster.tasks.binary(),
    )  # fmt: skip
    assert run.rounds["test_accuracy"][-1] > 0.8
    muster.save(run, "runs/h")
    assert "N-00" not in Path("runs/h/model.json").read_text()

    new = "patient_id;alter;größe;geschlecht;station;krank\nX1;85,5;181,0;männlich;Innere;1\n"
    new += "X2;22,0;165,5;weilbich;Gynäkologie;0\nX3;k.A.;710;weiblich;Pädiatrie;No\n"
    Path("neu.csv").write_bytes(new.encode("latin-1"))
    with pytest.warns(muster.MusterWarning):
        said, scores = muster.load("runs/h").predict_and_score(
            "neu.csv", keep=["patient_id"], unknown="missing"
        )
    assert said["patient_id"].to_list() == ["X1", "X2", "X3"]
    assert said["label"].to_list() == ["yes", "no", "no"]
    assert said["prediction"].to_list()[:2] == ["yes", "no"]
    assert said["flags"].to_list()[:2] == ["", ""]
    assert said["flags"][2].startswith("größe 710 outside ")
    assert said["flags"][2].endswith("; station 'Pädiatrie' unknown")
    assert set(scores) >= {"accuracy", "loss"}


def test_json_has_everything(here, capsys):
    write_messy_folder(here / "h")
    assert main(["data", "check", "h", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {(p["client"], p["column"], p["kind"]) for p in found["problems"]} == MESS
    assert set(found["problems"][0]) == {"client", "column", "kind", "text", "suggestion"}
    assert Path(found["written"]).read_text() == found["manifest"]


def clean(seed, rows=60, **more):
    draw = np.random.default_rng(seed)
    age, dose = draw.normal(50, 10, rows).round(2), draw.normal(3, 1, rows).round(3)
    y = np.where(age + 10 * dose > 80, "ill", "well")
    return pl.DataFrame({"age": age, "dose": dose, **more, "outcome": y})


def write(folder, **frames):
    put(folder)
    for name, frame in frames.items():
        frame.write_csv(f"{folder}/{name}.csv")
    return folder


def test_a_clean_folder_has_no_problems_and_a_manifest_that_is_kept(here, capsys):
    write("h", a=clean(0), b=clean(1))
    assert main(["data", "check", "h"]) == 0
    text = Path("h/manifest.toml").read_text()
    assert tomllib.loads(text) == {
        "label": "outcome",
        "features": ["age", "dose"],
        "scale": "pooled",
        "classes": ["ill", "well"],
    }
    assert main(["data", "check", "h"]) == 0
    assert "h/manifest.toml is there and was kept" in capsys.readouterr().out
    assert main(["data", "check", "h", "--out", "new.toml"]) == 0
    assert tomllib.loads(Path("new.toml").read_text()) == tomllib.loads(text)
    assert main(["data", "check", "h", "--out", "new.toml"]) == 2
    assert main(["data", "check", "nowhere"]) == 2
    assert main(["data", "check"]) == 2


def test_findings_are_printed_where_nothing_can_be_written(here, capsys, monkeypatch):
    def refuse(path, content):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(muster.cli.data_check, "create", refuse)
    write("h", a=clean(0, day=["2023-01-02"] * 60), b=clean(1, day=["2023-01-03"] * 60))
    assert main(["data", "check", "h"]) == 1
    said = capsys.readouterr().out
    assert "column 'day': dates" in said
    assert "h/manifest.toml cannot be written (Permission denied); give --out FILE" in said


def test_roles_and_settings_of_before_stay(here):
    write("h", a=clean(0), b=clean(1))
    put("h", manifest="label = 'outcome'\ntest_fraction = 0.5\n[range]\nage = [0, 120]\n"
        "[clients.a]\npriority = true\n")  # fmt: skip
    found = muster.data.check("h")
    table = tomllib.loads(found.manifest)
    assert table["test_fraction"] == 0.5
    assert table["clients"] == {"a": {"priority": True}}
    assert table["range"] == {"age": [0.0, 120.0]}
    assert "a: 30 test rows: one is 3 points of accuracy" in found.notes


def test_one_table_with_a_column_of_clients(here):
    both = pl.concat([clean(0), clean(1)]).with_columns(
        pl.Series("hospital", np.repeat(["north", "south"], 60)), pl.Series("nr", range(120))
    )
    both.write_csv("all.csv", separator=";")
    found = muster.data.check("all.csv")
    assert kinds(found) == {("all", "", "dialect"), ("", "nr", "id")}
    Path("all.manifest.toml").write_text(found.manifest)
    fed = muster.Federation.from_folder("all.csv")
    assert fed.names.tolist() == ["north", "south"]
    assert fed.encoder.columns == ("age", "dose") if fed.encoder else fed.columns


def problems(values, **more):
    found = check_column("c", {k: pl.Series(v, dtype=pl.String) for k, v in values.items()}, **more)
    return found, [(p.client, p.kind) for p in found.problems]


def texts(numbers):
    return [f"{number:g}" for number in numbers]


def test_kinds_of_columns():
    draw = np.random.default_rng(0)
    columns = {
        "number": texts(draw.normal(size=40)),
        "date": [f"2023-01-{i % 28 + 1:02d}" for i in range(40)],
        "id": [f"x{i}" for i in range(40)],
        "text": [f"the patient number {i} felt quite well" for i in range(40)],
        "category": ["red", "green"] * 20,
        "constant": ["same"] * 40,
        "empty": [None] * 40,
    }
    for kind, values in columns.items():
        assert problems({"a": values})[0].kind == kind
    codes = {"a": ["m", "f"] * 20, "b": ["1", "2"] * 20}
    found, kinds = problems(codes)
    assert (found.kind, kinds) == ("unclear", [("", "coding")])
    found, kinds = problems({"a": ["m", "f"] * 20, "b": ["male", "female"] * 30})
    assert found.recode == {"f": "female", "m": "male"}
    # As the manifest states: what is known is meant.
    assert problems({"a": ["female", "femal"] + ["female"] * 60}, known=["femal"])[1] == []


def test_mistakes_sentinels_and_units():
    draw = np.random.default_rng(0)
    age = draw.uniform(20, 90, 60)
    found, kinds = problems({"a": texts([*age, 710]), "b": texts(age)})
    assert kinds == [("a", "range")]
    assert "row 61: 710 is far from all others" in found.problems[0].text
    found, kinds = problems({"a": texts([*age, -9, -9]), "b": texts(age)})
    assert (kinds, found.recode) == ([("a", "missing")], {"-9": ""})
    found, kinds = problems({"a": [*texts(age), "12 mg"], "b": texts(age)})
    assert (kinds, found.recode) == ([("a", "type")], {"12 mg": ""})
    glucose = draw.normal(5.5, 0.6, 60)
    found, kinds = problems({"a": texts(glucose), "b": texts(glucose), "c": texts(glucose * 18.02)})
    assert kinds == [("c", "unit")]
    assert "glucose in mg/dl and mmol/l" in found.problems[0].text
    assert problems({"a": texts(age), "b": ["0"] * 60})[1] == [("a", "unit")]
    found, kinds = problems({"a": texts([*age, 130]), "b": texts(age)}, limits=(0.0, 120.0))
    assert kinds == [("a", "range")]
    assert problems({"a": texts(age), "b": texts(age / 10)}, limits=(0.0, 120.0))[1] == []


def test_skewed_measurements_are_no_mistakes():
    """Of lognormal values (sigma 1) hardly any is taken for a mistake; a tenfold maximum is."""
    draw = np.random.default_rng(0)
    for _ in range(20):
        x = draw.lognormal(0, 1, 300)
        assert len(far_values(x)) == 0
        assert far_values(np.append(x, 1e4)).tolist() == [1e4]


def test_labels(here):
    few = clean(0).with_columns(pl.Series("outcome", ["ill", "well"] * 28 + ["dead"] * 4))
    write("h", a=few, b=few.with_columns(pl.col("age") + 0.5).with_columns(outcome=pl.lit("ill")))
    found = muster.data.check("h")
    assert kinds(found) == {("", "outcome", "rare")}
    assert any("hold a single class" in note for note in found.notes)
    draw = np.random.default_rng(1)
    number = pl.Series("outcome", draw.normal(size=60))
    write("n", a=clean(0).with_columns(number), b=clean(1).with_columns(number * 2))
    found = muster.data.check("n")
    assert found.problems == ()
    assert tomllib.loads(found.manifest)["targets"] == "numbers"
    lost = pl.Series("outcome", [None, *["ill", "well"] * 29, "ill"])
    write("l", a=clean(0).with_columns(lost), b=clean(1))
    assert ("a", "outcome", "label") in kinds(muster.data.check("l"))


def test_notes_on_levels_and_on_patients_with_several_rows(here):
    color = np.resize(["red", "green"], 60)
    visits = [f"p{i // 2}" for i in range(60)]
    write("h", a=clean(0, color=color, patient=visits),
          b=clean(1, color=np.where(color == "red", "blue", "green"), patient=visits))  # fmt: skip
    found = muster.data.check("h")
    assert kinds(found) == {("", "patient", "id")}
    note = "column 'color': only b has 'blue', and lacks 'red', which all others have"
    assert note in found.notes
    assert any(
        note.startswith("a: 30 values of 'patient' have several rows") for note in found.notes
    )


def test_files_that_cannot_be_read_do_not_hide_the_others(here):
    write("h", a=clean(0, site_id=np.arange(60)), b=clean(1, site_id=np.arange(60)))
    Path("h/c.csv").write_text("age,age,outcome\n1,2,ill\n")
    Path("h/d.csv").write_text("")
    assert kinds(muster.data.check("h")) >= {
        ("c", "", "file"), ("d", "", "file"), ("", "site_id", "id"),
    }  # fmt: skip


def test_arrays_are_read_as_they_are(here):
    put("h")
    draw = np.random.default_rng(0)
    for name in "ab":
        np.savez(f"h/{name}.npz", x=draw.normal(size=(20, 3)), y=np.arange(20) % 2)
    found = muster.data.check("h")
    assert found.problems == ()
    assert found.notes[0] == "a: 4 test rows: one is 25 points of accuracy"
    np.savez("h/b.npz", x=draw.normal(size=(20, 4)), y=np.arange(20) % 2)
    assert "of shape (4,)" in muster.data.check("h").problems[0].text


TERMS = """
[network]
label = "outcome"
classes = ["ill", "well"]
columns = ["age", "dose"]
scale = "pooled"
"""


def test_a_node_checks_its_own_file_by_the_terms(here, capsys):
    frame = clean(0, patient_id=[f"p{i}" for i in range(60)])
    frame = frame.with_columns(pl.Series("outcome", ["Ill", *frame["outcome"].to_list()[1:]]))
    frame.write_csv("own.csv", separator=";")
    Path("terms.toml").write_text(TERMS)
    assert main(["data", "check", "own.csv", "--terms", "terms.toml"]) == 1
    table = tomllib.loads(Path("own.manifest.toml").read_text())
    # What the terms set is not the owner's to set.
    assert table == {"separator": ";", "recode": {"outcome": {"Ill": "ill"}}}
    network = Network(
        label="outcome", classes=("ill", "well"), columns=("age", "dose"), scale="pooled"
    )
    assert check_own_data({"data-path": "own.csv"}, network).problems == ()
    fed = read_own_data({"data-path": "own.csv"}, network, 0)
    assert int(fed.sizes[0] + fed.test.sizes[0]) == 60


def test_what_is_no_file_of_data_does_not_hide_the_others(here):
    write("h", a=clean(0, day=["2023-01-02"] * 60), z=clean(1, day=["2023-01-03"] * 60))
    os.mkfifo("h/b.csv")
    Path("h/c.csv").mkdir()
    Path("h/d.csv").symlink_to("nowhere.csv")
    Path("h/e.CSV").write_text("age\n1\n")
    Path("h/f.xlsx").write_text("")
    Path("h/a.parquet").write_text("")
    found = muster.data.check("h")
    assert [p.text.partition(": ")[2].partition(";")[0] for p in found.problems[:-1]] == [
        "a.csv is of the same client",
        "no regular file", "a folder", "a link to nothing", "its ending is written .CSV",
        "a spreadsheet, to be saved as CSV",
    ]  # fmt: skip
    assert kinds(found) == {("", "", "file"), ("", "day", "date")}
    for name in ("b.csv", "d.csv", "e.CSV", "f.xlsx", "a.parquet"):
        Path("h", name).unlink()
    with pytest.raises(muster.MusterError, match=r"c\.csv: a folder; allowed here"):
        muster.Federation.from_folder("h")


def test_a_column_that_tells_the_label_is_left_out(here):
    def tell(seed, **more):
        frame = clean(seed)
        ill = (frame["outcome"] == "ill").to_numpy()
        marker = np.round(np.random.default_rng(seed + 9).uniform(size=60) + 2 * ill, 3)
        return frame.with_columns(
            dose_given=pl.Series(ill.astype(int)),
            code=pl.Series(np.where(ill, "C50", "Z00")),
            marker=pl.Series(marker),
            nearly=pl.Series(np.where(np.arange(60) == 7, 1 - ill, ill).astype(int)),
        )

    write("h", a=tell(0), b=tell(1).with_columns(outcome=pl.col("outcome").str.to_uppercase()))
    found = muster.data.check("h")
    leaks = {(c, k) for _, c, k in kinds(found) if k == "leak"}
    assert leaks == {(c, "leak") for c in ("dose_given", "code", "marker")}
    assert tomllib.loads(found.manifest)["features"] == ["age", "dose", "nearly"]
    # Whoever names it means it, and is reminded.
    put("h", manifest="label = 'outcome'\nfeatures = ['age', 'marker']\n")
    found = muster.data.check("h")
    assert "leak" not in {k for _, _, k in kinds(found)}
    assert any(n.startswith("column 'marker' tells 'outcome' of every row") for n in found.notes)


def test_a_number_to_predict_in_another_unit_is_left_out(here):
    def grow(seed):
        x = np.random.default_rng(seed).normal(size=(60, 2)).round(4)
        return pl.DataFrame({"x": x[:, 0], "fahrenheit": 32 + 1.8 * x[:, 1], "label": x[:, 1]})

    write("h", a=grow(0), b=grow(1))
    assert kinds(muster.data.check("h")) == {("", "fahrenheit", "leak")}


def test_few_rows_do_not_tell_the_label(here):
    """Of five rows, one column in ten divides the classes by accident."""
    write("h", a=clean(0, rows=5), b=clean(1, rows=5))
    assert "leak" not in {kind for _, _, kind in kinds(muster.data.check("h"))}


def test_codes_from_another_start_are_no_further_class(here):
    own = clean(0).with_columns(outcome=(pl.col("outcome") == "ill").cast(int))
    other = clean(1).with_columns(outcome=(pl.col("outcome") == "ill").cast(int) + 1)
    stage = np.arange(60) % 3
    write("h", a=own.with_columns(stage=pl.Series(stage)),
          b=other.with_columns(stage=pl.Series(stage + 1)))  # fmt: skip
    found = muster.data.check("h")
    assert kinds(found) == {("", "outcome", "coding"), ("", "stage", "coding")}
    with pytest.warns(muster.MusterWarning, match="which makes 3 classes"):
        muster.Federation.from_folder("h", label="outcome", scale="pooled")
    put("h", manifest="label = 'outcome'\nclasses = ['0', '1', '2']\nfeatures = ['age', 'dose']")
    assert muster.data.check("h").problems == ()


def test_the_label_that_one_file_lacks_is_no_other_column(here):
    """Of the columns that all have, the last with few values is not taken for the label."""
    sex = np.arange(60) % 2
    write("h", a=clean(0).drop("outcome").with_columns(sex=pl.Series(sex)),
          b=clean(1).with_columns(sex=pl.Series(sex)))  # fmt: skip
    found = muster.data.check("h")
    assert ("", "outcome", "label") in kinds(found)
    assert "label" not in tomllib.loads(found.manifest)


def test_numbers_with_marks_are_no_ids_and_no_levels():
    draw = np.random.default_rng(0)
    whole = draw.integers(1000, 90000, 40)
    german = str.maketrans(",.", ".,")
    for values in ([f"{n:,}" for n in whole], [f"{n % 100}%" for n in whole],
                   [f"{n / 100:.1f} mg/dl" for n in whole],
                   [f"{n / 10:,.1f}".translate(german) for n in whole]):  # fmt: skip
        found, kinds = problems({"a": values, "b": texts(whole)})
        assert (found.kind, kinds) == ("marked", [("", "type")])
        assert not found.used
    assert problems({"a": ["5 mg", "10 mg"] * 20})[0].kind == "category"


def test_three_digits_after_every_point_may_be_thousands(here):
    dots = [f"{n // 1000}.{n % 1000:03d}" for n in range(1001, 9000, 137)]
    write("h", a=clean(0, rows=len(dots), cells=dots), b=clean(1, rows=len(dots), cells=dots))
    assert any("if it marks thousands" in note for note in muster.data.check("h").notes)


def test_a_column_without_a_name_is_named_so(here):
    write("h", a=clean(0), b=clean(1))
    for path in Path("h").glob("*.csv"):
        head, *rows = path.read_text().splitlines()
        lines = [f",{head}", *(f"{i},{row}" for i, row in enumerate(rows))]
        path.write_text("\n".join(lines) + "\n")
    (problem,) = muster.data.check("h").problems
    assert str(problem).startswith("column '(no name)': identifies rows")
    with pytest.warns(muster.MusterWarning, match="column without a name is taken for a feature"):
        muster.Federation.from_folder("h", label="outcome", scale="pooled")


def test_an_unreadable_file_is_reported_once(here):
    write("h", a=clean(0), b=clean(1))
    Path("h/c.csv").write_text("age,dose,outcome\n")
    (problem,) = muster.data.check("h").problems
    assert problem.text == "h/c.csv: no rows; give at least one"


def test_one_and_two_are_no_yes_and_something(here):
    """Next to 2, the code 1 may be no: what is 0 and 1 elsewhere does not say."""

    def labelled(seed, ill, well):
        words = pl.when(pl.col("outcome") == "ill").then(pl.lit(ill)).otherwise(pl.lit(well))
        return clean(seed).with_columns(outcome=words)

    write("h", a=labelled(0, "1", "0"), b=labelled(1, "2", "1"), c=labelled(2, "yes", "no"))
    for _ in range(2):  # the manifest that was written settles nothing
        assert main(["data", "check", "h"]) == 1
        table = tomllib.loads(Path("h/manifest.toml").read_text())
        assert not {"recode", "classes"} & set(table)
    texts = [p.text for p in muster.data.check("h").problems if p.kind == "coding"]
    assert texts == [
        "a has '0', '1', c 'no', 'yes': two codings",
        "a has '0', '1', b '1', '2': the same codes, from another start?",
    ]
    with pytest.raises(muster.MusterError, match="two codings"):
        muster.Federation.from_folder("h")


def test_row_numbers_are_ids_where_one_client_has_few_rows(here):
    draw = np.random.default_rng(0)
    order, start, frames = draw.permutation(183), 0, {}
    for i, rows in enumerate([30] * 6 + [3]):
        student = 7 * draw.permutation(30)[:rows]  # the same numbers at every school
        row = pl.Series(order[start : start + rows])
        frames[f"s{i}"] = clean(i, rows, row=row, student=pl.Series(student))
        start += rows
    write("h", **frames)
    assert kinds(muster.data.check("h")) == {("", "row", "id"), ("", "student", "id")}


def test_a_value_for_each_client_says_whose_row_it_is(here):
    frames = {
        name: clean(i, site=[name] * 60, beds=[400 - 100 * i] * 60, wing=[i // 2 * 50 + 1] * 60)
        for i, name in enumerate("abc")
    }
    write("h", **frames)
    assert kinds(muster.data.check("h")) == {("", "site", "client"), ("", "beds", "client")}
    # Nor is it what is to be predicted.
    write("n", **{name: frame.drop("outcome") for name, frame in frames.items()})
    found = muster.data.check("n")
    assert "label" not in tomllib.loads(found.manifest)
    assert [p.kind for p in found.problems].count("label") == 1
    assert "reading" not in {p.kind for p in found.problems}


def test_numbers_around_zero_have_no_unit(here):
    draw = np.random.default_rng(0)
    shifted = {name: clean(i, z=draw.normal(i / 2, 0.1, 60)) for i, name in enumerate("abc")}
    write("h", **{name: f.with_columns(pl.col("z") - 0.5) for name, f in shifted.items()})
    assert muster.data.check("h").problems == ()


def test_units_are_named(here):
    draw = np.random.default_rng(0)
    cold, dots = draw.normal(37, 0.5, 60), draw.integers(100000, 400000, 60)
    german = [f"{n:,}".replace(",", ".") for n in dots]
    write("h", a=clean(0, temp=cold, cells=dots), b=clean(1, temp=cold, cells=dots),
          c=clean(2, temp=32 + 1.8 * cold, cells=german))  # fmt: skip
    said = {p.column: str(p) for p in muster.data.check("h").problems}
    assert "as degrees C and F do" in said["temp"]
    assert "points that mark thousands?" in said["cells"]


def test_numbers_mixed_with_words_are_no_id(here):
    draw = np.random.default_rng(0)
    lab = np.where(draw.uniform(size=60) < 0.3, "<5", draw.normal(20, 3, 60).round(2).astype(str))
    write("h", a=clean(0, lab=lab), b=clean(1, lab=draw.normal(20, 3, 60)))
    (problem,) = muster.data.check("h").problems
    assert problem.kind == "type"
    assert "numbers next to what is none ('<5')" in problem.text
    words = ["#DIV/0!", "#NV", "n.a.", "keine Angabe"]
    write("w", a=clean(0, lab=words + ["m", "f"] * 28), b=clean(1, lab=["f", "m"] * 30))
    found = muster.data.check("w")
    assert tomllib.loads(found.manifest)["recode"]["lab"] == dict.fromkeys(words, "")


def test_a_file_without_a_header_is_named_and_the_others_are_checked(here):
    write("h", a=clean(0), b=clean(1, day=["2023-01-03"] * 60), c=clean(2, day=["2023-01-04"] * 60))
    body = Path("h/a.csv").read_text().partition("\n")[2]
    Path("h/a.csv").write_text(body)
    found = muster.data.check("h")
    assert kinds(found) == {("a", "", "file"), ("", "day", "date")}
    assert "its first line looks like a row" in found.problems[0].text
    # Columns that are counted have a header.
    grid = np.random.default_rng(0).integers(0, 3, (60, 4)).astype(str)
    frames = {"a": grid[:30], "b": grid[30:]}
    for name, values in frames.items():
        frames[name] = pl.DataFrame(values, schema=["0", "1", "2", "3"], orient="row").with_columns(
            label=pl.Series(["x", "y"] * 15)
        )
    write("g", **frames)
    assert "file" not in {kind for _, _, kind in kinds(muster.data.check("g"))}


def test_classes_are_the_words_of_one_client_and_yes_is_the_second(here):
    """The second of two classes is the one that sensitivity is about."""

    def labelled(seed, ill, well):
        words = pl.when(pl.col("outcome") == "ill").then(pl.lit(ill)).otherwise(pl.lit(well))
        return clean(seed).with_columns(outcome=words)

    for one, other, classes in (
        (("yes", "no"), ("Yes", "No"), ["no", "yes"]),
        (("ja", "nein"), ("1", "0"), ["nein", "ja"]),
    ):
        # Each word of one client is more frequent than the same of the other, or less.
        rows = {"a": labelled(0, *one), "b": labelled(3, *other), "c": labelled(0, "1", "0")}
        write(one[0], **rows)
        assert tomllib.loads(muster.data.check(one[0]).manifest)["classes"] == classes


def diagnosed(seed, *labels, **more):
    """Rows in which labels take turns."""
    return clean(seed, **more).with_columns(outcome=pl.Series(np.resize(labels, 60)))


@pytest.mark.parametrize("odd", ["bening", "benigne", "Benign tumour"])
def test_a_client_that_spells_a_class_its_own_way(here, odd, capsys):
    usual = ("benign", "malignant")
    write("h", east=diagnosed(0, *usual), north=diagnosed(1, *usual),
          south=diagnosed(2, odd, "malignant"))  # fmt: skip
    (problem,) = muster.data.check("h").problems
    assert (problem.client, problem.column, problem.kind) == ("south", "outcome", "spelling")
    assert f"'{odd}' (30 rows of south) may be 'benign'" in problem.text
    assert "[recode.outcome]" in problem.suggestion
    # The manifest that was written settles nothing, and is right once its comment is taken in.
    assert main(["data", "check", "h"]) == 1
    text = Path("h/manifest.toml").read_text()
    assert "classes" not in tomllib.loads(text)
    assert main(["data", "check", "h"]) == 1
    capsys.readouterr()
    head, _, rest = text.partition("# [recode.outcome]")
    Path("h/manifest.toml").write_text(head + "[recode.outcome]" + rest.replace("# ", ""))
    assert muster.data.check("h").problems == ()
    assert muster.Federation.from_folder("h").labels == usual


def test_a_class_that_is_replaced_with_itself_is_meant(here):
    usual = ("benign", "malignant")
    write("h", a=diagnosed(0, *usual), b=diagnosed(1, *usual), c=diagnosed(2, "bening", *usual[1:]))
    put("h", manifest="label = 'outcome'\nscale = 'pooled'\n[recode.outcome]\nbening = 'bening'\n")
    assert muster.data.check("h").problems == ()
    fed = muster.Federation.from_folder("h")
    assert find_data_warnings(fed) == []
    # Names that are far apart are a note: some classes are at one client only.
    write("n", a=diagnosed(0, *usual), b=diagnosed(1, *usual), c=diagnosed(2, "cyst", "malignant"))
    found = muster.data.check("n")
    assert found.problems == ()
    note = "column 'outcome': only c has 'cyst', and lacks 'benign', which all others have"
    assert note in found.notes


def test_a_category_that_one_client_spells_its_own_way(here):
    ward = np.resize(["cardiology", "surgery"], 60)
    own = np.resize(["kardiology", "surgery"], 60)
    write("h", a=clean(0, ward=ward), b=clean(1, ward=ward), c=clean(2, ward=own))
    (problem,) = muster.data.check("h").problems
    assert (problem.client, problem.column, problem.kind) == ("c", "ward", "spelling")
    assert '# kardiology = "cardiology"\n' in muster.data.check("h").manifest


def test_departments_with_near_names_at_different_sites_are_no_problem(here):
    usual, own = (np.resize([ward, "surgery"], 60) for ward in ("neurology", "nephrology"))
    write("h", a=clean(0, ward=usual), b=clean(1, ward=own), c=clean(2, ward=usual))
    found = muster.data.check("h")
    assert found.problems == ()
    assert any("only b has 'nephrology'" in note for note in found.notes)


def test_rare_names_two_characters_away_are_for_the_owner_to_decide(here):
    labels = ["begnin"] * 3 + ["benign", "malignant"] * 28 + ["benign"]
    several = {f"site{i}": diagnosed(i, "benign", "malignant") for i in range(1, 4)}
    for others, said in (
        (1, "class 'begnin' has 3 rows: too few to learn from"),
        (3, "'begnin' (3 rows) may be a typo of 'benign'"),
    ):
        more = dict(list(several.items())[:others])
        write(f"h{others}", site0=clean(0).with_columns(outcome=pl.Series(labels)), **more)
        found = muster.data.check(f"h{others}")
        (problem,) = found.problems
        assert problem.text.startswith(said)
        assert problem.suggestion.endswith("renames it: 'begnin' = 'benign'")
        assert '# begnin = "benign"\n' in found.manifest
        assert not {"recode", "classes"} & set(tomllib.loads(found.manifest))


def test_a_range_is_suggested_where_a_value_may_be_a_mistake(here):
    draw = np.random.default_rng(0)
    ages = draw.uniform(21, 88, 60).round()
    write("h", a=clean(0).with_columns(age=pl.Series([99999.0, *ages[1:]])),
          b=clean(1).with_columns(age=pl.Series(ages)))  # fmt: skip
    text = muster.data.check("h").manifest
    assert text.endswith("# [range]\n# age = [20, 90]\n")
    assert "range" not in tomllib.loads(text)
    put("h", manifest="[range]\ndose = [-10, 10]\n")
    text = muster.data.check("h").manifest
    assert "# [range]" not in text
    assert tomllib.loads(text.replace("# age", "age"))["range"]["age"] == [20, 90]


def test_points_of_one_row_are_not_rounded_to_even():
    assert [format_row_points(n) for n in (8, 40, 80, 12, 3)] == ["12.5", "2.5", "1.25", "8", "33"]


def lines_of(path):
    return Path(path).read_text().splitlines()


def put_lines(path, lines):
    Path(path).write_text("\n".join(lines) + "\n")


def test_a_comma_at_the_end_of_the_lines(here):
    write("h", a=clean(0), b=clean(1), c=clean(2))
    lines = lines_of("h/c.csv")
    put_lines("h/c.csv", [f"{line}," for line in lines])
    (problem,) = muster.data.check("h").problems
    said = "only c has a column without a name (a comma at the end of the lines?); left out"
    assert said in str(problem)
    with pytest.raises(muster.MusterError, match=r"a column without a name is not in h/a\.csv"):
        muster.Federation.from_folder("h", label="outcome")
    put_lines("h/c.csv", [f"{line},," for line in lines])
    (problem,) = muster.data.check("h").problems
    assert "two columns have no name (commas at the end of the lines?)" in problem.text


@pytest.mark.parametrize(
    "start", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"PK\x03\x04", b"\xff\xd8\xff\xe0"]
)
def test_what_is_no_text_is_left_out(here, start):
    write("h", a=clean(0), b=clean(1))
    Path("h/c.csv").write_bytes(start + np.random.default_rng(0).bytes(5000))
    found = muster.data.check("h")
    assert kinds(found) == {("c", "", "file")}
    assert found.problems[0].text == "h/c.csv: not a text file; give a table, saved as CSV in UTF-8"
    with pytest.raises(muster.MusterError, match=r"c\.csv: not a text file"):
        muster.Federation.from_folder("h", label="outcome")
    lines = lines_of("h/a.csv")  # with a stray code it is text all the same
    put_lines(
        "h/c.csv",
        [f"{lines[0]},note", f"{lines[1]},fine\x02", *(f"{line},fine" for line in lines[2:])],
    )
    assert ("c", "", "file") not in kinds(muster.data.check("h"))


def test_blanks_around_the_names_of_columns(here):
    write("h", a=clean(0), b=clean(1))
    lines = lines_of("h/b.csv")
    put_lines("h/b.csv", ["age, dose , outcome", *lines[1:]])
    assert muster.data.check("h").problems == ()
    fed = muster.Federation.from_folder("h", label="outcome", scale="pooled")
    assert fed.columns == ("age", "dose")
    write("g", a=clean(0), b=clean(1))
    same = muster.Federation.from_folder("g", label="outcome", scale="pooled")
    assert (fed.train.x == same.train.x).all()


def test_rows_without_a_label_are_one_problem(here):
    write("h", a=clean(0), b=clean(1))
    lines = lines_of("h/b.csv")
    lines[17] = lines[17].rpartition(",")[0] + ","
    put_lines("h/b.csv", lines)
    (problem,) = muster.data.check("h").problems
    assert problem.text == "1 row without a label (row 17)"
    lines[20] = lines[20].rpartition(",")[0] + ","
    put_lines("h/b.csv", lines)
    (problem,) = muster.data.check("h").problems
    assert problem.text == "2 rows without a label (the first is row 17)"


def test_a_label_column_by_another_name(here):
    write("h", a=clean(0), b=clean(1))
    with pytest.raises(muster.MusterError, match="no label column 'label'") as error:
        muster.Federation.from_folder("h")
    assert "did you mean" not in str(error.value)
    assert "known: age, dose, outcome (`muster data check` finds it" in str(error.value)
    with pytest.raises(muster.MusterError, match="did you mean 'outcome'"):
        muster.Federation.from_folder("h", label="outcom")
    with pytest.raises(muster.MusterError, match="known: outcome "):
        muster.Federation.from_folder("h", label="ages", features=["age", "dose"])


def test_numbers_as_labels_and_one_class_name_what_the_command_line_takes(here, capsys):
    draw = np.random.default_rng(1)
    for name in ("n", "o"):
        frames = [clean(i).rename({"outcome": "label"}) for i in range(2)]
        label = [pl.Series("label", draw.normal(size=60)), pl.lit("ill").alias("label")][
            name == "o"
        ]
        write(name, a=frames[0].with_columns(label), b=frames[1].with_columns(label))
    found = muster.data.check("n")
    said = "the label 'label' is a number to predict: run with --task regression"
    assert said in found.decisions
    assert main(["data", "check", "n"]) == 0
    assert main(["run", "--data", "n", "--rounds", "1"]) == 2
    assert "--task regression" in capsys.readouterr().err
    (problem,) = muster.data.check("o").problems
    assert problem.text == "one class ('ill')"
    with pytest.raises(muster.MusterError, match="every label is 'ill'") as error:
        muster.Federation.from_folder("o", scale="pooled")
    assert 'targets = "numbers"' in str(error.value)


def test_a_folder_without_roles_says_that_every_client_is_priority(here):
    text = "age,dose,label\n" + "".join(f"{50 + k},{k % 7}.5,{k % 2}\n" for k in range(30))
    put("h", north=text, south=text.replace("5", "6"))
    found = muster.data.check("h")
    assert "every client is priority: nothing says whose model it is" in found.decisions
    assert '# priority = ["north"]' in found.manifest
    assert tomllib.loads(found.manifest.replace("# priority", "priority"))["priority"] == ["north"]
    for stated in ({"priority": 1}, {"priority": "all"}):
        assert "every client" not in str(muster.data.check("h", **stated))
    Path("h/manifest.toml").write_text("[clients.south]\npriority = true\n")
    assert "every client" not in str(muster.data.check("h"))
    assert "every client" not in str(muster.data.check("h/north.csv"))
