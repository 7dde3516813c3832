"""Nothing is promised without a test, and no test claims a promise that is not written down."""

from __future__ import annotations

import re

import pytest

from tests.house.promises import CASES, PROMISES
from tests.house.repository import ROOT, shown

# `mark.case("P10")` and `mark.case("P10", "P74")`, also inside `pytest.param(..., marks=...)`.
_MARK = re.compile(r"mark\.(case|promise)\(\s*((?:\"[^\"]+\"\s*,?\s*)+)\)")


def _claimed(kind: str) -> dict[str, set[str]]:
    """Numbers that tests claim, each with the files that claim it."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path.parent.name == "house":
            continue
        for mark, arguments in _MARK.findall(path.read_text()):
            if mark == kind:
                for number in re.findall(r'"([^"]+)"', arguments):
                    found.setdefault(number, set()).add(shown(path))
    return found


@pytest.mark.parametrize(("kind", "written"), [("case", CASES), ("promise", PROMISES)])
def test_every_promise_has_a_test(kind: str, written: dict[str, str]) -> None:
    assert sorted(set(written) - set(_claimed(kind))) == []


@pytest.mark.parametrize(("kind", "written"), [("case", CASES), ("promise", PROMISES)])
def test_every_claim_of_a_test_is_written_down(kind: str, written: dict[str, str]) -> None:
    assert {number: files for number, files in _claimed(kind).items() if number not in written} == {}
