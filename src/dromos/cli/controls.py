"""Keys of a run on a terminal: one key stops it, one opens a line for a message that waits behind it.

It must not know runs or the server: it is told what to call.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])?|.", re.DOTALL)
_NAMES = {
    "\x1b": "escape",
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
    "\x04": "end",
}


class Keys:
    """Gives `on_key` every key while it is open: a character, or a name such as `enter`, `up`, `escape`.

    A no-op where standard input is no terminal. Ctrl-C stays a signal.
    """

    def __init__(self, on_key: Callable[[str], None]) -> None:
        self._on_key = on_key
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._before: Any = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty() and os.name == "posix":
            import termios
            import tty

            self._before = termios.tcgetattr(0)
            tty.setcbreak(0)
            asyncio.get_running_loop().add_reader(0, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            import termios

            asyncio.get_running_loop().remove_reader(0)
            termios.tcsetattr(0, termios.TCSADRAIN, self._before)
            self._before = None

    def _read(self) -> None:
        data = os.read(0, 4096)
        if not data:
            asyncio.get_running_loop().remove_reader(0)
            return
        for found in _ESCAPE.findall(self._decoder.decode(data)):
            name = _NAMES.get(found, found)
            if len(found) == 1 or found in _NAMES:
                self._on_key(name)


class Controls:
    """What the keys mean: single letters act, and after `q` a line is written until Enter or Escape.

    `actions` by key; `submit` takes the line. `line` is what is written now, None where nothing is.
    """

    def __init__(self, actions: dict[str, Callable[[], None]], submit: Callable[[str], None]) -> None:
        self._actions, self._submit = actions, submit
        self.line: str | None = None

    def press(self, key: str) -> None:
        if self.line is None:
            if key == "q":
                self.line = ""
            elif key in self._actions:
                self._actions[key]()
        elif key == "enter":
            line, self.line = self.line, None
            if line.strip():
                self._submit(line)
        elif key == "escape":
            self.line = None
        elif key == "backspace":
            self.line = self.line[:-1]
        elif key == "clear":
            self.line = ""
        elif len(key) == 1 and key.isprintable():
            self.line += key

    def shown(self, keys: str) -> str:
        """The line under a box: what is being written, else what the keys do."""
        return f"queue › {self.line}▏  Enter sends it · Esc leaves" if self.line is not None else keys
