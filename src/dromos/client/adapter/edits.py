"""Changes that wait to be sent, and the JSON patch (RFC 6902) that carries them out on a given document.

A change is a path and a value; entries of `plan` and `steps` are named by their id, never by their place, so the same
changes fit a document that somebody else has changed meanwhile. Pure; it must not know HTTP or the box's fields.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dromos.domain import patches
from dromos.domain.document import MAX_OPERATIONS, MAX_STEPS
from dromos.domain.pointers import parts_of, pointer, same
from dromos.domain.text import clean_json

Json = dict[str, Any]
Path = tuple[str, ...]

LISTS: Final = ("plan", "steps")
"""Lists whose entries carry an `id`."""
MOST_BYTES: Final = 48 * 1024
"""Of the operations of one patch as JSON; the server takes 64 KiB."""


class _Removed:
    def __repr__(self) -> str:
        return "REMOVED"


REMOVED: Final = _Removed()


class Edits:
    """Changes in the order they were made, merged as they come: the last value of a path wins."""

    def __init__(self) -> None:
        self._at: dict[Path, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._at)

    def __iter__(self) -> Iterator[tuple[Path, Any]]:
        return iter(self._at.items())

    def put(self, path: Path, value: Any) -> None:
        """Set what stands at `path`, or take it away (`REMOVED`). The value is copied."""
        if value is not REMOVED:
            value = clean_json(value)[0]
        for inner in [known for known in self._at if len(known) > len(path) and known[: len(path)] == path]:
            del self._at[inner]
        for length in range(len(path) - 1, 0, -1):
            outer = path[:length]
            if outer in self._at:
                self._at[outer] = _within(self._at[outer], path[length:], value)
                return
        self._at.pop(path, None)  # to the end: order is the order of the last change
        self._at[path] = value

    def take(self) -> Edits:
        """All changes; this one is empty afterwards."""
        taken, self._at = Edits(), {**self._at}
        taken._at, self._at = self._at, {}
        return taken

    def put_back(self, older: Edits) -> None:
        """Put changes in that were taken before and did not get through: newer ones win."""
        newer = self.take()
        for path, value in (*older, *newer):
            self.put(path, value)

    def drop(self, path: Path) -> bool:
        """Forget the changes at, around or within `path`; whether there were any."""
        hit = [known for known in self._at if known[: len(path)] == path[: len(known)]]
        for known in hit:
            del self._at[known]
        return bool(hit)


@dataclass(frozen=True, slots=True)
class Patch:
    """`operations` turn the known document into `document`; `left` did not fit into one patch; `of` names the change
    that each operation stems from."""

    operations: list[Json]
    document: Json
    left: Edits
    of: list[Path]


def patch_for(known: Mapping[str, Any], edits: Edits) -> Patch:
    """The patch that makes the changes on `known` (the content part). What is so already needs no operation; an entry
    of a list that is gone stays gone."""
    document: Json = copy.deepcopy(dict(known))
    operations: list[Json] = []
    of: list[Path] = []
    size = 0
    left = Edits()
    for path, value in edits:
        if left:
            left.put(path, value)
            continue
        made = list(_operations(document, path, value))
        bytes_ = sum(len(json.dumps(operation)) for operation in made)
        if operations and (len(operations) + len(made) > MAX_OPERATIONS or size + bytes_ > MOST_BYTES):
            left.put(path, value)
            continue
        patches.apply(document, made)
        operations += made
        of += [path] * len(made)
        size += bytes_
    return Patch(operations, document, left, of)


def _operations(document: Json, path: Path, value: Any) -> Iterator[Json]:
    if path[0] in LISTS and len(path) > 1:
        yield from _in_list(document, path, value)
        return
    target: Any = document
    for depth, part in enumerate(path[:-1]):
        inner = target.get(part)
        if not isinstance(inner, dict):
            if value is not REMOVED:
                yield _operation(
                    "replace" if part in target else "add",
                    path[: depth + 1],
                    _nested(path[depth + 1 :], value),
                )
            return
        target = inner
    yield from _member(target, path, path[-1], value)


def _in_list(document: Json, path: Path, value: Any) -> Iterator[Json]:
    head, item_id, *rest = path
    items: list[Json] = document.get(head) or []
    index = next((at for at, item in enumerate(items) if item.get("id") == item_id), None)
    if index is None:
        if value is REMOVED or rest:
            return
        if head not in document:
            yield _operation("add", (head,), [value])
            return
        if head == "steps":
            for _ in range(len(items) - MAX_STEPS + 1):
                yield _operation("remove", (head, "0"))
        yield _operation("add", (head, "-"), value)
    elif value is REMOVED and not rest:
        yield _operation("remove", (head, str(index)))
    elif rest:
        yield from _member(items[index], (head, str(index), rest[0]), rest[0], value)
    elif not same(items[index], value):
        yield _operation("replace", (head, str(index)), value)


def _member(target: Json, path: Path, name: str, value: Any) -> Iterator[Json]:
    if value is REMOVED:
        if name in target:
            yield _operation("remove", path)
    elif name not in target:
        yield _operation("add", path, value)
    elif not same(target[name], value):
        yield _operation("replace", path, value)


def _operation(op: str, path: Path, value: Any = None) -> Json:
    made: Json = {"op": op, "path": pointer(*path)}
    if op != "remove":
        made["value"] = value
    return made


def _within(outer: Any, rest: Path, value: Any) -> Any:
    """The pending value `outer` with a change inside it."""
    if isinstance(outer, list):  # a whole plan: its entry by id
        item_id, *deeper = rest
        items = [item for item in outer if item.get("id") != item_id or value is not REMOVED or deeper]
        for at, item in enumerate(items):
            if item.get("id") == item_id:
                items[at] = _within(item, tuple(deeper), value) if deeper else value
                return items
        return items if value is REMOVED or deeper else [*items, value]
    if value is REMOVED and not isinstance(outer, dict):
        return outer
    members = dict(outer) if isinstance(outer, dict) else {}
    if len(rest) > 1 and (value is not REMOVED or rest[0] in members):
        members[rest[0]] = _within(members.get(rest[0]), rest[1:], value)
    elif value is REMOVED:
        members.pop(rest[0], None)
    else:
        members[rest[0]] = value
    return members


def _nested(rest: Path, value: Any) -> Any:
    for part in reversed(rest):
        value = {part: value}
    return value


def path_of(pointed: str) -> Path:
    """A JSON pointer as a path; () where it is none."""
    return tuple(parts_of(pointed) or ())
