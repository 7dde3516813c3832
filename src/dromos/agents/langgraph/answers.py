"""The history of a graph that is no chat: its output field as a message, and how long the history was at a checkpoint.

Such a graph's thread holds no messages; the conversation's rows of `messages` are all there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dromos.agents.message_numbers import Numbers
from dromos.domain.runs import Run
from dromos.domain.text import clean_json
from dromos.ports.agent import CheckpointSummary
from dromos.ports.store import In, ReadTx, Row, Table, Tx

_HISTORY = {"hidden": False, "pending_of": None, "kind": In(("text", "tool", "run"))}


def history(tx: ReadTx, conversation_id: str) -> list[Row]:
    """Messages and anchors in the order people see them."""
    where = {"conversation_id": conversation_id, **_HISTORY}
    columns = ("id", "role", "kind", "content", "run_id")
    return tx.find(Table.MESSAGES, where, order=("position", "num"), columns=columns)


def with_history(summaries: Iterable[CheckpointSummary], rows: Sequence[Row]) -> list[CheckpointSummary]:
    """Each checkpoint, oldest first, with the messages there were: those before its run's anchor, and at the last
    checkpoint of a run also what the run brought."""
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    messages: list[Row] = []
    for row in rows:
        if row["kind"] == "run":
            starts[row["run_id"]] = len(messages)
        else:
            messages.append(row)
        ends[row["run_id"]] = len(messages)
    found = list(summaries)
    last = {summary.run_id: index for index, summary in enumerate(found)}
    for index, summary in enumerate(found):
        run_id = summary.run_id or ""
        count = (ends if last[summary.run_id] == index else starts).get(run_id, 0)
        message = messages[count - 1] if count else None
        found[index] = replace(
            summary,
            message_count=count,
            last_message=message and {key: message[key] for key in ("id", "role", "content")},
        )
    return found


def store_answer(tx: Tx, run: Run, answer: Any) -> None:
    """Store the output field as the run's answer, once however often it is called."""
    message_id = f"answer-{run.id}"
    where = {"conversation_id": run.conversation_id, "id": message_id}
    if answer is None or tx.first(Table.MESSAGES, where) is not None:
        return
    numbers = Numbers(tx, run.conversation_id)
    num = numbers.take()
    content = answer if isinstance(answer, str) else _json(answer)
    tx.put(
        Table.MESSAGES,
        {
            "conversation_id": run.conversation_id,
            "num": num,
            "position": num,
            "id": message_id,
            "role": "assistant",
            "kind": "text",
            "content": clean_json(content)[0],
            "run_id": run.id,
            "created_at": tx.now(),
        },
    )
    numbers.save()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
