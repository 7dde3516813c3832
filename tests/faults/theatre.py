"""One process as it is served, with the real built-in agent and graphs of a person's own; only the model follows a
script, and only tools and gates are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from dromos.agents.langgraph.adapter import LangGraphAgent
from dromos.agents.langgraph.threads import Threads
from dromos.api.door import Options
from dromos.domain.effects import ReplayClass, ToolPolicy
from dromos.domain.statuses import Recovery, RunStatus
from dromos.lifecycle.contract import Policy
from dromos.ports.agent import Agent, AgentInfo, Agents
from dromos.store.migrations import migrate
from dromos.testing.invariants import violations
from dromos.testing.waiting import eventually, within
from dromos.tools.rules import Rule, ToolRules
from dromos.worker.service import WorkerOptions
from tests.agents import kit
from tests.agents.graphs import OwnGraph
from tests.agents.kit import FunctionToolbox, SystemClock
from tests.api.conftest import USER, Serving, Troupe

RULES = ToolRules(
    rules={
        "look": Rule(replay=ReplayClass.READ),
        "put": Rule(replay=ReplayClass.KEYED),
        "pay": Rule(replay=ReplayClass.UNSAFE),
        "mail": Rule(replay=ReplayClass.UNSAFE),
        "ask": Rule(policy=ToolPolicy.ASK),
    }
)
Json = dict[str, Any]


class Company:
    """`ports.agent.Agents` by name; the first is the default."""

    def __init__(self, **agents: Agent) -> None:
        self._agents = agents
        self.default = next(iter(agents))

    def get(self, name: str) -> Agent | None:
        return self._agents.get(name)

    def infos(self) -> list[AgentInfo]:
        return [replace(agent.info, name=name) for name, agent in self._agents.items()]


class Theatre(Serving):
    """`assistant` is the built-in agent with the tools `look` (reads), `put` (keyed), `pay`, `mail` (unsafe), `ask`
    (asked about first), `count`; `graphs` are graphs of a person's own. A tool called with `{"at": NAME}` stands at
    that gate until the test opens it."""

    def __init__(
        self,
        address: Path | str,
        *,
        work: bool = True,
        model: str = "scripted",
        environ: Mapping[str, str] | None = None,
        graphs: Mapping[str, Any] | None = None,
        remote: tuple[str, ...] = (),
        rules: ToolRules | None = None,
        recovery: Recovery = Recovery.AUTO,
        stop_deadline: float = 2.0,
        **limits: Any,
    ) -> None:
        super().__init__(address, Options(stop_deadline=stop_deadline), work, remote)
        self.model, self.environ, self.graphs = model, environ, graphs or {}
        self.rules = rules or RULES
        self.policy = Policy(stop_deadline=stop_deadline, recovery=recovery)
        self.limits = WorkerOptions(stop_deadline=stop_deadline, drain=1.0, **limits)
        self.tools = FunctionToolbox(
            **{name: self._tool(name) for name in ("look", "put", "pay", "mail", "ask", "count")}
        )
        self.cut: list[str] = []

    async def __aenter__(self) -> Self:
        if isinstance(self.address, Path) and not self.address.exists():
            migrate(f"sqlite:///{self.address}")
        self.threads = Threads(16)
        asyncio.get_running_loop().set_default_executor(self.threads)
        return await super().__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        while kit.opened:
            await kit.opened.pop().aclose()

    def company(self) -> Agents:
        own = {
            name: LangGraphAgent(OwnGraph(graph), self.store, SystemClock())
            for name, graph in self.graphs.items()
        }
        built_in = kit.assistant(self.store, self.tools, model=self.model, environ=self.environ)
        others = Troupe(self.puppet, self.remote)
        more = {info.name: agent for info in others.infos() if (agent := others.get(info.name)) is not None}
        return Company(assistant=built_in, **own, **more)

    def _tool(self, name: str) -> Any:
        async def work(arguments: Mapping[str, Any]) -> str:
            gate = arguments.get("at")
            if gate is not None:
                self.puppet.reached.setdefault(gate, asyncio.Event()).set()
                try:
                    await self.puppet.gate(gate).wait()
                except asyncio.CancelledError:
                    self.cut.append(gate)
                    raise
            return f"{name} is done"

        return work

    # --- what a person does
    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Json]:
        """The status of the answer, and its body."""
        answer = await self.http.request(method, path, **options)
        return answer.status_code, answer.json() if answer.content else {}

    async def begun(self, script: str, **more: Any) -> tuple[str, Json]:
        """A new conversation, and the run of its first message."""
        conversation = await self.conversation()
        return conversation, (await self.send(conversation, script, **more))["run"]

    async def run_now(self, run_id: str) -> Json:
        _, run = await self.ask("GET", f"/v1/runs/{run_id}")
        return run

    async def cancel(self, run_id: str, wait: float | None = None) -> tuple[int, Json]:
        query = {} if wait is None else {"wait_s": wait}
        status, body = await self.ask("POST", f"/v1/runs/{run_id}/cancel", params=query)
        return status, body.get("run", body)

    async def reaches(self, run_id: str, *statuses: str, seconds: float = 10) -> Json:
        """The run as its event told it when it had one of these statuses."""
        async with self.listen(after=0) as stream:

            async def look() -> Json:
                while True:
                    run = (await stream.next("run.status", seconds)).data["payload"]["run"]
                    if run["id"] == run_id and run["status"] in statuses:
                        return dict(run)

            return await within(seconds, look(), f"run {run_id} in {statuses}")

    async def ended(self, run_id: str) -> Json:
        """The run, once it has ended; the first one of a process loads its engine."""
        return await self.reaches(
            run_id, *(status.value for status in RunStatus if status.is_final), seconds=15
        )

    async def newest(self, conversation: str) -> Json:
        """The newest run of the conversation."""
        _, page = await self.ask("GET", "/v1/runs", params={"conversation_id": conversation, "limit": 1})
        return dict(page["items"][0])

    async def history(self, conversation: str) -> list[Json]:
        _, page = await self.ask("GET", f"/v1/conversations/{conversation}/messages")
        return list(page["items"])

    async def text_of(self, run_id: str, length: int) -> str:
        """The text that the run's document shows, once it is at least so long."""

        async def shown() -> str:
            _, answer = await self.ask("GET", f"/v1/runs/{run_id}/document")
            content: str = answer["document"]["text"]["content"]
            return content if len(content) >= length else ""

        return await eventually(shown, what=f"{length} characters of text")

    async def in_order(self, *, settled: bool = True) -> None:
        """The invariants of the lifecycle hold."""
        assert await violations(self.store, USER, settled=settled) == []
