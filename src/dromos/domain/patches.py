"""Patches of a run's document: the part of RFC 6902 that is taken, applied in place and as a whole or not at all.

`apply` changes any JSON document and undoes itself where an operation does not fit; `check` holds a patch against the
rules of `run_document.v1` and lists every fault; `coalesce` makes a shorter patch with the same result. A document is
never copied, what a patch brings is: operations that were applied stay as they were sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import orjson

from dromos.domain import document
from dromos.domain.coalescing import coalesce
from dromos.domain.errors import Fault
from dromos.domain.forms import Group
from dromos.domain.limits import MAX_DEPTH, TOO_LARGE, VIOLATION
from dromos.domain.pointers import copied, index_of, parts_of, pointer, same
from dromos.domain.text import clean_json, clean_text

__all__ = [
    "FORBIDDEN_OP",
    "FORBIDDEN_PATH",
    "INVALID",
    "NotApplied",
    "apply",
    "change",
    "check",
    "coalesce",
    "undo",
]

Operation = Mapping[str, Any]
"""`{"op", "path", "value"}`; `remove` has no value."""
Undo = list[tuple[Any, Any, Any]]

FORBIDDEN_PATH = "patch_path_forbidden"
FORBIDDEN_OP = "patch_op_forbidden"
INVALID = "patch_invalid"

_GONE = object()


class NotApplied(ValueError):
    """An operation does not fit the document, which is as it was. `index` counts from 0."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"operation {index + 1}: {why}")
        self.index, self.why = index, why


# ── applying ──────────────────────────────────────────────────────────────────────────────────────────────────


def apply(target: Any, operations: Sequence[Operation]) -> Undo:
    """Apply all operations in place; returns what `undo` needs. Raises `NotApplied`, then nothing was changed."""
    done: Undo = []
    for index, operation in enumerate(operations):
        why = _apply_one(target, operation, done)
        if why is not None:
            undo(done)
            raise NotApplied(index, why)
    return done


def undo(done: Undo) -> None:
    """Take back what `apply` did, while nothing else has changed the document."""
    for container, key, before in reversed(done):
        if before is _GONE:
            del container[key]
        elif isinstance(before, _Removed):
            container.insert(key, before.value)
        else:
            container[key] = before
    done.clear()


class _Removed:
    """What stood in a list."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _apply_one(target: Any, operation: Operation, done: Undo) -> str | None:
    """None where it was applied, else why not."""
    kind = operation["op"]
    if kind not in document.OPERATIONS or ("value" not in operation and kind != "remove"):
        return "it is not whole, or another operation than those that are taken"
    parts = parts_of(operation["path"])
    if not parts:
        return "the path has to name something inside the document"
    *way, last = parts
    for part in way:
        try:
            if isinstance(target, list):
                index = index_of(part)
                target = None if index is None else target[index]
            else:
                target = target[part]
        except (KeyError, IndexError, TypeError):
            return f"there is no {pointer(part)} on the way to it"
    if isinstance(target, dict):
        return _in_object(target, last, kind, operation, done)
    if isinstance(target, list):
        return _in_list(target, last, kind, operation, done)
    return "what it stands in is neither an object nor a list"


def _in_object(
    target: MutableMapping[str, Any], key: str, kind: str, operation: Operation, done: Undo
) -> str | None:
    # Values are copied: a later operation may change them in the document, and this one must stay what it was.
    before = target.get(key, _GONE)
    if before is _GONE and kind != "add":
        return "nothing is there"
    if kind == "test":
        return None if same(before, operation["value"]) else "another value is there"
    done.append((target, key, before))
    if kind == "remove":
        del target[key]
    else:
        target[key] = copied(operation["value"])
    return None


def _in_list(target: list[Any], part: str, kind: str, operation: Operation, done: Undo) -> str | None:
    index = len(target) if part == "-" and kind == "add" else index_of(part)
    if index is None:
        return "a place in a list is a number counted from 0; `-`, for its end, goes with `add` only"
    if index > len(target) - (kind != "add"):
        return f"the list has {len(target)} items, counted from 0"
    if kind == "test":
        return None if same(target[index], operation["value"]) else "another value is there"
    if kind == "add":
        done.append((target, index, _GONE))
        target.insert(index, copied(operation["value"]))
    elif kind == "remove":
        done.append((target, index, _Removed(target[index])))
        del target[index]
    else:
        done.append((target, index, target[index]))
        target[index] = copied(operation["value"])
    return None


# ── checking ──────────────────────────────────────────────────────────────────────────────────────────────────


def check(content: dict[str, Any], patch: Any) -> list[Fault]:
    """Every fault of a patch on this content part (whole, see `document.filled`); `[]` where it may be applied.

    The content stays as it is.
    """
    done: Undo = []
    _, faults = _carry_out(content, patch, done)
    undo(done)
    return faults


def change(content: dict[str, Any], patch: Any) -> tuple[list[Operation], list[Fault]]:
    """Apply a patch in place if it has no fault. Returns the cleaned operations, or nothing and every fault."""
    done: Undo = []
    operations, faults = _carry_out(content, patch, done)
    if faults:
        undo(done)
        return [], faults
    return operations, []


def size_of(content: Mapping[str, Any]) -> int:
    """Bytes of a content part as JSON, without the text."""
    return len(orjson.dumps({name: value for name, value in content.items() if name != "text"}))


def _carry_out(content: dict[str, Any], patch: Any, done: Undo) -> tuple[list[Operation], list[Fault]]:
    if not isinstance(patch, list):
        return [], [Fault(INVALID, "", "a patch is a list of operations; send a list")]
    if len(patch) > document.MAX_OPERATIONS:
        most = f"a patch has at most {document.MAX_OPERATIONS} operations"
        return [], [Fault(TOO_LARGE, "", f"{most}; this one has {len(patch)}: send several patches")]
    faults: list[Fault] = []
    operations: list[Operation] = []
    broken: list[str] = []
    for index, raw in enumerate(patch):
        operation, wrong = _read(raw, index)
        if operation is not None and not wrong:
            wrong = [*_against_form(operation)]
            # What an operation with a fault should have brought is not missed once more.
            if not wrong and not any((operation["path"] + "/").startswith(path + "/") for path in broken):
                wrong = _against_content(content, operation, done)
                operations.append(operation)
        if wrong and operation is not None and operation["path"]:
            broken.append(operation["path"])
        faults += _numbered(wrong, index)
    faults += _of_the_whole(content, patch)
    return operations, faults


def _numbered(faults: Sequence[Fault], index: int) -> Iterator[Fault]:
    for fault in faults:
        yield Fault(fault.code, fault.path, f"operation {index + 1}: {fault.message}")


def _read(raw: Any, index: int) -> tuple[Operation | None, list[Fault]]:
    """A cleaned operation, and what is wrong with its form."""
    place = f"/patch/{index}"
    if not isinstance(raw, Mapping):
        return None, [Fault(INVALID, place, "an operation is an object with `op`, `path` and `value`")]
    path, kind = raw.get("path"), raw.get("op")
    if not isinstance(path, str) or parts_of(path) is None:
        cure = "`path` has to be a JSON pointer such as /plan/0/status; `/` is written ~1, `~` is written ~0"
        return None, [Fault(INVALID, place, cure)]
    path = clean_text(path)
    operation = {"op": kind, "path": path}
    if kind not in document.OPERATIONS:
        if not isinstance(kind, str):
            return None, [Fault(INVALID, path or place, "`op` is missing; it is one of " + _OPS)]
        return operation, [
            Fault(FORBIDDEN_OP, path or place, f"`{clean_text(kind)[:50]}` is not taken; use one of {_OPS}")
        ]
    if kind != "remove":
        if "value" not in raw:
            return operation, [Fault(INVALID, path, f"`{kind}` needs a `value`; null is one")]
        operation["value"], not_finite = clean_json(raw["value"])
        if not_finite:
            return operation, [Fault(VIOLATION, path, "NaN and infinities are not JSON; send null")]
    return operation, []


_OPS = ", ".join(document.OPERATIONS)


def _against_form(operation: Operation) -> Iterator[Fault]:
    """Whether a patch may go there at all, and whether the value fits the place."""
    path, kind = operation["path"], operation["op"]
    parts = parts_of(path) or []
    form = document.form_at(parts) if parts else None
    if form is None:
        yield Fault(FORBIDDEN_PATH, path, _why_forbidden(parts))
        return
    if len(parts) >= MAX_DEPTH:
        yield Fault(TOO_LARGE, path, f"a document has at most {MAX_DEPTH} levels; flatten it")
        return
    if kind in ("add", "replace"):
        yield from form.faults(operation["value"], path, len(parts) + 1)
    elif kind == "remove":
        above = document.form_at(parts[:-1])
        if isinstance(above, Group) and parts[-1] not in above.optional:
            yield Fault(VIOLATION, path, "this member always stands there; replace its value instead")


def _why_forbidden(parts: Sequence[str]) -> str:
    if not parts:
        return "a patch may not replace the whole document; name the parts that change"
    name = parts[0]
    if name in document.SERVER.members:
        return "the server alone writes this; leave it out"
    if name == "text":
        return "text is not patched; send it beside the patch as `text` with message_id, offset and append"
    if name in document.CONTENT.members:
        return f"nothing may stand there; see {pointer(name)} in the schema"
    return "no such part; a patch may touch " + ", ".join(f"/{name}" for name in document.CONTENT.members)


def _against_content(content: dict[str, Any], operation: Operation, done: Undo) -> list[Fault]:
    """Apply it; the document as it is now may not take it."""
    why = _apply_one(content, operation, done)
    if why is None:
        return []
    return [Fault(INVALID, operation["path"], f"{why}; read the document and make the patch anew")]


def _of_the_whole(content: Mapping[str, Any], operations: Sequence[Any]) -> Iterator[Fault]:
    """Limits that only the whole can break."""
    try:
        size = len(orjson.dumps(operations))
    except (TypeError, orjson.JSONEncodeError):
        size = 0  # told as a fault of its operation
    if size > document.MAX_PATCH:
        yield Fault(
            TOO_LARGE,
            "",
            f"a patch has at most {document.MAX_PATCH} bytes; this one has {size}: send several",
        )
    for name, form in document.CONTENT.members.items():
        most = getattr(form, "most", None)
        if most is not None and len(content.get(name, ())) > most:
            cure = f"the newest {most} stand here; remove {pointer(name, 0)} in the same patch"
            yield Fault(VIOLATION, pointer(name), cure)
    size = size_of(content)
    if size > document.MAX_CONTENT:
        cure = f"the content part would have {size} bytes; at most {document.MAX_CONTENT} are kept: remove or shorten"
        yield Fault(TOO_LARGE, "", cure)
