"""A shorter patch with the same result: the last value of a path wins, what lies below a new value goes into it.

Operations are taken one by one in their order. Each looks back over those that are kept: it is merged with the one
it overrides or lies in, and drops those it makes void, as long as nothing between them could depend on the order.
A path alone does not say whether a number names a place in a list, so numbers are taken for places: an operation
that may move a list's items is never passed by one that names an item of it.

The result is the same on every document on which the operations can be applied. `test` operations have done their
work by then and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dromos.domain.pointers import copied, index_of, parts_of

Operation = Mapping[str, Any]


class _Kept:
    """One operation that is kept. `own`: its value was copied and may be changed."""

    __slots__ = ("op", "own", "parts", "path", "place", "value")

    def __init__(self, op: str, path: str, parts: list[str], value: Any) -> None:
        self.op, self.path, self.parts, self.value = op, path, parts, value
        self.own = False
        self.place = 0

    def inserts(self) -> bool:
        """True where it may push a list's items on instead of replacing one."""
        return self.op == "add" and _may_be_place(self.parts[-1])

    def moves(self) -> list[str] | None:
        """The list whose items this operation may move; None where it moves none."""
        if self.op != "replace" and _may_be_place(self.parts[-1]):
            return self.parts[:-1]
        return None


class Coalescer:
    """Takes operations as they are made and gives the short patch when asked."""

    def __init__(self) -> None:
        self._kept: list[_Kept | None] = []
        self._by_path: dict[str, _Kept] = {}
        """By path, for those without a number in it: nothing can stand between them and a newer value."""
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def __len__(self) -> int:
        return self._count

    def add(self, operation: Operation) -> None:
        kind = operation["op"]
        if kind == "test":
            return
        path = operation["path"]
        if kind != "remove":
            known = self._by_path.get(path)
            if known is not None and known.op != "remove":
                known.value, known.own = operation["value"], False
                return
        self._merge(_Kept(kind, path, parts_of(path) or [], operation.get("value")))

    def take(self) -> list[dict[str, Any]]:
        """The patch so far; the coalescer is empty afterwards."""
        patch: list[dict[str, Any]] = []
        for kept in self._kept:
            if kept is None:
                continue
            operation = {"op": kept.op, "path": kept.path}
            if kept.op != "remove":
                operation["value"] = kept.value
            patch.append(operation)
        self._kept, self._by_path, self._count = [], {}, 0
        return patch

    # --- inside
    def _merge(self, new: _Kept) -> None:
        for place in range(len(self._kept) - 1, -1, -1):
            old = self._kept[place]
            if old is None:
                continue
            if old.parts == new.parts and new.parts[-1] != "-":
                if self._same_path(old, new):
                    return
                break
            if _below(old.parts, new.parts) and not new.inserts():
                self._drop(old)
            elif _below(new.parts, old.parts) and old.op != "remove":
                if not old.own:
                    old.value, old.own = copied(old.value), True
                if _apply_in(old.value, new.parts[len(old.parts) :], new):
                    return
                break
            elif _in_the_way(old, new):
                break
        self._keep(new)

    def _same_path(self, old: _Kept, new: _Kept) -> bool:
        """True where the new operation is taken care of; False where it has to be kept behind the old one."""
        place = _may_be_place(new.parts[-1])
        if old.op == "remove":
            if new.op != "add":
                return False
            # Taken away and set again: it stood there before, so it is replaced.
            self._drop(old)
            self._merge(_Kept("replace", new.path, new.parts, new.value))
            return True
        if new.op == "replace" or (new.op == "add" and not place):
            old.value, old.own = new.value, False
            return True
        if new.op == "remove" and old.op == "replace":
            self._drop(old)
            self._merge(new)
            return True
        if new.op == "remove":
            old.value, old.own = None, False  # whether it stood there before, nobody knows here
        return False

    def _keep(self, new: _Kept) -> None:
        new.place = len(self._kept)
        self._kept.append(new)
        self._count += 1
        if not any(map(_may_be_place, new.parts)):
            self._by_path[new.path] = new

    def _drop(self, old: _Kept) -> None:
        self._kept[old.place] = None
        self._count -= 1
        if self._by_path.get(old.path) is old:
            del self._by_path[old.path]


def coalesce(operations: Iterable[Operation]) -> list[dict[str, Any]]:
    """A patch that does the same as `operations`, one after the other, on every document that takes them."""
    coalescer = Coalescer()
    for operation in operations:
        coalescer.add(operation)
    return coalescer.take()


def _may_be_place(part: str) -> bool:
    return part == "-" or index_of(part) is not None


def _below(inner: list[str], outer: list[str]) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _in_the_way(old: _Kept, new: _Kept) -> bool:
    """True where the order of the two counts: one may move the items of a list that the other names an item of."""
    return _names_item_of(old.moves(), new.parts) or _names_item_of(new.moves(), old.parts)


def _names_item_of(moved: list[str] | None, parts: list[str]) -> bool:
    return moved is not None and _below(parts, moved) and _may_be_place(parts[len(moved)])


def _apply_in(value: Any, parts: list[str], new: _Kept) -> bool:
    """Carry the operation out in a value that is known; False where it cannot be told what it does."""
    for part in parts[:-1]:
        if isinstance(value, list):
            index = index_of(part)
            if index is None or index >= len(value):
                return False
            value = value[index]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return False
    last = parts[-1]
    if isinstance(value, dict):
        if new.op == "remove":
            return value.pop(last, _NOTHING) is not _NOTHING
        value[last] = copied(new.value)
        return True
    if not isinstance(value, list):
        return False
    index = len(value) if last == "-" else index_of(last)
    if index is None or index > len(value) - (new.op != "add"):
        return False
    if new.op == "add":
        value.insert(index, copied(new.value))
    elif new.op == "remove":
        del value[index]
    else:
        value[index] = copied(new.value)
    return True


_NOTHING = object()
