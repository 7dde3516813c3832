"""Changes of a box become patches that fit whatever document the server has by now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dromos.client.adapter.edits import MOST_BYTES, REMOVED, Edits, Path, patch_for
from dromos.client.run_view import RunView
from dromos.client.stream import Event
from dromos.domain.document import EMPTY_CONTENT, MAX_OPERATIONS, MAX_STEPS

Json = dict[str, Any]
PLAN = [{"id": "1", "title": "a", "status": "done"}, {"id": "2", "title": "b", "status": "pending"}]


def edits_of(*changes: tuple[Path, Any]) -> Edits:
    edits = Edits()
    for path, value in changes:
        edits.put(path, value)
    return edits


def operations(known: Mapping[str, Any], *changes: tuple[Path, Any]) -> list[Json]:
    return patch_for(known, edits_of(*changes)).operations


def as_read(known: Mapping[str, Any], patch: list[Json]) -> Json:
    """The document as a reader of the stream gets it, by the reader's own code."""
    view = RunView({"id": "r", "status": "running", "version": 1})
    view.take_document({"version": 1, "run_version": 1, "document": json.loads(json.dumps(known))})
    if patch:
        frame = {"run_id": "r", "base_version": 1, "version": 2, "patch": patch}
        assert view.take(Event("run.patch", frame)), f"{patch} does not fit {known}"
    return view.document


def test_the_last_value_of_a_path_wins_and_what_is_so_already_is_not_sent() -> None:
    assert operations({"line": "x", "model": "m"}, (("line",), "a"), (("line",), "b"), (("model",), "m")) == [
        {"op": "replace", "path": "/line", "value": "b"}
    ]


def test_an_entry_is_found_by_its_id_wherever_it_stands_now() -> None:
    change = (("plan", "2", "status"), "done")
    for plan, path in ((PLAN, "/plan/1/status"), (PLAN[::-1], "/plan/0/status")):
        assert operations({"plan": plan}, change) == [{"op": "replace", "path": path, "value": "done"}]


def test_an_entry_that_somebody_took_away_stays_gone() -> None:
    assert operations({"plan": PLAN[:1]}, (("plan", "2", "status"), "done"), (("plan", "2"), REMOVED)) == []


def test_a_change_inside_of_a_change_that_was_not_sent_yet_becomes_part_of_it() -> None:
    edits = edits_of((("plan",), PLAN), (("plan", "2", "status"), "active"), (("plan", "3"), {"id": "3"}))
    assert list(edits) == [(("plan",), [PLAN[0], {**PLAN[1], "status": "active"}, {"id": "3"}])]
    edits.put(("plan", "1"), REMOVED)
    assert [item["id"] for item in next(iter(edits))[1]] == ["2", "3"]
    edits = edits_of((("subagents", "a"), {"title": "A"}), (("subagents", "a", "status"), "running"))
    assert list(edits) == [(("subagents", "a"), {"title": "A", "status": "running"})]


def test_a_missing_parent_is_made() -> None:
    assert operations({"subagents": {}}, (("subagents", "a", "status"), "running")) == [
        {"op": "add", "path": "/subagents/a", "value": {"status": "running"}}
    ]
    assert operations({"current": None}, (("current", "progress"), {"value": 1})) == [
        {"op": "replace", "path": "/current", "value": {"progress": {"value": 1}}}
    ]


def test_names_with_slashes_and_tildes_are_one_step_of_the_path() -> None:
    assert operations({"background": {}}, (("background", "a/b~c"), {})) == [
        {"op": "add", "path": "/background/a~1b~0c", "value": {}}
    ]


def test_only_the_newest_steps_are_kept() -> None:
    steps = [{"id": str(number)} for number in range(MAX_STEPS)]
    document = patch_for({"steps": steps}, edits_of((("steps", "new"), {"id": "new"}))).document
    assert [step["id"] for step in document["steps"]] == [*map(str, range(1, MAX_STEPS)), "new"]


def test_a_patch_that_would_be_too_large_is_cut_between_changes() -> None:
    changes = [(("background", str(number)), {"title": "t"}) for number in range(MAX_OPERATIONS + 5)]
    patch = patch_for({"background": {}}, edits_of(*changes))
    assert len(patch.operations) == MAX_OPERATIONS
    assert [path for path, _ in patch.left] == [path for path, _ in changes[MAX_OPERATIONS:]]
    large = [(("background", str(number)), {"title": "x" * 20_000}) for number in range(5)]
    patch = patch_for({"background": {}}, edits_of(*large))
    assert len(json.dumps(patch.operations)) <= MOST_BYTES + 100
    assert [path for path, _ in patch.left] == [path for path, _ in large[2:]]


def test_what_did_not_get_through_comes_back_beneath_what_is_newer() -> None:
    edits = edits_of((("line",), "old"), (("plan",), PLAN))
    taken = edits.take()
    assert not edits
    edits.put(("line",), "new")
    edits.put(("plan", "1", "status"), "skipped")
    edits.put_back(taken)
    assert dict(edits) == {("line",): "new", ("plan",): [{**PLAN[0], "status": "skipped"}, PLAN[1]]}


def test_a_refused_change_is_dropped_with_what_surrounds_it() -> None:
    edits = edits_of((("plan",), PLAN), (("line",), "l"), (("subagents", "a", "title"), "t"))
    assert edits.drop(("plan", "0", "status"))
    assert edits.drop(("subagents",))
    assert not edits.drop(("model",))
    assert [path for path, _ in edits] == [("line",)]


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~🌊", max_size=3)
NAMES = st.text("ab/~", min_size=1, max_size=2)
ITEMS = st.sampled_from(["1", "2", "3", "4"])
PATHS = st.one_of(
    st.sampled_from([("line",), ("model",), ("current",), ("current", "progress"), ("usage", "input")]),
    st.tuples(st.sampled_from(["subagents", "background"]), NAMES),
    st.tuples(st.sampled_from(["subagents", "background"]), NAMES, st.sampled_from(["title", "status"])),
)
VALUES = SCALARS | st.dictionaries(NAMES, SCALARS, max_size=2)
LISTED = st.one_of(
    st.tuples(st.just("plan"), ITEMS, st.just("status")).flatmap(
        lambda path: st.tuples(st.just(path), st.text("xy", max_size=1))
    ),
    st.tuples(st.just("steps"), ITEMS).flatmap(
        lambda path: st.tuples(st.just(path), st.just({"id": path[1], "status": "x"}) | st.just(REMOVED))
    ),
    st.lists(ITEMS, unique=True).map(lambda ids: (("plan",), [{"id": one, "status": ""} for one in ids])),
)
CHANGES = st.lists(st.tuples(PATHS, VALUES | st.just(REMOVED)) | LISTED, max_size=12)


@given(CHANGES, CHANGES)
def test_every_patch_fits_and_leads_where_it_says(before: list[Any], changes: list[Any]) -> None:
    known = patch_for(EMPTY_CONTENT, edits_of(*before)).document
    patch = patch_for(known, edits_of(*changes))
    assert not patch.left
    assert as_read(known, patch.operations) == patch.document
    assert patch_for(patch.document, edits_of(*changes)).operations == [], (
        "a second time nothing is left to do"
    )


@given(CHANGES, CHANGES, CHANGES)
def test_changes_lead_to_the_same_document_in_one_patch_or_in_two(
    before: list[Any], first: list[Any], second: list[Any]
) -> None:
    """A patch whose answer was lost, whether it was taken or not, changes nothing about where the box arrives."""
    known = patch_for(EMPTY_CONTENT, edits_of(*before)).document
    halfway = patch_for(known, edits_of(*first)).document
    both = edits_of(*second)
    both.put_back(edits_of(*first))
    assert patch_for(halfway, edits_of(*second)).document == patch_for(halfway, both).document
