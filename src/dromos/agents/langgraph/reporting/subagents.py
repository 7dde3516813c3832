"""Agents that work for the agent: subgraphs, graphs that a tool runs, and deepagents' `task`; one entry each.

LangGraph names where a call happens by a path, `tools:TASK|model:TASK`: what stands before the last `|` is the task
in which an inner graph runs. A tool's helper ends with the tool, a subgraph's with its node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dromos.agents.langgraph.steps import SUMMARY_LIMIT, Step
from dromos.domain.cost import COUNTS, Tokens
from dromos.domain.pointers import pointer
from dromos.domain.text import clean_text, first_line
from dromos.ports.live import LiveRun

ENDED_KEPT = 20
"""Helpers that are shown after their end; older ones leave the document."""


@dataclass(slots=True, eq=False)
class Helper:
    """`open` are its steps under way, the oldest first; `round` is the agent's step in which it began last."""

    id: str
    title: str
    round: int = 0
    status: str = "running"  # running | done | failed | cancelled
    usage: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    open: dict[str, Step] = field(default_factory=dict)


class Helpers:
    """One attempt's `/subagents`."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._by_id: dict[str, Helper] = {}
        self._by_task: dict[str, Helper] = {}
        self._round = 0

    @staticmethod
    def tasks_of(ns: str) -> list[tuple[str, str]]:
        """Node and task of each level of a path, the outermost first. Numbers in it count calls, and say no more."""
        levels = (level.rpartition(":") for level in ns.split("|") if not level.isdigit())
        return [(node, task) for node, _, task in levels]

    def delegated(self, step: Step, arguments: Any) -> None:
        """A tool begins; where it is one that hands work to a subagent, the helper begins with it."""
        if step.name != "task" or not isinstance(arguments, Mapping):
            return
        work, kind = arguments.get("description"), arguments.get("subagent_type")
        if isinstance(work, str) and isinstance(kind, str):
            self._begin(step.id, step.task, f"{kind}: {first_line(work)}")

    def of(self, levels: list[tuple[str, str]], tools: Mapping[str, Step], name: str) -> Helper | None:
        """Whose work happens in the innermost of these levels; None: the agent's own.

        `tools` are those under way by their task; `name` is what the inner agent calls itself, if it does.
        """
        for depth in range(len(levels) - 2, -1, -1):
            node, task = levels[depth]
            known = self._by_task.get(task)
            if known is not None:
                return known
            tool = tools.get(task)
            if tool is not None:
                return self._begin(tool.id, task, name or tool.name)
            if depth == 0:
                return self._begin(node if self._is_free(node) else task, task, name or node)
        return None

    def next_round(self) -> None:
        """A step of the agent's graph is over: a node that comes again takes up its entry again."""
        self._round += 1

    def _is_free(self, node: str) -> bool:
        """Whether the node's own entry is to be had; of several that run in one step only the first has it."""
        known = self._by_id.get(node)
        return known is None or (known.status != "running" and known.round < self._round)

    def step_began(self, helper: Helper, step: Step) -> None:
        helper.open[step.id] = step
        if step.kind == "tool":
            helper.usage["tool_calls"] += 1
        self._say(helper)

    def step_ended(self, helper: Helper, step: Step, tokens: Tokens | None) -> None:
        helper.open.pop(step.id, None)
        if step.kind == "model":
            usage = helper.usage
            usage["model_calls"] += 1
            if tokens is not None:
                usage["input"] += tokens.input
                usage["output"] += tokens.output
                usage["cached"] += tokens.cached
                usage["reasoning"] += tokens.reasoning
            self._live.set(pointer("subagents", helper.id, "usage"), dict(usage))
        self._say(helper)

    def said(self, helper: Helper, text: str) -> None:
        """What it does right now, in its own words."""
        self._live.set(pointer("subagents", helper.id, "current"), text)

    def told(self, helper_id: str, title: str | None, status: str, current: str | None) -> None:
        """What the agent itself says of a helper; it ends it itself too."""
        known = self._by_id.pop(helper_id, None)
        helper = known or Helper(helper_id, title or helper_id)
        helper.title, helper.status = title or helper.title, status
        self._by_id[helper_id] = helper
        self._show(helper, current)
        self._forget_old()

    def tool_ended(self, step: Step, status: str) -> None:
        """A tool is over, and with it the helper that it ran."""
        self._end(self._by_id.get(step.id), status)

    def task_ended(self, task: str, status: str) -> None:
        """A node of the graph is over, and with it the helper that it was."""
        self._end(self._by_task.get(task), status)

    def end_all(self, status: str) -> None:
        """The attempt is over."""
        for helper in list(self._by_task.values()):
            self._end(helper, status)

    def _begin(self, helper_id: str, task: str, title: str) -> Helper:
        helper = self._by_id.pop(helper_id, None) or Helper(helper_id, "")
        helper.title, helper.status = clean_text(title)[:SUMMARY_LIMIT], "running"
        helper.round = self._round
        self._by_id[helper_id] = self._by_task[task] = helper  # newest last
        self._show(helper, None)
        return helper

    def _show(self, helper: Helper, current: str | None) -> None:
        shown = {
            "title": helper.title,
            "status": helper.status,
            "current": current,
            "usage": dict(helper.usage),
        }
        self._live.set(pointer("subagents", helper.id), shown)

    def _end(self, helper: Helper | None, status: str) -> None:
        if helper is None or helper.status != "running":
            return
        for task in [task for task, known in self._by_task.items() if known is helper]:
            del self._by_task[task]
        helper.status = status
        helper.open.clear()
        self._live.set(pointer("subagents", helper.id, "status"), status)
        self._live.set(pointer("subagents", helper.id, "current"), None)
        self._forget_old()

    def _forget_old(self) -> None:
        ended = [helper for helper in self._by_id.values() if helper.status != "running"]
        for old in ended[: max(len(ended) - ENDED_KEPT, 0)]:
            del self._by_id[old.id]
            self._live.remove(pointer("subagents", old.id))

    def _say(self, helper: Helper) -> None:
        doing = None
        for step in helper.open.values():
            if doing is None or (step.kind == "tool" and doing.kind != "tool"):
                doing = step
        text = None
        if doing is not None:
            text = f"{doing.name} {doing.summary}" if doing.summary else doing.name
        self._live.set(pointer("subagents", helper.id, "current"), text)
