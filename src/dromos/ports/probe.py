"""Named crash points: the fault tests hold or kill the process at a commit boundary by its name.

The registry is closed: every transaction of the product is one of `Point`, and each has three moments. A lease that is
renewed is no boundary: what it loses is its time. It must not know what a probe does when it is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


class Moment(StrEnum):
    """Where in the course of one transaction. The third is seen from outside: production code reaches the first two."""

    WRITTEN = "written"
    """Inside the transaction, all of it written, nothing committed."""
    COMMITTED = "committed"
    """On disk; nobody was told."""
    REPLIED = "replied"
    """Whoever asked has its answer: a client its response, our own code the value."""


class Point(StrEnum):
    """Every transaction by name."""

    # clients
    ENSURE_USER = "ensure_user"
    CREATE_CONVERSATION = "create_conversation"
    CHANGE_CONVERSATION = "change_conversation"
    DELETE_CONVERSATION = "delete_conversation"
    POST_MESSAGE = "post_message"
    CONTINUE_RUN = "continue_run"
    REQUEST_CANCEL = "request_cancel"
    CHANGE_FOLLOWUP = "change_followup"
    DISCARD_FOLLOWUP = "discard_followup"
    SEND_FOLLOWUP = "send_followup"
    DECIDE = "decide"
    REVOKE_GRANT = "revoke_grant"

    # workers
    REGISTER_OWNER = "register_owner"
    RETIRE_OWNER = "retire_owner"
    CLAIM = "claim"
    REFUSE_WORK = "refuse_work"
    """Done by no part of the server (`UNCALLED`): an agent that is missing or broken ends its run by `end_attempt`."""
    END_ATTEMPT = "end_attempt"
    END_STOPPED = "end_stopped"

    # sweeps
    ORPHANS = "orphans"
    REAP = "reap"
    OUTDATED = "outdated"
    """Where something stored has outlived its time."""

    # on behalf of a run, under its fence
    RECORD = "record"
    """A write without a name of its own (`UNCALLED`): only tests make one."""
    COMPOSE_INPUT = "compose_input"
    """The input of a run whose claim could not make it; elsewhere `claim` holds it, as for all agents of our own."""
    SAVE_DOCUMENT = "save_document"
    NOTE_TRIES = "note_tries"
    NOTE_WAITING_FOR = "note_waiting_for"
    INTENT = "intent"
    OUTCOME = "outcome"
    PARKED = "parked"
    CHECKPOINT = "checkpoint"
    STEER = "steer"
    """A checkpoint that gave messages out."""
    TASK_WRITES = "task_writes"
    THREAD_UPKEEP = "thread_upkeep"
    """A graph that removes, copies or prunes threads with its checkpointer; the server itself never does."""
    CONSUME_DECISION = "consume_decision"
    """Of a breakpoint, or of a question that the thread no longer asks; elsewhere the graph's own writes hold it."""
    STORE_ANSWER = "store_answer"
    """Of a graph with an output field; elsewhere a checkpoint holds it."""
    LEFT_STEPS = "left_steps"
    LOST_STEPS = "lost_steps"
    COMMAND_TOLD = "command_told"
    """What a command-line agent printed."""

    # adapter sessions
    SESSION_CLAIM = "session_claim"
    SESSION_RENEW = "session_renew"
    SESSION_PARK = "session_park"
    SESSION_END = "session_end"
    REPORT_STEPS = "report_steps"
    APPEND_MESSAGES = "append_messages"
    PATCH_DOCUMENT = "patch_document"

    def at(self, moment: Moment) -> str:
        return f"{self.value}.{moment.value}"


UNCALLED: Mapping[Point, str] = {
    Point.REFUSE_WORK: "part of the lifecycle (T6), and called by nothing in the server",
    Point.RECORD: "what a write without a name is called; every write in the server has one",
}
"""Points that no server comes to, each with the reason: a process cannot be killed there."""


class Probe(Protocol):
    def reach(self, point: str) -> None:
        """Called at every named boundary (`Point.at`); a test's probe may block or kill here."""
        ...


class NoProbe:
    """The probe of production."""

    def reach(self, point: str) -> None:
        return None
