"""A reader's picture of a run: frames in, the same text and document out, or a wish to read again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dromos.client import Event, RunView
from dromos.domain.text import utf16_length

RUN: dict[str, Any] = {"id": "r", "status": "running", "version": 2}


def text(message: str, offset: int, added: str) -> Event:
    return Event("run.text", {"run_id": "r", "message_id": message, "offset": offset, "text": added})


def document(version: int, run_version: int = 2, **content: Any) -> Event:
    body = {"run_version": run_version, "text": {"message_id": None, "length": 0, "content": ""}, **content}
    return Event(
        "run.document", {"run_id": "r", "version": version, "run_version": run_version, "document": body}
    )


def patch(base: int, version: int, *operations: dict[str, Any]) -> Event:
    data = {"run_id": "r", "base_version": base, "version": version, "patch": list(operations)}
    return Event("run.patch", data)


@given(st.lists(st.text(), min_size=1), st.data())
def test_text_arrives_once_whatever_is_sent_twice(pieces: list[str], data: st.DataObject) -> None:
    view, whole = RunView(RUN), ""
    for piece in pieces:
        again = data.draw(st.integers(0, len(whole)), label="characters sent again")
        start = whole[: len(whole) - again]
        view.take(text("m", utf16_length(start), whole[len(start) :] + piece))
        whole += piece
    assert view.text == whole
    assert not view.stale


def test_a_hole_in_the_text_asks_for_the_document() -> None:
    view = RunView(RUN)
    assert view.take(text("m", 0, "one "))
    assert not view.take(text("m", 9, "three"))
    assert (view.text, view.stale) == ("one ", True)
    view.take(document(5, text={"message_id": "m", "length": 14, "content": "one two three "}))
    assert (view.text, view.stale) == ("one two three ", False)
    assert view.take(text("m", 14, "four"))
    assert view.text == "one two three four"


def test_a_snapshot_never_takes_text_back() -> None:
    view = RunView(RUN)
    view.take(text("m", 0, "one two"))
    view.take(document(5, text={"message_id": "m", "length": 3, "content": "one"}))
    assert view.text == "one two"


def test_a_new_message_replaces_the_text() -> None:
    view = RunView(RUN)
    view.take(text("m", 0, "thinking"))
    view.take(text("n", 0, "an"))
    view.take(text("n", 2, "swer"))
    assert (view.message_id, view.text) == ("n", "answer")
    assert not view.take(text("o", 3, "late"))
    assert view.stale


def test_patches_apply_on_their_version_and_no_other() -> None:
    view = RunView(RUN)
    view.take(document(7, steps=[], context={"percent": None}))
    step = {"id": "s", "status": "running"}
    assert view.take(patch(7, 8, {"op": "add", "path": "/steps/-", "value": step}))
    assert view.take(patch(8, 9, {"op": "replace", "path": "/context/percent", "value": 9.5}))
    assert not view.take(patch(7, 8, {"op": "remove", "path": "/steps"})), "older than what is here"
    assert (view.document["steps"], view.document["context"], view.version) == ([step], {"percent": 9.5}, 9)
    assert not view.take(patch(10, 11, {"op": "remove", "path": "/steps/0"}))
    assert view.stale


def test_a_patch_that_does_not_fit_asks_for_the_document() -> None:
    for operation in (
        {"op": "remove", "path": "/nothing"},
        {"op": "replace", "path": "/steps/4", "value": 1},
        {"op": "test", "path": "/steps", "value": [1]},
        {"op": "move", "path": "/steps", "from": "/x"},
    ):
        view = RunView(RUN)
        view.take(document(7, steps=[]))
        assert not view.take(patch(7, 8, operation))
        assert view.stale


def test_an_older_run_or_server_part_changes_nothing() -> None:
    view = RunView(RUN)
    newer = {
        "run": {**RUN, "status": "completed", "version": 4},
        "document": {"run_version": 4, "status": "completed"},
    }
    assert view.take(Event("run.status", {"payload": newer}, 9))
    assert view.ended
    older = {"run": {**RUN, "version": 3}, "document": {"run_version": 3, "status": "running"}}
    assert not view.take(Event("run.status", {"payload": older}, 8))
    view.take(document(1, run_version=3, status="running"))
    assert (view.run["status"], view.document["status"]) == ("completed", "completed")


def test_at_an_end_without_a_line_of_its_owner_the_line_is_the_run_s_as_in_a_fresh_read() -> None:
    view = RunView(RUN)
    view.take(document(7, line="looking"))
    ended = {"run": {**RUN, "status": "completed", "version": 3, "line": "Seven."}, "document": {}}
    view.take(Event("run.status", {"payload": ended}, 9))
    assert view.document["line"] == "looking"
    view.take(patch(7, 8, {"op": "replace", "path": "/line", "value": None}))
    assert view.document["line"] == "Seven."
    late = RunView(RUN)
    late.take(document(7, line=None))
    late.take(Event("run.status", {"payload": ended}, 9))
    assert late.document["line"] == "Seven."


def test_another_run_s_frames_are_left_alone() -> None:
    view = RunView(RUN)
    assert not view.take(Event("run.text", {"run_id": "x", "message_id": "m", "offset": 0, "text": "a"}))
    assert not view.take(Event("run.status", {"payload": {"run": {**RUN, "id": "x"}}}, 1))
    assert not view.take(Event("hello", {"seq": 1}))
    assert (view.text, view.stale) == ("", False)


def text_of(view: RunView) -> Any:
    return view.document["text"]


def test_frames_that_arrive_while_the_document_is_fetched_are_not_missed_afterwards() -> None:
    view = RunView(RUN)
    view.take(document(7, line=None))
    assert not view.take(patch(8, 9, {"op": "replace", "path": "/line", "value": "nine"}))
    assert view.stale
    assert not view.take(patch(9, 10, {"op": "replace", "path": "/line", "value": "ten"}))
    assert not view.take(text("m", 0, "words"))
    view.take(document(9, line="nine"))
    assert (view.stale, view.version, view.document["line"]) == (False, 10, "ten")
    assert text_of(view) == {"message_id": "m", "length": 5, "content": "words"}
    assert view.take(patch(10, 11, {"op": "remove", "path": "/line"}))


def test_a_second_gap_in_what_was_kept_asks_once_more() -> None:
    view = RunView(RUN)
    view.take(document(7, line=None))
    view.take(patch(8, 9, {"op": "replace", "path": "/line", "value": "nine"}))
    view.take(patch(11, 12, {"op": "replace", "path": "/line", "value": "twelve"}))
    view.take(document(9, line="nine"))
    assert view.stale
    view.take(document(11, line="eleven"))
    assert (view.stale, view.version, view.document["line"]) == (False, 12, "twelve")


def test_kept_text_of_a_message_that_the_document_left_behind_is_passed_over() -> None:
    view = RunView(RUN)
    view.take(document(7))
    view.take(text("m", 5, "lost its beginning"))
    for frame in (text("n", 0, "an"), text("n", 2, "swer")):
        view.take(frame)
    view.take(document(7, text={"message_id": "n", "length": 2, "content": "an"}))
    assert (view.message_id, view.text, view.stale) == ("n", "answer", False)


def test_the_document_shows_the_text_so_far() -> None:
    view = RunView(RUN)
    view.take(document(7, text={"message_id": "m", "length": 2, "content": "on"}))
    view.take(text("m", 2, "e 😀"))
    assert text_of(view) == {"message_id": "m", "length": 6, "content": "one 😀"}
    view.take(document(8, text={"message_id": "m", "length": 2, "content": "on"}))
    assert text_of(view)["content"] == "one 😀"


def test_server_fields_without_a_run_version_belong_to_the_one_that_is_known() -> None:
    view = RunView(RUN)
    view.take(document(7, run_version=3))
    assert view.take(Event("run.server", {"run_id": "r", "cost": {"amount": "0.01"}}))
    assert view.document["cost"] == {"amount": "0.01"}
    assert not view.take(Event("run.server", {"run_id": "r", "run_version": 2, "cost": None}))


def test_an_answer_older_than_what_is_here_is_not_asked_for_again_at_once() -> None:
    view = RunView(RUN)
    view.take(document(10))
    view.take(patch(11, 12, {"op": "replace", "path": "/line", "value": "twelve"}))
    view.take(document(9))
    assert (view.stale, view.version) == (False, 10)
    assert not view.take(patch(12, 13, {"op": "add", "path": "/line", "value": "thirteen"}))
    assert view.stale
    view.take(document(11, line="eleven"))
    assert (view.stale, view.version, view.document["line"]) == (False, 13, "thirteen")
