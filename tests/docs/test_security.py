"""docs/security.md: every attack it tells of is a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_attack_is_a_test():
    page = (ROOT / "docs" / "security.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 25
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not {name for name in named if f"def {name}(" not in tests}


def test_real_ones_run_with_the_slow_tests():
    page = (ROOT / "docs" / "security.md").read_text()
    real = set(re.findall(r"\*real\* `(test_\w+)`", page))
    source = (ROOT / "tests" / "flower" / "test_attacks.py").read_text()
    assert len(real) >= 4
    assert all(f"def {name}(" in source for name in real)
    assert "pytest.mark.slow" in source
