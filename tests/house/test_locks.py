"""The locks say what is installed, with hashes and without hosts."""

from __future__ import annotations

import subprocess
import sys

from tests.house.repository import ROOT


def test_the_locks_are_current() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "locks" / "relock.py"), "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
