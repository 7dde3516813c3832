"""Setting a field of the box is a change of the document; what a box could not show is cut or refused at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from dromos.client.adapter import Current, Parked, Progress
from dromos.client.adapter.box import Box
from dromos.client.adapter.edits import patch_for
from dromos.client.adapter.steps import MOST_SHOWN
from dromos.domain.document import EMPTY_CONTENT

NOW = datetime(2026, 11, 29, 13, 46, 4, tzinfo=UTC)
NOW_TEXT = "2026-11-29T13:46:04.000000Z"


class Watch:
    """A stopwatch that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Bench:
    """A box, and the document that its changes lead to."""

    def __init__(self) -> None:
        self.watch, self.changes, self._ids = Watch(), 0, 0
        self.box = Box(now=lambda: NOW, monotonic=self.watch, new_id=self._new_id, on_change=self._changed)
        self.known: dict[str, Any] = dict(EMPTY_CONTENT)

    def _new_id(self) -> str:
        self._ids += 1
        return f"s{self._ids}"

    def _changed(self) -> None:
        self.changes += 1

    def document(self) -> dict[str, Any]:
        self.known = patch_for(self.known, self.box.edits.take()).document
        return self.known


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_plain_fields(bench: Bench) -> None:
    box = bench.box
    box.model, box.line = "openai:gpt-5", "working"
    box.context(500, 2000)
    box.current = Current("model", "gpt-5", progress=Progress(1, 4, "page"))
    box.progress(2, 4)
    document = bench.document()
    assert (document["model"], document["line"]) == ("openai:gpt-5", "working")
    assert (box.model, box.line) == ("openai:gpt-5", "working")
    assert document["context"] == {"used": 500, "limit": 2000, "percent": 25.0}
    assert document["current"] == {
        "kind": "model",
        "name": "gpt-5",
        "summary": None,
        "since": NOW_TEXT,
        "progress": {"value": 2, "total": 4, "message": None},
    }
    box.current = None
    box.context(500)
    document = bench.document()
    assert (document["current"], document["context"]["percent"]) == (None, None)
    assert bench.changes == 7


def test_a_plan_from_titles_and_its_entries_by_id(bench: Bench) -> None:
    box = bench.box
    box.plan = ["look", {"id": "w", "title": "write", "status": "active"}]
    box.plan_item("1", "done")
    box.plan_item("3", title="read again")
    assert bench.document()["plan"] == box.plan
    assert [(one["id"], one["title"], one["status"]) for one in box.plan] == [
        ("1", "look", "done"),
        ("w", "write", "active"),
        ("3", "read again", "pending"),
    ]
    box.remove("/plan/w")
    assert bench.document()["plan"] == box.plan
    assert [one["id"] for one in box.plan] == ["1", "3"]


def test_usage_adds_up_over_attempts(bench: Bench) -> None:
    bench.box.begin_from({"usage": {"input": 100, "output": 1}, "plan": [{"id": "1", "title": "a"}]})
    bench.box.usage(input=20, model_calls=1)
    bench.box.usage(input=3, cached=2)
    bench.box.plan_item("1", "done")
    usage = bench.document()["usage"]
    assert (usage["input"], usage["output"], usage["cached"], usage["model_calls"]) == (123, 0, 2, 1)


def test_a_step_is_shown_while_it_runs_and_reported_when_it_ends(bench: Bench) -> None:
    with bench.box.step("search", summary='{"q": 1}') as step:
        document = bench.document()
        assert document["current"]["name"] == "search"
        assert document["steps"][0]["status"] == "running"
        bench.watch.seconds += 0.25
        step.summary, step.usage = "3 hits", {"input": 5}
    document = bench.document()
    assert document["current"] is None
    shown = {"id": "s1", "kind": "tool", "name": "search", "status": "done", "summary": "3 hits"}
    assert document["steps"] == [{**shown, "started_at": NOW_TEXT, "ms": 250}]
    assert bench.box.finished_steps == [{**document["steps"][0], "usage": {"input": 5}}]


@pytest.mark.parametrize(
    ("error", "status", "summary"),
    [
        (ValueError("no such page"), "failed", "no such page"),
        (KeyError(), "failed", "KeyError"),
        (asyncio.CancelledError(), "cancelled", None),
        (Parked(), "cancelled", None),
    ],
)
def test_a_step_ends_by_how_its_block_ends(
    bench: Bench, error: BaseException, status: str, summary: str | None
) -> None:
    with pytest.raises(type(error)), bench.box.step("fetch"):
        raise error
    step = bench.document()["steps"][0]
    assert (step["status"], step["summary"]) == (status, summary)


def test_current_goes_back_to_the_step_that_still_runs_but_never_over_what_was_set(bench: Bench) -> None:
    outer = bench.box.step("outer", kind="step")
    with bench.box.step("inner"):
        assert bench.document()["current"]["name"] == "inner"
    assert bench.document()["current"]["name"] == "outer"
    bench.box.current = Current("model", "mine")
    outer.end()
    outer.end("failed")
    document = bench.document()
    assert document["current"]["name"] == "mine"
    assert [step["status"] for step in document["steps"]] == ["done", "done"]


def test_steps_that_still_run_end_with_the_run(bench: Bench) -> None:
    bench.box.step("a")
    bench.box.step("b")
    bench.box.end_steps("cancelled")
    assert {step["status"] for step in bench.document()["steps"]} == {"cancelled"}


def test_helpers_and_jobs_are_added_once_and_then_changed(bench: Bench) -> None:
    box = bench.box
    box.subagent("critic", title="Critic")
    box.workflow("w1", current="step 2")
    box.background("build")
    document = bench.document()
    assert document["subagents"] == {"critic": {"title": "Critic", "status": "running"}}
    assert document["workflows"] == {"w1": {"title": "w1", "status": "running", "current": "step 2"}}
    assert document["background"] == {"build": {"title": "build", "status": "running", "since": NOW_TEXT}}
    box.subagent("critic", status="completed", usage={"input": 3})
    box.remove("/background/build")
    document = bench.document()
    assert document["subagents"] == {
        "critic": {"title": "Critic", "status": "completed", "usage": {"input": 3}}
    }
    assert document["background"] == {}


def test_long_texts_are_cut_with_a_sign(bench: Bench) -> None:
    bench.box.line = "x" * 10_000
    line = bench.document()["line"]
    assert (len(line), line[-1]) == (MOST_SHOWN, "…")


def test_what_no_database_takes_is_replaced(bench: Bench) -> None:
    bench.box.line = "a\x00b"
    bench.box.set("/background/j", {"title": "\ud800", "load": float("nan")})
    document = bench.document()
    assert document["line"] == "a\ufffdb"
    assert document["background"]["j"] == {"title": "\ufffd", "load": None}


def test_mistakes_are_told_where_they_are_made(bench: Bench) -> None:
    box = bench.box
    with pytest.raises(ValueError, match="pending, active, done, skipped"):
        box.plan = [{"title": "a", "status": "doing"}]
    with pytest.raises(ValueError, match="give each its own"):
        box.plan = [{"id": "1", "title": "a"}, {"id": "1", "title": "b"}]
    with pytest.raises(ValueError, match="`title`"):
        box.plan_item("9", "done")
    with pytest.raises(ValueError, match="model, tool, step"):
        box.current = Current("thought", "x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"box\.current"):
        box.progress(1)
    with pytest.raises(ValueError, match="begins with `/`"):
        box.set("line", 1)
    with pytest.raises(ValueError, match="running, done"):
        box.step("a").end("over")  # type: ignore[arg-type]
    assert box.plan == []
