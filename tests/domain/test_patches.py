"""Patches: applied whole or not at all, every fault told, made shorter without changing what they do."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dromos.domain import document, patches
from dromos.domain.pointers import index_of, parts_of, pointer, same

Json = dict[str, Any]


def op(kind: str, path: str, *value: Any) -> Json:
    return {"op": kind, "path": path, **({"value": value[0]} if value else {})}


def naive(target: Any, operation: Json) -> Any:
    """RFC 6902 word by word on a copy, to hold the real one against."""
    result = copy.deepcopy(target)
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    node = result
    for part in way:
        node = node[int(part)] if isinstance(node, list) else node[part]
    kind, value = operation["op"], copy.deepcopy(operation.get("value"))
    if isinstance(node, list):
        index = len(node) if last == "-" else int(last)
        if kind == "add":
            node.insert(index, value)
        elif kind == "remove":
            del node[index]
        elif kind == "replace":
            node[index] = value
    elif kind == "remove":
        del node[last]
    elif kind in ("add", "replace"):
        node[last] = value
    return result


# Names that look like places in a list, need escaping, or are traps in other languages.
KEYS = st.sampled_from(["a", "b", "1", "0", "x/y", "~", "__proto__"])
VALUES = st.recursive(
    st.sampled_from([0, 1, 2.5, "t", "", None, True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def documents_and_operations(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    """A document and operations that fit it one after the other."""
    start = draw(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
    now, operations = start, []
    for _ in range(draw(st.integers(1, 12))):
        path: list[str] = []
        node: Any = now
        while True:
            inner = (
                [key for key in node if isinstance(node[key], dict | list)]
                if isinstance(node, dict)
                else [index for index, item in enumerate(node) if isinstance(item, dict | list)]
            )
            if not inner or draw(st.booleans()):
                break
            key = draw(st.sampled_from(inner))
            path.append(str(key))
            node = node[key]
        if isinstance(node, dict):
            name = draw(KEYS)
            kinds = ["add", "replace", "remove", "test"] if name in node else ["add"]
            kind = draw(st.sampled_from(kinds))
        else:
            kind = draw(st.sampled_from(["add", "replace", "remove"] if node else ["add"]))
            places = [str(index) for index in range(len(node) + (kind == "add"))]
            name = draw(st.sampled_from([*places, "-"] if kind == "add" else places))
        operation = op(kind, pointer(*path, name))
        if kind == "test":
            operation["value"] = copy.deepcopy(node[name])
        elif kind != "remove":
            operation["value"] = draw(VALUES)
        operations.append(operation)
        now = naive(now, operation)
    return start, operations


@given(documents_and_operations())
def test_a_patch_does_what_the_standard_says(case: tuple[Json, list[Json]]) -> None:
    start, operations = case
    wanted = start
    for operation in operations:
        wanted = naive(wanted, operation)
    changed, sent = copy.deepcopy(start), copy.deepcopy(operations)
    patches.apply(changed, operations)
    assert same(changed, wanted)
    assert operations == sent, "what is applied stays as it was sent"


@given(documents_and_operations())
def test_an_applied_patch_can_be_taken_back(case: tuple[Json, list[Json]]) -> None:
    start, operations = case
    changed = copy.deepcopy(start)
    patches.undo(patches.apply(changed, operations))
    assert same(changed, start)


@given(documents_and_operations())
def test_a_patch_applies_whole_or_not_at_all(case: tuple[Json, list[Json]]) -> None:
    start, operations = case
    changed = copy.deepcopy(start)
    with pytest.raises(patches.NotApplied) as refused:
        patches.apply(changed, [*operations, op("replace", "/nowhere/at/all", 1)])
    assert refused.value.index == len(operations)
    assert same(changed, start)


@settings(max_examples=150)
@given(documents_and_operations())
def test_a_coalesced_patch_gives_the_same_document(case: tuple[Json, list[Json]]) -> None:
    start, operations = case
    wanted = start
    for operation in operations:
        wanted = naive(wanted, operation)
    sent = copy.deepcopy(operations)
    short = patches.coalesce(operations)
    assert operations == sent
    assert len(short) <= len(operations)
    changed = copy.deepcopy(start)
    patches.apply(changed, short)
    assert same(changed, wanted)


def test_the_last_value_of_a_path_wins_and_what_lies_below_goes_into_it() -> None:
    step = {"id": "s", "status": "running"}
    assert patches.coalesce(
        [
            op("add", "/model", "a"),
            op("replace", "/usage/input", 1),
            op("add", "/steps/3", step),
            op("add", "/model", "b"),
            op("replace", "/usage/input", 2),
            op("replace", "/steps/3/status", "done"),
            op("add", "/background/j", {"title": "old"}),
            op("remove", "/background/j"),
        ]
    ) == [
        op("add", "/model", "b"),
        op("replace", "/usage/input", 2),
        op("add", "/steps/3", {"id": "s", "status": "done"}),
        op("add", "/background/j", None),
        op("remove", "/background/j"),
    ]
    assert step == {"id": "s", "status": "running"}


def test_a_thousand_changes_of_few_paths_become_a_short_patch() -> None:
    many = [op("add", f"/usage/{name}", number) for number in range(500) for name in ("input", "output")]
    assert patches.coalesce(many) == [op("add", "/usage/input", 499), op("add", "/usage/output", 499)]


def test_pointers_are_read_as_the_standard_says() -> None:
    assert parts_of("/a~1b/m~0n/~01/") == ["a/b", "m~n", "~1", ""]
    assert parts_of("") == []
    assert [parts_of(bad) for bad in ("a", "/~2", "/~")] == [None] * 3
    assert pointer("a/b", "m~n", 3) == "/a~1b/m~0n/3"
    assert [index_of(part) for part in ("0", "10", "-1", "01", "1.0", "٣", "-", "", "1" * 30)] == [
        *(0, 10),
        *[None] * 7,
    ]


def test_true_is_not_one_and_the_order_of_members_does_not_count() -> None:
    assert not same(True, 1)
    assert not same([0], [False])
    assert same(1, 1.0)
    assert same({"a": [1], "b": None}, {"b": None, "a": [1.0]})
    assert not same({"a": None}, {})


# --- against the rules of the document

STEP = {"id": "s1", "kind": "tool", "name": "fetch", "status": "running"}


def content() -> Json:
    return document.empty_content()


def codes(patch: Any, on: Json | None = None) -> list[tuple[str, str]]:
    return [(fault.code, fault.path) for fault in patches.check(on or content(), patch)]


def test_a_patch_of_everything_the_box_shows_is_taken() -> None:
    now = "2026-11-29T13:46:04.123456Z"
    patch = [
        op("add", "/model", "ollama:qwen3"),
        op("replace", "/activity_at", now),
        op("replace", "/stall", {"since": now, "kind": "model"}),
        op("replace", "/context", {"used": 3120, "limit": 32768, "percent": 9.5}),
        op("replace", "/usage/input", 12),
        op("replace", "/current", {"kind": "tool", "name": "fetch", "since": now}),
        op("add", "/current/progress", {"value": 3, "total": 10, "message": "page 3"}),
        op("add", "/plan/-", {"id": "1", "title": "look", "status": "active"}),
        op("replace", "/plan/0/status", "done"),
        op("add", "/steps/-", STEP),
        op("test", "/steps/0/status", "running"),
        op("add", "/steps/0/ms", 812),
        op("add", "/subagents/a~1b", {"title": "reader", "status": "working", "usage": {"input": 3}}),
        op("add", "/workflows/w", {"anything": [{"goes": True}]}),
        op("add", "/workflows/w/anything/0/deep", None),
        op("add", "/background/j", {"title": "index", "since": None}),
        op("remove", "/background/j"),
        op("replace", "/retries", {"count": 1, "last": {"code": "MODEL_RATE_LIMITED", "next_at": now}}),
        op("replace", "/line", "done"),
    ]
    changed = content()
    operations, faults = patches.change(changed, patch)
    assert faults == []
    assert len(operations) == len(patch)
    assert changed["steps"] == [{**STEP, "ms": 812}]
    assert changed["subagents"]["a/b"]["title"] == "reader"
    assert changed["workflows"]["w"] == {"anything": [{"goes": True, "deep": None}]}
    _validate(changed)


def test_every_fault_of_a_patch_is_listed_with_its_cure_and_nothing_is_changed() -> None:
    patch = [
        op("replace", "/status", "completed"),
        op("add", "/nonsense", 1),
        op("replace", "/text/content", "x"),
        op("move", "/model"),
        op("replace", "/plan/0/status", "done"),
        op("replace", "/model", 7),
        op("replace", "/current", {"kind": "magic", "extra": 1}),
        {"op": "add", "path": "/line"},
        op("test", "/retries/count", 7),
        op("remove", "/usage"),
        op("add", "", {}),
        op("add", "/line", "fine"),
        "no operation",
        {"op": "add", "value": 1},
        op("add", "/steps/01", STEP),
        {"path": "/line"},
    ]
    before = content()
    now = copy.deepcopy(before)
    faults = patches.check(now, patch)
    assert [(fault.code, fault.path) for fault in faults] == [
        ("patch_path_forbidden", "/status"),
        ("patch_path_forbidden", "/nonsense"),
        ("patch_path_forbidden", "/text/content"),
        ("patch_op_forbidden", "/model"),
        ("patch_invalid", "/plan/0/status"),
        ("schema_violation", "/model"),
        ("schema_violation", "/current/kind"),
        ("schema_violation", "/current/name"),
        ("schema_violation", "/current/extra"),
        ("patch_invalid", "/line"),
        ("patch_invalid", "/retries/count"),
        ("schema_violation", "/usage"),
        ("patch_path_forbidden", ""),
        ("patch_invalid", "/patch/12"),
        ("patch_invalid", "/patch/13"),
        ("patch_invalid", "/steps/01"),
        ("patch_invalid", "/line"),
    ]
    assert all(fault.message for fault in faults)
    assert "the server alone writes this" in faults[0].message
    assert "operation 1:" in faults[0].message
    assert same(now, before)


def test_what_a_faulty_operation_should_have_brought_is_not_missed_again() -> None:
    patch = [
        op("add", "/subagents/a", {"title": 1}),
        op("add", "/subagents/a/status", "late"),
        op("add", "/subagents/a/current", 2),
    ]
    assert codes(patch) == [
        ("schema_violation", "/subagents/a/title"),
        ("schema_violation", "/subagents/a/current"),
    ]


@pytest.mark.parametrize("bad", [None, {}, "x", 3, True])
def test_what_is_no_list_is_no_patch(bad: Any) -> None:
    assert codes(bad) == [("patch_invalid", "")]


@pytest.mark.parametrize("path", ["model", "/a~2", "~", 3, None, ["/model"]])
def test_what_is_no_pointer_is_told_by_its_place(path: Any) -> None:
    assert codes([{"op": "add", "path": path, "value": 1}]) == [("patch_invalid", "/patch/0")]


def test_limits_of_size_count_depth_and_length_are_held() -> None:
    assert codes([op("add", "/line", "x")] * 201) == [("document_too_large", "")]
    assert codes([op("add", "/line", "x")] * 200) == []
    assert codes([op("add", "/line", "x" * 8193)]) == [("document_too_large", "/line")]
    assert codes([op("add", "/line", "é" * 4097)]) == [("document_too_large", "/line")]
    assert codes([op("add", "/line", "é" * 4096)]) == []
    wide = [op("add", f"/workflows/{number}", {"x": "y" * 8000}) for number in range(9)]
    assert codes(wide) == [("document_too_large", "")], "more than 64 KiB in one patch"
    nested: Any = 1
    for _ in range(30):
        nested = [nested]
    assert codes([op("add", "/workflows/w", {"a": nested})]) == [
        ("document_too_large", "/workflows/w/a" + "/0" * 29)
    ]
    assert codes([op("add", "/workflows/w", {"a": nested[0]})]) == []
    assert codes([op("add", "/workflows/" + "w" * 201, {})]) == [
        ("patch_path_forbidden", "/workflows/" + "w" * 201)
    ]
    for number in (2**53, -(2**53), 2**70, float("nan"), float("inf")):
        assert codes([op("add", "/workflows/w", {"n": number})])[0][0] == "schema_violation"


def test_a_document_grows_to_its_limit_and_no_further() -> None:
    full = content()
    for number in range(4):
        patch = [op("add", f"/workflows/{number}-{part}", {"x": "y" * 8000}) for part in range(8)]
        assert patches.change(full, patch)[1] == []
    text = orjson.dumps({name: full[name] for name in full if name != "text"})
    assert len(text) < document.MAX_CONTENT
    more = [op("add", "/workflows/last", {"x": "y" * 8000})]
    assert codes(more, full) == [("document_too_large", "")]
    assert codes([op("remove", "/workflows/0-0"), *more], full) == []
    full["text"] = {"message_id": "m", "length": 10**6, "content": "t" * 10**6}
    assert codes([op("add", "/line", "text does not count")], full) == []


def test_of_the_steps_the_newest_fifty_stay() -> None:
    full = content()
    full["steps"] = [{**STEP, "id": str(number)} for number in range(50)]
    assert codes([op("add", "/steps/-", STEP)], full) == [("schema_violation", "/steps")]
    assert codes([op("add", "/steps/-", STEP), op("remove", "/steps/0")], full) == []


def test_texts_are_cleaned_as_everywhere() -> None:
    changed = content()
    operations, _ = patches.change(changed, [op("add", "/line", "a\x00b\ud800c\ud83d\ude00")])
    assert changed["line"] == operations[0]["value"] == "a\ufffdb\ufffdc😀"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PATHS = st.sampled_from([path.replace("<id>", "i").replace("<n>", "0") for path, _ in document.paths()])
SOME_OPERATION = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from([*document.OPERATIONS, "move", "copy"]) | ANYTHING,
        "path": PATHS | st.text(max_size=8) | ANYTHING,
        "value": ANYTHING,
    },
)


@settings(max_examples=100)
@given(st.lists(SOME_OPERATION | ANYTHING, max_size=6) | ANYTHING)
def test_whatever_is_sent_is_refused_with_reasons_or_leaves_a_valid_document(patch: Any) -> None:
    now = content()
    operations, faults = patches.change(now, patch)
    _validate(now)
    if faults:
        assert same(now, content())
        assert all(fault.code and fault.message for fault in faults)
        assert {fault.code for fault in faults} <= {
            *("patch_path_forbidden", "patch_op_forbidden", "patch_invalid"),
            *("document_too_large", "schema_violation"),
        }
    else:
        orjson.dumps(operations)


SCHEMA = document.json_schema()
CONTENT_SCHEMA = jsonschema.Draft202012Validator(
    {
        "type": "object",
        "properties": {n: p for n, p in SCHEMA["properties"].items() if p["x-part"] == "content"},
        "additionalProperties": False,
        "required": [n for n, p in SCHEMA["properties"].items() if p["x-part"] == "content"],
    }
)


def _validate(value: Json) -> None:
    CONTENT_SCHEMA.validate(orjson.loads(orjson.dumps(value)))
