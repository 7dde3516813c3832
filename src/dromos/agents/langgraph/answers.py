"""The answer of a graph that is no chat: its output field as a message of the conversation."""

from __future__ import annotations

import json
from typing import Any

from dromos.agents.langgraph.checkpoint_plan import Numbers
from dromos.domain.runs import Run
from dromos.domain.text import clean_json
from dromos.ports.store import Table, Tx


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
