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
    attacks = (ROOT / "tests" / "flower" / "test_attacks.py").read_text()
    assert "pytestmark = [pytest.mark.slow" in attacks
    killed = (ROOT / "tests" / "flower" / "local" / "test_loopback.py").read_text()
    marked = re.findall(r"@pytest\.mark\.slow\n(?:@.*\n)*def (\w+)\(", killed)
    assert len(real) >= 4
    assert all(f"def {name}(" in attacks or name in marked for name in real)
