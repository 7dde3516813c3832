"""Every transaction of the product has a name of the closed registry, and every name is a transaction's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from dromos.ports.probe import UNCALLED, Moment, Point
from tests.house.repository import ROOT, tree_of

SOURCES = ROOT / "src" / "dromos"
DOORS = {("lifecycle/service.py", "_change"), ("lifecycle/record.py", "write")}
"""The two functions that reach the moments of a transaction; whoever writes goes through one of them."""
OUTSIDE = ("store/", "testing/", "client/")
"""Rooms that carry transactions out, prove them on a store of their own, or have no store."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if not name.startswith(OUTSIDE):
            yield name, tree_of(path)


def writes(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Each awaited `….write(…)` with the name of the function around it."""
    for node in ast.iter_child_nodes(tree):
        if (
            isinstance(node, ast.Await)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr == "write"
        ):
            yield inside, node.value
        name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else inside
        yield from writes(node, name)


def nameless(module: str, tree: ast.Module) -> list[str]:
    return [
        f"{module}:{call.lineno}"
        for inside, call in writes(tree)
        if (module, inside) not in DOORS and not any(keyword.arg == "point" for keyword in call.keywords)
    ]


def test_every_transaction_goes_through_a_door_with_a_name() -> None:
    without = [place for module, tree in modules() for place in nameless(module, tree)]
    assert without == [], "give it `point=Point.…` of ports/probe.py, or use `Lifecycle._change`"


@pytest.mark.parametrize(
    "code",
    ["async def f(r): await r.write(g)", "async def f(s): return (await s.store.write(lambda tx: tx.now()))"],
)
def test_a_transaction_without_a_name_is_found(code: str) -> None:
    assert nameless("worker/new.py", ast.parse(code)) == ["worker/new.py:1"]


def test_every_name_is_that_of_a_transaction() -> None:
    used = {
        node.attr
        for module, tree in modules()
        if module != "ports/probe.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Point"
    }
    assert {point.name for point in Point} - used - {"RECORD"} == set()


def calls_from_outside(tree: ast.AST, method: str) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
        for node in ast.walk(tree)
    )


def test_what_no_server_comes_to_is_called_by_no_room_that_works() -> None:
    assert set(UNCALLED) == {Point.RECORD, Point.REFUSE_WORK}
    callers = [
        module
        for module, tree in modules()
        if not module.startswith("lifecycle/") and calls_from_outside(tree, "refuse_work")
    ]
    assert callers == [], (
        "take REFUSE_WORK out of `UNCALLED` and give it a case in benchmarks/effects/crashes.py"
    )


def test_the_moments_of_a_transaction_are_told_by_one_word_each() -> None:
    assert [Point.CLAIM.at(moment) for moment in Moment] == [
        "claim.written",
        "claim.committed",
        "claim.replied",
    ]
