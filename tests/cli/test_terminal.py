"""`dromos chat` on a terminal: a real pseudo-terminal, keys in, what is drawn out."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dromos.testing.processes import clean_environment
from dromos.testing.waiting import within

pytestmark = pytest.mark.slow(60)


class Terminal:
    """The near end of a pseudo-terminal of 70 by 20."""

    def __init__(self, near: int, process: asyncio.subprocess.Process) -> None:
        self.near, self.process = near, process
        self.drawn = ""
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(near, self._read)

    def _read(self) -> None:
        try:
            piece = os.read(self.near, 65536)
        except OSError:  # Linux: the far end is closed
            piece = b""
        if not piece:
            asyncio.get_running_loop().remove_reader(self.near)
        self.drawn += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piece.decode(errors="replace"))
        self._more.set()

    def press(self, keys: str) -> None:
        os.write(self.near, keys.encode())

    async def shows(self, text: str, seconds: float = 20) -> None:
        """Until the text was drawn behind what was awaited before; then that is left behind."""

        async def seen() -> None:
            while text not in self.drawn:
                self._more.clear()
                await self._more.wait()

        try:
            await within(seconds, seen(), repr(text))
        except AssertionError as late:
            raise AssertionError(f"{late}; drawn: {self.drawn[-2000:]!r}") from None
        self.drawn = self.drawn.partition(text)[2]


@asynccontextmanager
async def terminal(*arguments: str, cwd: Path) -> AsyncIterator[Terminal]:
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 70, 0, 0))

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dromos", *arguments),
        stdin=far,
        stdout=far,
        stderr=far,
        cwd=cwd,
        env=clean_environment() | {"TERM": "xterm-256color"},
        preexec_fn=own_terminal,
    )
    os.close(far)
    shown = Terminal(near, process)
    try:
        yield shown
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        asyncio.get_running_loop().remove_reader(near)
        os.close(near)


async def test_a_conversation_goes_on_until_ctrl_d(tmp_path: Path, server_url: str) -> None:
    async with terminal("chat", "--server", server_url, cwd=tmp_path) as chat:
        await chat.shows("› ")
        chat.press("!say first answer\r")
        await chat.shows("first answer")
        await chat.shows("✓ done")
        await chat.shows("› ")
        chat.press("/continue\r")
        await chat.shows("run_not_resumable")
        await chat.shows("› ")
        chat.press("!say second answer\r")
        await chat.shows("second answer")
        await chat.shows("✓ done")
        await chat.shows("› ")
        chat.press("\x04")
        await chat.shows("go on: dromos chat --conversation")
        assert await within(10, chat.process.wait(), "the end") == 0


async def test_ctrl_c_stops_the_answer_and_not_the_conversation(tmp_path: Path, server_url: str) -> None:
    async with terminal("chat", "--server", server_url, cwd=tmp_path) as chat:
        await chat.shows("› ")
        chat.press("!tokens 5000 20\r")
        await chat.shows("w3 ")
        await chat.shows("● running")
        chat.press("\x03")
        await chat.shows("■ stopped · by you")
        await chat.shows("› ")
        chat.press("!say still here\r")
        await chat.shows("still here")


async def test_a_long_paragraph_is_drawn_to_its_end(tmp_path: Path, server_url: str) -> None:
    async with terminal("chat", "!tokens 300 400", "--server", server_url, cwd=tmp_path) as chat:
        await chat.shows("w300")
        await chat.shows("✓ done")
        assert await within(10, chat.process.wait(), "the end") == 0
