"""Agents that run elsewhere: here they have a name and nothing else.

Their runs wait until an adapter session takes them over HTTP; the worker of this process leaves them alone. What they
say is kept as messages, so they have no thread and no checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass

from dromos.domain.reasons import ErrorCode
from dromos.ports.agent import (
    REMOTE,
    AgentInfo,
    Attempt,
    CheckpointSummary,
    Failed,
    InputMessage,
    Outcome,
)


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """`ports.agent.Agent` for a name that adapters serve."""

    info: AgentInfo

    @staticmethod
    def named(name: str, description: str = "") -> RemoteAgent:
        return RemoteAgent(AgentInfo(name, description or "Runs elsewhere.", REMOTE))

    def compose(self, messages: list[InputMessage]) -> None:
        """An adapter is told its input with the claim; nothing is made here."""
        return None

    async def attempt(self, attempt: Attempt) -> Outcome:
        """Nobody should ask: its runs are not claimed by a worker."""
        name = self.info.name
        message = (
            f"The agent {name} runs elsewhere and this server's worker took its run. Start its adapter, "
            f"and keep `remote = true` under [agents.{name}] on every server of this database."
        )
        return Failed(ErrorCode.CONFIG_INVALID, message)

    async def pending(self, conversation_id: str) -> tuple[str, ...]:
        return ()

    async def checkpoints(self, conversation_id: str) -> list[CheckpointSummary]:
        return []
