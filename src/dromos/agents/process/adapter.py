"""A command-line agent as the worker sees it: one attempt is one run of its command.

The command gets the person's message and prints newline-delimited JSON (`stream_json`); what it says becomes the
run's document and the conversation's history (`telling`). It keeps its own session, whose id is stored as soon as it
is known; a later run, or Continue, hands it back. What the command does outside is its own business and in no
journal: after a crash the run waits for a person (`recovery = "ask"`) unless configured otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dromos.agents.process.command import Command, CommandFailed
from dromos.agents.process.stream_json import Event, Result, Session, read_line
from dromos.agents.process.telling import Telling
from dromos.domain.backend import refusal
from dromos.domain.errors import LeaseLost
from dromos.domain.reasons import ErrorCode
from dromos.domain.runs import Run
from dromos.domain.text import clean_text, text_of
from dromos.ports.agent import (
    AgentInfo,
    Attempt,
    CheckpointSummary,
    Drained,
    Failed,
    Finished,
    InputMessage,
    Outcome,
)
from dromos.ports.clock import Clock
from dromos.ports.probe import Point
from dromos.ports.store import In, ReadTx, Table


@dataclass(frozen=True, slots=True)
class CommandConfig:
    """`[agents.NAME]` with a `command`. `{model}` and `{session}` in the arguments stand for what is known."""

    name: str
    command: tuple[str, ...]
    folder: Path
    description: str = ""
    model: str | None = None
    prompt: str = "stdin"
    model_arguments: tuple[str, ...] = ()
    resume_arguments: tuple[str, ...] = ()
    resume_prompt: str = "Continue."
    environment: Mapping[str, str] = field(default_factory=dict)


class ProcessAgent:
    """`ports.agent.Agent`. `environ` is what the server's own environment gives a command."""

    def __init__(self, config: CommandConfig, clock: Clock, environ: Mapping[str, str]) -> None:
        self._config, self._clock = config, clock
        self._environ = {**environ, **config.environment}
        self.info = AgentInfo(
            config.name, config.description or f"The command {config.command[0]}.", "process"
        )

    def compose(self, messages: list[InputMessage]) -> Any:
        """The messages nobody has answered yet, as one text: the command knows the rest from its session."""
        asked: list[str] = []
        for message in reversed(messages):
            if message.role != "user":
                break
            asked.append(text_of(message.content))
        return {"prompt": "\n\n".join(reversed(asked))}

    async def attempt(self, attempt: Attempt) -> Outcome:
        run = attempt.run
        model = run.model or self._config.model
        if run.backend_policy and (refused := refusal(run.backend_policy, model)) is not None:
            return Failed(ErrorCode.CONFIG_INVALID, refused)
        session, steps = await attempt.recorder.read(lambda tx: _earlier(tx, run))
        # The session of an earlier run knows nothing yet of what this one was asked.
        going_on = session is not None and (run.resume_of is not None or run.session_id is not None)
        prompt = self._config.resume_prompt if going_on else (attempt.input or {}).get("prompt", "")
        if not prompt:  # nothing was ever begun: what the resumed run was asked
            prompt = await attempt.recorder.read(lambda tx: _asked(tx, run))
        telling = Telling(attempt, self._clock, model, steps + 1)
        if run.resume_of is not None or run.attempt > 1:
            telling.close_calls(await attempt.recorder.read(lambda tx: _open_calls(tx, run)))
        if model:
            attempt.live.set("/model", model)
        try:
            command = await Command.start(
                self._arguments(model, session, prompt),
                prompt if self._config.prompt == "stdin" else None,
                self._environ,
                self._config.folder,
            )
        except CommandFailed as error:
            telling.cut("failed")
            return Failed(
                ErrorCode.CONFIG_INVALID, f"{error} Correct [agents.{self._config.name}] `command`."
            )
        try:
            outcome = await self._follow(command, attempt, telling)
        except asyncio.CancelledError:
            # The group first: what it does after the stop was accepted must not go on while we write.
            await _surely(command.end())
            attempt.unknown_calls.extend(telling.cut("cancelled"))
            await _surely(telling.store(cancelling=True))
            raise
        except LeaseLost:
            await _surely(command.end())
            await _surely(self._put_away(attempt, telling))
            raise
        except BaseException:
            await _surely(command.end())
            raise
        await _surely(command.end())
        telling.cut("cancelled" if isinstance(outcome, Drained) else "failed")
        await telling.store()
        return outcome

    async def _put_away(self, attempt: Attempt, telling: Telling) -> None:
        """A write was refused: where that is a stop, what was done is put on record; else the run is not ours."""
        await attempt.recorder.write(lambda tx, run: None, while_cancelling=True, point=Point.COMMAND_TOLD)
        attempt.unknown_calls.extend(telling.cut("cancelled"))
        await telling.store(cancelling=True)

    async def pending(self, conversation_id: str) -> tuple[str, ...]:
        """A command can always be told to go on; whether its session has something left, only it knows."""
        return ("session",)

    async def checkpoints(self, conversation_id: str) -> list[CheckpointSummary]:
        return []

    async def _follow(self, command: Command, attempt: Attempt, telling: Telling) -> Outcome:
        try:
            async for line in command.lines():
                for event in read_line(line):
                    if (refused := self._refused(attempt.run, event)) is not None:
                        return Failed(ErrorCode.CONFIG_INVALID, refused)
                    telling.take(event)
                await telling.store()
                if telling.result is not None:
                    return self._end(telling.result, telling)
                if attempt.drain.is_set() and not telling.open_tools:
                    return Drained()
        except CommandFailed as error:
            return Failed(ErrorCode.AGENT_FAILURE, str(error))
        telling.keep_message()
        why = await command.why_it_ended()
        name = self._config.command[0]
        if command.missing:
            return Failed(
                ErrorCode.CONFIG_INVALID,
                f"The command {name!r} {why}. Install it, or correct [agents.{self._config.name}] `command`.",
            )
        return Failed(ErrorCode.AGENT_FAILURE, f"The command {name!r} {why}, without a result.")

    def _refused(self, run: Run, event: Event) -> str | None:
        """The command says which model it uses: it must be one that this run may use."""
        if not isinstance(event, Session) or not event.model or not run.backend_policy:
            return None
        provider = (run.model or self._config.model or "").rpartition(":")[0]
        named = event.model if ":" in event.model or not provider else f"{provider}:{event.model}"
        return refusal(run.backend_policy, named)

    def _end(self, result: Result, telling: Telling) -> Outcome:
        if result.ok:
            return Finished(session_id=telling.session_id)
        code = ErrorCode.RECURSION_LIMIT if result.kind == "error_max_turns" else ErrorCode.AGENT_FAILURE
        said = clean_text(result.text) or "it gave no reason"
        return Failed(code, f"The agent ended with {result.kind}: {said}")

    def _arguments(self, model: str | None, session: str | None, prompt: str) -> list[str]:
        config = self._config
        arguments = list(config.command)
        if model:
            name = model.rpartition(":")[2]
            arguments += [part.replace("{model}", name) for part in config.model_arguments]
        if session:
            arguments += [part.replace("{session}", session) for part in config.resume_arguments]
        if config.prompt == "argument":
            arguments.append(prompt)
        return arguments


async def _surely(work: Any) -> None:
    """Carry on to the end even if this task is cancelled meanwhile; the cancellation comes through afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _earlier(tx: ReadTx, run: Run) -> tuple[str | None, int]:
    """The agent's session in this conversation, and how many steps the run has stored."""
    session = run.session_id
    if session is None:
        known = {"conversation_id": run.conversation_id, "agent": run.agent}
        found = tx.find_runs(known, order=("-created_at",), limit=20)
        session = next((one.session_id for one in found if one.session_id), None)
    return session, tx.count(Table.RUN_STEPS, {"run_id": run.id})


def _open_calls(tx: ReadTx, run: Run) -> dict[str, str]:
    """Calls of the history that an owner who vanished left without a result: names by id."""
    where = {"conversation_id": run.conversation_id, "role": In(("assistant", "tool")), "log_seq": None}
    calls: dict[str, str] = {}
    for row in tx.find(Table.MESSAGES, where, order=("num",), columns=("tool_calls", "tool_call_id")):
        calls.pop(row["tool_call_id"], None)
        calls |= {call["id"]: call["name"] for call in row["tool_calls"] or ()}
    return calls


def _asked(tx: ReadTx, run: Run) -> str:
    """The message that started this run, or the one it goes on from."""
    where = {"conversation_id": run.conversation_id, "id": run.trigger_message_id}
    message = tx.first(Table.MESSAGES, where)
    return text_of(message["content"]) if message is not None else ""
