"""What goes to nodes, and what stays on the server."""

from __future__ import annotations

import io
import stat
import tomllib
import zipfile
from dataclasses import replace

import pytest
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk

import muster
from muster.cli.main import main as command
from muster.config.experiment import load
from muster.flower.server import app as server_app
from muster.flower.terms import (
    app_hash,
    check_terms,
    parse_terms,
    read_app_terms,
    read_roster,
    read_terms,
    roster_path,
    shared_terms,
    write_app,
)


@pytest.fixture
def written(setup):
    case = setup("fedalign", name="hospitals")
    app = case.folder / "app"
    name = write_app(app, case.experiment(), case.folder / "server" / "results")
    return case, app, name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def bundle(app):
    return build_fab_from_disk(app)


def config_of(app):
    return tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")
def test_the_bundle_names_nobody(written):
    case, app, _ = written
    with zipfile.ZipFile(io.BytesIO(bundle(app))) as files:
        everything = b"".join(files.read(name) for name in files.namelist()).decode()
    everything = everything.replace("sum_priority = []", "")  # numbers, in secure runs alone
    secrets = [str(case.folder), "results", "priority = ", "importance"]
    for node, member in zip(case.nodes, case.experiment().members, strict=True):
        secrets += [node.key.decode().split()[1], f'"{member.name}"']
    for secret in secrets:
        assert secret not in everything, secret
    assert set(config_of(app)) == {"federation", "terms"}
    told = tomllib.loads(config_of(app)["terms"])
    assert not set(told) & {"clients", "data", "out", "name", "seeds"}
    left = {"timeout", "enrolment_timeout", "quorum", "max_share", "failures"}
    assert not set(told.get("network", {})) & left


def test_the_roster_is_the_servers_users_alone(written, home):
    case, app, _ = written
    file = roster_path("hospitals")
    assert file.parent.parent == home
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    chosen, place, inputs = read_roster(config_of(app))
    assert place == case.folder / "server" / "results"
    listed = case.experiment()
    assert chosen.members == listed.with_keys().members
    assert chosen.settings == listed.settings
    assert inputs is None


def test_a_known_description_of_rows_is_saved_with_the_model(written):
    case, app, _ = written
    results = case.folder / "results"
    write_app(app, case.experiment(), results, inputs=case.fed.inputs)
    server_app.main(case.grid(), Context(1, 1, {}, RecordDict(), config_of(app)))
    rows = case.fed.train.client(0)[0].numpy()
    said = muster.load(results).predict(rows)
    assert said["p_3"].to_list() == pytest.approx(case.simulate().predict(rows)["p_3"].to_list())


def test_the_server_app_runs_with_its_roster_and_writes_for_itself(written):
    case, app, _ = written
    server_app.main(case.grid(), Context(1, 1, {}, RecordDict(), config_of(app)))
    results = case.folder / "server" / "results"
    written_there = [results, *results.rglob("*")]
    assert len(written_there) > 4
    for path in written_there:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_an_app_without_its_roster_is_refused_with_what_to_do(written, home):
    _, app, _ = written
    config = config_of(app)
    with pytest.raises(muster.MusterError, match=r"federation '\.\./x': give a plain name"):
        read_roster({**config, "federation": "../x"})
    with pytest.raises(muster.MusterError, match="other terms than this app; write the app again"):
        read_roster({**config, "terms": config["terms"].replace("rounds = 3", "rounds = 4")})
    roster_path("hospitals").unlink()
    with pytest.raises(muster.MusterError, match="roster of this federation cannot be read"):
        read_roster(config)


def test_the_hash_stands_for_the_terms_and_not_for_who_takes_part(written):
    case, app, name = written
    assert len(name) == 64
    assert app_hash(app) == name
    listed = case.experiment()
    again = write_app(app, replace(listed, members=listed.members[:-1]), case.folder / "elsewhere")
    assert again == name
    patient = replace(listed, network=replace(listed.network, timeout=7.0))
    assert write_app(app, patient, case.folder) == name
    longer = replace(listed, settings=replace(listed.settings, rounds=9))
    assert write_app(app, longer, case.folder) != name


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")
def test_terms_are_read_from_the_bundle_and_not_from_the_run(written):
    case, app, _ = written
    assert read_app_terms(bundle(app)) == shared_terms(case.experiment())
    (app / "pyproject.toml").write_text(
        (app / "pyproject.toml")
        .read_text()
        .replace("terms = ", f'more = "{"x" * 2**20}"\nterms = ')
    )
    with pytest.raises(muster.MusterError, match="the app's terms have over 1048576 bytes"):
        read_app_terms(bundle(app))


TABLE = {"rounds": 3, "method": {"name": "fedalign"}, "local": {"steps": 5}}


def test_terms_that_were_not_agreed_on_are_refused():
    agreed = shared_terms(load({**TABLE, "network": {}}))
    found = {**TABLE, "network": {"features": [64], "classes": 10}}
    check_terms(shared_terms(load(found)), agreed)  # left open, and found
    for other in (
        {"rounds": 4},
        {"local": {"steps": 1}},
        {"local": {"steps": 5, "batch_size": 1}},
        {"method": {"name": "fedavg"}},
        {"model": {"name": "mlp"}},
        {"seed": 1},
        {"network": {"columns": ["name"]}},
        {"network": {"label": "name"}},
        {"requirement": 1.0},
        {"trust": False},
    ):
        with pytest.raises(muster.MusterError, match="terms: the server's request differs"):
            check_terms(shared_terms(load({**TABLE, "network": {}, **other})), agreed)
    settled = shared_terms(load(found))
    with pytest.raises(muster.MusterError, match="terms: the server's request"):
        check_terms(
            shared_terms(load({**found, "network": {"features": [63], "classes": 10}})),
            settled,
        )
    with pytest.raises(muster.MusterError, match="import path"):
        read_terms(agreed.replace('name = "softmax"', 'name = "os:system"'))


@pytest.mark.parametrize("text", ["a = ", "a = [" * 9000, "a." * 900 + "a = 1"])
def test_terms_that_cannot_be_walked_through_are_one_line(text):
    with pytest.raises(muster.MusterError, match=r"terms: not valid TOML .*; nothing was done$"):
        parse_terms(text)


def test_the_command_prints_the_hash_that_clients_agree_to(written, capsys):
    _, app, name = written
    assert command(["federate", "--app", str(app)]) == 0
    assert capsys.readouterr().out.split() == ["app", "hash:", name]
    assert command(["federate", "--app", str(app / "nowhere")]) == 2
    assert "not the app of a federation" in capsys.readouterr().err
