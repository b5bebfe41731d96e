import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'muster-fl[flower]'")


@pytest.fixture
def setup(tmp_path):
    from flower_setup import Setup

    return lambda *args, **settings: Setup(tmp_path, *args, **settings)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Rosters of tests stay with the tests."""
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
