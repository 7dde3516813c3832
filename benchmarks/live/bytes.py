"""Bytes on the wire for one long answer with tool use, to a device that looks."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import orjson

from benchmarks.live.stage import conversation
from benchmarks.measure import Row
from benchmarks.wire import Connection
from dromos.testing.processes import ServeProcess

TOOL_STEPS = 10
LIVE = ("run.text", "run.patch", "run.document", "run.server")


def script(words: int, rate: int) -> str:
    calls = [
        f'!call t__sleep {{"s": 0.2, "note": {number}}}\n!say Step {number} is done.'
        for number in range(TOOL_STEPS)
    ]
    return "\n".join([*calls, f"!tokens {words} {rate}"])


async def count(words: int, rate: int) -> tuple[Counter[str], int]:
    """Bytes by event, from the message to the end of the run; and the bytes of the text."""
    sizes: Counter[str] = Counter()
    text = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = {
            "command": sys.executable,
            "args": ["-m", "dromos.testing.tools_server"],
            "env": {"CT_FILE": name + "/e"},
        }
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"t": tools}}))
        async with (
            ServeProcess(folder / "data", cwd=folder, ready_within=60) as process,
            Connection(process.port) as sender,
            Connection(process.port) as reader,
        ):
            made = await conversation(sender, "assistant")
            ready = asyncio.Event()

            async def read() -> None:
                nonlocal text
                async for event, data, size in reader.events(f"/v1/stream?focus={made}"):
                    if not ready.is_set():
                        ready.set()
                        continue
                    sizes[event.decode()] += size
                    value = orjson.loads(data)
                    if event == b"run.text":
                        text += len(value["text"].encode())
                    if event == b"run.status" and value["payload"]["run"]["finished_at"]:
                        assert value["payload"]["run"]["status"] == "completed", value
                        return

            reading = asyncio.create_task(read())
            await ready.wait()
            await sender.ask("POST", f"/v1/conversations/{made}/messages", {"content": script(words, rate)})
            await asyncio.wait_for(reading, 120)
    return sizes, text


async def measure(full: bool) -> list[Row]:
    words, rate = (4000, 200) if full else (800, 200)
    sizes, text = await count(words, rate)
    frames = sum(sizes[name] for name in LIVE) / text
    whole = sum(sizes.values()) / text
    size = f"{words} tokens at {rate}/s, {TOOL_STEPS} tool steps"
    parts = ", ".join(f"{name} {sizes[name] / text:.2f}" for name in LIVE)
    return [
        Row(
            f"bytes of frames and documents ({size})",
            f"{frames:.2f}× the text",
            parts,
            f"{frames:.2f}×",
            "≤ 3×",
            frames <= 3,
        ),
        Row(
            "the same with the durable events, the whole answer once more among them",
            f"{whole:.2f}× the text",
            "",
            f"{whole:.2f}×",
            "printed",
            None,
        ),
    ]
