import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'muster-fl[flower]'")


@pytest.fixture
def setup(tmp_path):
    from flower_setup import Setup

    return lambda *args, **settings: Setup(tmp_path, *args, **settings)
