"""What earlier attempts of a run have on disk: the steps they ended, and the usage that their messages tell.

An owner that vanished may have saved neither its document's newest second nor its counts. The rows that its
checkpoints stored are the truth; the next attempt begins its report with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage

from dromos.agents.langgraph.message_rows import from_row
from dromos.domain.runs import Run
from dromos.ports.store import NOT_NULL, ReadTx, Row, Table
from dromos.wire.shapes import moment

STEPS_SHOWN = 50
"""Newest steps that a live document holds."""
_SHOWN = ("id", "kind", "name", "status", "summary", "started_at", "ms")
_MESSAGE = ("id", "role", "content", "tool_calls", "tool_call_id", "name", "status", "engine", "engine_type")


@dataclass(frozen=True, slots=True)
class Earlier:
    """`next_num` is the number of the next step; `steps` are the newest as the document shows them."""

    next_num: int = 1
    steps: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)


def earlier_attempts(tx: ReadTx, run: Run) -> Earlier:
    """Empty for a run's first attempt."""
    if run.attempt <= 1:
        return Earlier()
    rows = tx.find(Table.RUN_STEPS, {"run_id": run.id}, order=("-num",), limit=STEPS_SHOWN)
    brought = tx.find(
        Table.MESSAGES,
        {
            "conversation_id": run.conversation_id,
            "run_id": run.id,
            "role": "assistant",
            "log_seq": NOT_NULL,
            "ns": "",
            "channel": "messages",
        },
        columns=_MESSAGE,
    )
    return Earlier(
        next_num=(rows[0]["num"] if rows else 0) + 1,
        steps=[_as_shown(row) for row in reversed(rows)],
        usage=_more(
            run.usage,
            {
                **_tokens(brought),
                "model_calls": tx.count(
                    Table.RUN_STEPS, {"run_id": run.id, "kind": "model", "status": "done"}
                ),
                "tool_calls": tx.count(Table.RUN_STEPS, {"run_id": run.id, "kind": "tool"}),
            },
        ),
    )


def _as_shown(row: Row) -> dict[str, Any]:
    return {**{name: row[name] for name in _SHOWN}, "started_at": moment(row["started_at"])}


def _tokens(rows: list[Row]) -> dict[str, int]:
    usage = dict.fromkeys(("input", "output", "cached", "reasoning"), 0)
    for row in rows:
        message = from_row(row)
        used = message.usage_metadata if isinstance(message, AIMessage) else None
        if used is not None:
            usage["input"] += used.get("input_tokens", 0)
            usage["output"] += used.get("output_tokens", 0)
            usage["cached"] += (used.get("input_token_details") or {}).get("cache_read") or 0
            usage["reasoning"] += (used.get("output_token_details") or {}).get("reasoning") or 0
    return usage


def _more(saved: Any, told: dict[str, int]) -> dict[str, int]:
    """Of two counts of the same, the larger: what was saved may know of calls that led to no message."""
    return {name: max(saved.get(name, 0), count) for name, count in told.items()}
