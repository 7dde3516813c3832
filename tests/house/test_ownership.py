"""The real clock, real identifiers and randomness are used only by the modules that own them.

ruff forbids them in most rooms; rooms that own tasks have to be let off that rule as a whole, so this test
looks for the clock and the like there as well. Durations by `time.monotonic` are nobody's property.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.house.repository import modules, shown, tree_of

# module → why it may
OWNERS = {
    "src/dromos/bootstrap/reality.py": "makes the real clock and the real identifiers",
    "src/dromos/cli/clock.py": "a person at a terminal reads that machine's clock",
}
OWNING_ROOMS = {
    "src/dromos/testing/": "the test kit plays the outside world",
}
CALLS = {
    *("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.date.today"),
}
MODULES = {"uuid", "uuid_utils", "random"}


def _uses(path: Path) -> list[str]:
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
            found.append(f"{shown(path)}:{node.lineno} {ast.unparse(node.func)}()")
        if isinstance(node, ast.Import):
            found += [
                f"{shown(path)}:{node.lineno} import {alias.name}"
                for alias in node.names
                if alias.name.split(".")[0] in MODULES
            ]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            if [alias.name for alias in node.names] == ["UUID"]:
                continue  # a type, which makes nothing
            found.append(f"{shown(path)}:{node.lineno} from {node.module} import …")
    return found


def test_only_owners_touch_the_clock_identifiers_and_randomness() -> None:
    strangers = [
        use
        for path in modules()
        if shown(path) not in OWNERS and not shown(path).startswith(tuple(OWNING_ROOMS))
        for use in _uses(path)
    ]
    assert strangers == []


def test_every_owner_still_needs_its_right() -> None:
    by_name = {shown(path): path for path in modules()}
    assert [name for name in OWNERS if name not in by_name or not _uses(by_name[name])] == []
