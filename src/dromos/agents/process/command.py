"""A command under way: started in a process group of its own, read line by line, ended with everything it started.

It must not know what the lines mean. A line may be as long as `LINE_BYTES`; there is no other limit, and a longer
one ends the command with a reason instead of a reader that went deaf.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from dromos.agents.process import leash
from dromos.domain.text import clean_text

LINE_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
WORDS_SHOWN = 5
"""Last lines of stderr that explain an end."""
TERM_SECONDS = 3.0
"""Between SIGTERM and SIGKILL of the group."""
KILL_SECONDS = 2.0
NOT_FOUND = 127
"""The exit code by which the leash says that the program is not there."""


class CommandFailed(Exception):
    """The command could not be started, or broke the form of its output; the text says what to do."""


class Command:
    """Make it with `start`; always `end` it."""

    def __init__(self, process: Process, hold: int) -> None:
        self._process, self._hold = process, hold
        self._words: deque[str] = deque(maxlen=WORDS_SHOWN)
        self._carriers = [asyncio.create_task(self._listen(), name=f"stderr of {process.pid}")]

    @classmethod
    async def start(
        cls, arguments: Sequence[str], prompt: str | None, environment: Mapping[str, str], folder: Path
    ) -> Command:
        """`prompt` is written to the command's stdin, which is then closed. Raises `CommandFailed`."""
        held, hold = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                leash.__file__,
                str(held),
                *arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=dict(environment),
                cwd=folder,
                pass_fds=(held,),
                start_new_session=True,
                limit=CHUNK_BYTES,
            )
        except (OSError, ValueError) as error:
            os.close(hold)
            raise CommandFailed(
                f"The command {arguments[0]!r} could not be started in {folder}: {error}."
            ) from error
        finally:
            os.close(held)
        command = cls(process, hold)
        command._carriers.append(asyncio.create_task(command._write(prompt or ""), name="stdin"))
        return command

    async def lines(self) -> AsyncIterator[bytes]:
        """Whole lines of stdout until it closes. Raises `CommandFailed` for one that is too long."""
        assert self._process.stdout is not None
        parts: list[bytes] = []
        size = 0
        while chunk := await self._process.stdout.read(CHUNK_BYTES):
            *complete, rest = chunk.split(b"\n")
            for line in complete:
                yield b"".join((*parts, line))
                parts, size = [], 0
            parts.append(rest)
            size += len(rest)
            if size > LINE_BYTES:
                raise CommandFailed(
                    f"The command printed a line of more than {LINE_BYTES // 1024 // 1024} MiB and was ended."
                )
        if size:
            yield b"".join(parts)

    async def why_it_ended(self) -> str:
        """After the last line: exit code and last words."""
        try:
            async with asyncio.timeout(KILL_SECONDS):
                code: int | None = await self._process.wait()
                await self._carriers[0]
        except TimeoutError:
            code = self._process.returncode
        what = "closed its output" if code is None else f"ended with exit code {code}"
        said = " | ".join(word for word in self._words if word.strip())
        return f"{what} (its last words: {said})" if said else what

    @property
    def missing(self) -> bool:
        """True where the program itself was not found."""
        return self._process.returncode == NOT_FOUND

    async def end(self, seconds: float = TERM_SECONDS) -> None:
        """Ask the whole group to end, then insist; returns when nothing of it is left, or the kernel keeps it."""
        if self._signal(signal.SIGTERM) and not await self._gone_within(seconds):
            self._signal(signal.SIGKILL)
            await self._gone_within(KILL_SECONDS)
        os.close(self._hold)
        for task in self._carriers:
            task.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)

    async def _write(self, prompt: str) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(prompt.encode())
            await stdin.drain()
        except (OSError, RuntimeError):
            pass  # it did not want to hear all of it
        finally:
            stdin.close()

    async def _listen(self) -> None:
        """Keep the last words; a command whose stderr is not read would block."""
        assert self._process.stderr is not None
        rest = ""
        while chunk := await self._process.stderr.read(CHUNK_BYTES):
            *complete, rest = (rest + chunk.decode("utf-8", "replace")).split("\n")
            rest = rest[-1_000:]
            self._words.extend(clean_text(line[:200]) for line in complete)
        if rest:
            self._words.append(clean_text(rest[:200]))

    def _signal(self, number: int) -> bool:
        """Signal what is left of the group; False where nothing is."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # some of it is not ours to signal; it still exists
        return True

    async def _gone_within(self, seconds: float) -> bool:
        """The kernel tells nobody when a group is gone: look, often at first."""
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + seconds, 0.005
        while self._signal(0):
            if loop.time() >= end:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)
        return True
