"""What people do with agents of their own, and what time does to what is stored: conversations for the crash points
that a talk with the assistant does not reach.

Each is named and returns what is not as it should be. It must not know when the server dies.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from benchmarks.effects.stage import FINAL, PATIENCE, Client, Json
from benchmarks.effects.talks import LOOK, follow
from dromos.ports.store import Le, Lt, ReadTx, Table, Tx
from dromos.testing.waiting import eventually

HERE = Path(__file__).parent
SETTINGS = f"""
[agents.own]
graph = "{HERE / "graphs.py"}:own"
input = "task"
output = "said"
[agents.pruned]
graph = "{HERE / "graphs.py"}:pruned"
[agents.late]
graph = "{HERE / "graphs.py"}:late"
[agents.command]
command = ["{sys.executable}", "{HERE / "command.py"}"]
resume_arguments = ["--resume", "{{session}}"]
[retention]
events_days = 1
"""
LONG_AGO = timedelta(days=3)


async def own(client: Client, name: str) -> list[str]:
    """A graph asks, is answered, stops before its work, is let on, and answers in a field."""
    label = f"own {name}"
    run, said = await _said(client, "own", label)
    found = _ended(run)
    if said != [f"very good: {label}"]:
        found.append(f"the graph's answer is {said}")
    if (times := client.hall.counted()[label]) != 1:
        found.append(f"I10: {label} happened {times} times")
    return found


async def pruned(client: Client, name: str) -> list[str]:
    """A graph removes what its thread needs no more while it works; the next message finds all of the history."""
    conversation = (await client.create("/v1/conversations", {"agent": "pruned"}))["id"]
    found = []
    for number in (1, 2):
        run, said = await _said(client, "pruned", f"{name} {number}", conversation)
        found += _ended(run)
    return found + ([] if said == ["I look", "I saw 2", "I look", "I saw 5"] else [f"it has said {said}"])


async def late(client: Client, name: str) -> list[str]:
    """An agent whose input is made by its attempt. The first run is there for the agent to be loaded."""
    found = []
    for number in (1, 2):
        run, said = await _said(client, "late", f"{name} {number}")
        found += _ended(run) + ([] if said == ["I saw 1"] else [f"it has said {said}"])
    return found


async def command(client: Client, name: str) -> list[str]:
    """A command says something once; where the server died meanwhile, a person tells it to go on."""
    conversation = (await client.create("/v1/conversations", {"agent": "command"}))["id"]
    run, said = await _said(client, "command", name, conversation)
    if run["status"] == "interrupted":
        goes_on = await client.create(f"/v1/conversations/{conversation}/continue", {})
        run = await follow(client, goes_on["run"]["id"])
        said = await _history(client, conversation)
    right = (["heard"], ["went on"], ["heard", "went on"])
    return _ended(run) + ([] if said in right else [f"the command has said {said}"])


async def aged(client: Client, name: str) -> list[str]:
    """What is kept for a time only gets old: it goes, all of it, and the conversation goes on."""
    label = f"aged {name}"
    conversation = (await client.create("/v1/conversations", {}))["id"]
    posted = f'!call t__count {{"label": "{label}"}}\n!say counted'
    run, _ = await _said(client, "assistant", posted, conversation)
    found = _ended(run)
    await client.create("/v1/conversations", {}, keep=False)
    forgotten = client.last_key

    async with client.hall.store() as store:
        before = await store.read(_newest)

        def age(tx: Tx) -> None:
            long_ago = tx.now() - LONG_AGO
            tx.change(Table.EVENTS, {"seq": Le(before)}, {"at": long_ago})
            tx.change(Table.LEASES, {"lease_until": Lt(tx.now())}, {"lease_until": long_ago})
            tx.change(Table.TOOL_CALLS, {"conversation_id": conversation}, {"keep_until": long_ago})
            tx.change(Table.IDEMPOTENCY, {"key": forgotten}, {"created_at": tx.now() - 4 * LONG_AGO})

        def left(tx: ReadTx) -> int:
            events = tx.count(Table.EVENTS, {"seq": Le(before)})
            leases = tx.count(Table.LEASES, {"lease_until": Lt(tx.now() - LONG_AGO / 2)})
            return events + leases + tx.count(Table.IDEMPOTENCY, {"key": forgotten})

        async def gone() -> bool:
            return await store.read(left) == 0

        await store.write(age)
        assert not await gone()
        await eventually(gone, seconds=PATIENCE, what="the end of what is outdated", every=LOOK)
    run, said = await _said(client, "assistant", "!say goes on", conversation)
    found += _ended(run)
    if client.hall.counted()[label] != 1 or said != ["", "counted", "goes on"][-len(said) :]:
        found.append(f"{label} happened {client.hall.counted()[label]} times, the history is {said}")
    return found


async def _said(
    client: Client, agent: str, content: str, conversation: str | None = None
) -> tuple[Json, list[str]]:
    """One message followed to its end; the run, and all that its conversation was answered."""
    if conversation is None:
        conversation = (await client.create("/v1/conversations", {"agent": agent}))["id"]
    posted = await client.create(f"/v1/conversations/{conversation}/messages", {"content": content})
    return await follow(client, posted["run"]["id"]), await _history(client, conversation)


async def _history(client: Client, conversation: str) -> list[str]:
    messages = (await client.get(f"/v1/conversations/{conversation}"))["messages"]
    return [message["content"] for message in messages if message["role"] == "assistant"]


def _ended(run: Json) -> list[str]:
    assert run["status"] in FINAL
    if run["status"] == "completed":
        return []
    return [f"the run of {run['agent']} is {run['status']}: {run['error_message']}"]


def _newest(tx: ReadTx) -> int:
    return max((user["last_seq"] for user in tx.find(Table.USERS, {})), default=0)
