"""What the tests of damaged files share: results that are sound."""

from __future__ import annotations

import pytest

from mutants import write_results


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """Results that are sound."""
    folder = tmp_path_factory.mktemp("base")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_results(folder)
    return folder
