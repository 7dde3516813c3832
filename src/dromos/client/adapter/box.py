"""`run.box`: what the live box shows, as fields to set. Setting one is instant; the SDK sends it soon, in one patch.

    run.box.model = "openai:gpt-5"
    run.box.plan = ["look", "write"]
    run.box.plan_item("1", "done")
    with run.box.step("search", kind="tool") as step:
        step.summary = "42 hits"
    run.box.usage(input=1200, output=80, model_calls=1)

Reading a field gives what was set here. It must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from dromos.client.adapter.edits import REMOVED, Edits, Path, path_of
from dromos.client.adapter.steps import Current, Progress, Step, StepKind, StepStatus, one_of, shown
from dromos.domain.statuses import RunStatus
from dromos.domain.text import moment_text

Json = dict[str, Any]
PlanStatus = Literal["pending", "active", "done", "skipped"]
_TABLES = ("subagents", "workflows", "background")


class Box:
    """Changes go into `edits`, steps that ended also into `finished_steps`; `on_change()` is called after each.

    `now` is the server's clock, `monotonic` this side's stopwatch in seconds.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        new_id: Callable[[], str],
        on_change: Callable[[], None],
    ) -> None:
        self.edits = Edits()
        self.finished_steps: list[Json] = []
        self._now, self._monotonic, self._new_id, self._on_change = now, monotonic, new_id, on_change
        self._model: str | None = None
        self._current: Current | None = None
        self._current_step: Step | None = None
        self._line: str | None = None
        self._plan: dict[str, Json] = {}
        self._usage: dict[str, int] = {}
        self._running: list[Step] = []
        self._entries: dict[str, set[str]] = {table: set() for table in _TABLES}

    def begin_from(self, content: Mapping[str, Any]) -> None:
        """Go on from what an earlier attempt left in the document (its content part)."""
        self._model, self._line = content.get("model"), content.get("line")
        self._plan = {str(item["id"]): dict(item) for item in content.get("plan") or ()}
        self._usage = dict(content.get("usage") or {})
        self._entries = {table: set(content.get(table) or ()) for table in _TABLES}

    # ── fields ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def model(self) -> str | None:
        """The model in use, `provider:name`."""
        return self._model

    @model.setter
    def model(self, name: str | None) -> None:
        self._model = name
        self.set("/model", shown(name))

    @property
    def current(self) -> Current | None:
        """What is being done now; None: nothing worth a row."""
        return self._current

    @current.setter
    def current(self, current: Current | None) -> None:
        if current is not None:
            one_of("current.kind", current.kind, StepKind)
        self._current, self._current_step = current, None
        self.set("/current", None if current is None else current.as_json(self._now()))

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """How far `current` is. Raises ValueError without a `current`: there is nothing to show it at."""
        if self._current is None:
            raise ValueError("set `box.current` first, or begin a step; progress is shown with it")
        self.set("/current/progress", Progress(value, total, message).as_json())

    @property
    def line(self) -> str | None:
        """The one line of the collapsed box."""
        return self._line

    @line.setter
    def line(self, text: str | None) -> None:
        self._line = text
        self.set("/line", shown(text))

    def usage(
        self,
        *,
        input: int = 0,
        output: int = 0,
        cached: int = 0,
        reasoning: int = 0,
        model_calls: int = 0,
        tool_calls: int = 0,
    ) -> None:
        """Add to what the run has used: tokens and calls. `input` contains `cached`, `output` contains `reasoning`."""
        added = {"input": input, "output": output, "cached": cached, "reasoning": reasoning}
        added |= {"model_calls": model_calls, "tool_calls": tool_calls}
        for name, count in added.items():
            if count:
                self._usage[name] = self._usage.get(name, 0) + count
                self.set(f"/usage/{name}", self._usage[name])

    def context(self, used: int | None, limit: int | None = None) -> None:
        """Tokens of the context in use, and the most the model takes (None: unknown, and shown as such)."""
        percent = round(100 * used / limit, 1) if used is not None and limit else None
        self.set("/context", {"used": used, "limit": limit, "percent": percent})

    # ── plan ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def plan(self) -> list[Json]:
        """`[{"id", "title", "status"}]`. Set it from titles (ids are then "1", "2", …) or from such entries."""
        return [dict(item) for item in self._plan.values()]

    @plan.setter
    def plan(self, items: Iterable[str | Mapping[str, Any]]) -> None:
        plan: dict[str, Json] = {}
        for number, item in enumerate(items, 1):
            given: Mapping[str, Any] = {"title": item} if isinstance(item, str) else item
            entry = _plan_entry(str(given.get("id", number)), given)
            if entry["id"] in plan:
                raise ValueError(f"two entries of the plan have the id {entry['id']!r}; give each its own")
            plan[entry["id"]] = entry
        self._plan = plan
        self.set("/plan", list(plan.values()))

    def plan_item(self, item_id: str, status: PlanStatus | None = None, *, title: str | None = None) -> None:
        """Change an entry of the plan, or append one (which needs a `title`)."""
        known = self._plan.get(item_id)
        if known is None and title is None:
            raise ValueError(f"the plan has no entry {item_id!r}; give it a `title` to append it")
        changes = {name: value for name, value in (("status", status), ("title", title)) if value is not None}
        entry = _plan_entry(item_id, {**(known or {}), **changes})
        self._plan[item_id] = entry
        if known is None:
            self._put(("plan", item_id), entry)
        else:
            for name in changes:
                self._put(("plan", item_id, name), entry[name])

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, name: str, *, kind: StepKind = "tool", summary: str | None = None) -> Step:
        """Begin a step. Use it as a context, which ends it by how the block ends, or call its `end`.

        While it runs the box shows it as `current`, unless something else was set meanwhile.
        """
        step = Step(
            self._new_id(),
            kind,
            name,
            summary,
            started_at=self._now(),
            monotonic=self._monotonic,
            on_end=self._step_ended,
        )
        self._put(("steps", step.id), step.as_json())
        self._running.append(step)
        self._show_step(step)
        return step

    def end_steps(self, status: StepStatus) -> None:
        """End every step that still runs: the run itself ends."""
        for step in tuple(self._running):
            step.end(status)

    def _step_ended(self, step: Step) -> None:
        self._running.remove(step)
        entry = step.as_json()
        for name in ("status", "summary", "ms"):
            self._put(("steps", step.id, name), entry[name])
        self.finished_steps.append(step.as_report())
        if self._current_step is step:
            self._show_step(self._running[-1] if self._running else None)

    def _show_step(self, step: Step | None) -> None:
        self.current = None if step is None else step.as_current()
        self._current_step = step

    # ── helpers and jobs ──────────────────────────────────────────────────────────────────────────────────────

    def subagent(
        self,
        subagent_id: str,
        *,
        title: str | None = None,
        status: str | None = None,
        current: str | None = None,
        usage: Mapping[str, int] | None = None,
    ) -> None:
        """Add a helper, or change what is given of it. `status`: one of a run's statuses (`running` at first)."""
        self._entry("subagents", subagent_id, title=title, status=status, current=current, usage=usage)

    def workflow(
        self,
        workflow_id: str,
        *,
        title: str | None = None,
        status: str | None = None,
        current: str | None = None,
    ) -> None:
        """Add a workflow, or change what is given of it."""
        self._entry("workflows", workflow_id, title=title, status=status, current=current)

    def background(self, job_id: str, *, title: str | None = None, status: str | None = None) -> None:
        """Add a job that goes on beside the run, or change what is given of it. Its `since` is filled in."""
        self._entry("background", job_id, title=title, status=status)

    def _entry(self, table: str, entry_id: str, **fields: Any) -> None:
        given = {name: value for name, value in fields.items() if value is not None}
        for name, value in given.items():
            given[name] = shown(value) if isinstance(value, str) else value
        if entry_id in self._entries[table]:
            for name, value in given.items():
                self._put((table, entry_id, name), value)
            return
        self._entries[table].add(entry_id)
        begun = {"since": moment_text(self._now())} if table == "background" else {}
        self._put((table, entry_id), {"title": entry_id, "status": RunStatus.RUNNING.value, **begun, **given})

    def alive(self) -> None:
        """The agent moved, with nothing to show for it: a sign that it did not stall. Anything set says so too."""
        self._on_change()

    # ── anything ──────────────────────────────────────────────────────────────────────────────────────────────

    def set(self, path: str, value: Any) -> None:
        """Set any path of the content part, a JSON pointer such as `/background/build/status`.

        Entries of `/plan` and `/steps` are named by their id, not by their place.
        """
        self._put(path_of(path), value)

    def remove(self, path: str) -> None:
        """Take away what stands at a path, for example `/subagents/critic`."""
        path_ = path_of(path)
        self._put(path_, REMOVED)
        if len(path_) == 2 and path_[0] in self._entries:
            self._entries[path_[0]].discard(path_[1])
        if len(path_) == 2 and path_[0] == "plan":
            self._plan.pop(path_[1], None)

    def _put(self, path: Path, value: Any) -> None:
        if not path or not path[0]:
            raise ValueError("a path begins with `/` and names a field, for example `/line`")
        self.edits.put(path, value)
        self._on_change()


def _plan_entry(item_id: str, given: Mapping[str, Any]) -> Json:
    status = given.get("status", "pending")
    one_of("status", status, PlanStatus)
    if not isinstance(given.get("title"), str):
        raise ValueError(f"entry {item_id!r} of the plan needs a `title`")
    return {"id": item_id, "title": shown(given["title"]), "status": status}
