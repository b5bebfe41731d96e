"""The example scripts run as their first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from small_data import here

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
@here("fmnist")
def test_the_appeal_study_runs(tmp_path):
    script = ROOT / "examples" / "appeal_fmnist.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "gm_appeal_unseen" in done.stdout
