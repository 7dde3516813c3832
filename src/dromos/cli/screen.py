"""Where `dromos chat` writes: a terminal with a box that is drawn again and again, or a plain pipe.

It must not know the server or what a run is: it is given text, notes and what the box shows.
"""

from __future__ import annotations

import sys
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from dromos.cli.words import visible

ROWS_HELD = 6
"""An unfinished paragraph is drawn anew with each piece; of a longer one the beginning is written for good."""


class Screen(Protocol):
    def text(self, added: str) -> None:
        """Append to the answer."""

    def end_text(self) -> None:
        """The message is complete; what follows begins on a new line."""

    def note(self, line: str) -> None:
        """A line beside the answer, e.g. that a tool was called."""

    def box(self, shown: RenderableType, keys: str) -> None:
        """Replace the box, and the line below it that says what the keys do."""

    def hint(self, text: str) -> None:
        """Something to know at this moment, until another hint ("": none)."""

    def close(self, line: str, colour: str) -> None:
        """Write the last line for good."""


class PlainScreen:
    """The answer as it is to standard output; everything else, once at the end, to standard error."""

    def __init__(self) -> None:
        self._open = False

    def text(self, added: str) -> None:
        sys.stdout.write(added)
        sys.stdout.flush()
        self._open = not added.endswith("\n")

    def end_text(self) -> None:
        if self._open:
            self.text("\n")

    def note(self, line: str) -> None:
        print(line, file=sys.stderr)

    def box(self, shown: RenderableType, keys: str) -> None:
        return None

    def hint(self, text: str) -> None:
        if text:
            self.note(text)

    def close(self, line: str, colour: str) -> None:
        self.end_text()
        if line:
            print(line, file=sys.stderr)


class SilentScreen(PlainScreen):
    """Nothing: for `--json`, whose document is printed at the end."""

    def text(self, added: str) -> None:
        return None

    def note(self, line: str) -> None:
        return None

    def close(self, line: str, colour: str) -> None:
        return None


class TerminalScreen:
    """Whole lines scroll up and stay; below them the line being written, and the box."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line = ""
        self._box: RenderableType = Text()
        self._keys = self._hint = ""
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def text(self, added: str) -> None:
        *whole, self._line = (self._line + visible(added)).split("\n")
        rows = Text(self._line).wrap(self._console, self._console.width)
        if len(rows) > ROWS_HELD:
            whole += [row.plain for row in rows[:-1]]
            self._line = rows[-1].plain
        if whole:
            self._console.print(Text("\n".join(whole)))
        self._draw()

    def end_text(self) -> None:
        if self._line:
            self._console.print(Text(self._line))
        self._line = ""
        self._draw()

    def note(self, line: str) -> None:
        self._console.print(Text(visible(line), "dim"))

    def box(self, shown: RenderableType, keys: str) -> None:
        self._box, self._keys = shown, keys
        self._draw()

    def hint(self, text: str) -> None:
        self._hint = text
        self._draw()

    def close(self, line: str, colour: str) -> None:
        self.end_text()
        self._live.stop()
        if line:
            self._console.print(Text(line, colour))

    def _draw(self) -> None:
        rows: list[RenderableType] = [Text(self._line)] if self._line else []
        rows.append(self._box)
        if self._keys or self._hint:
            keys = Text(self._keys, "dim", no_wrap=True, overflow="ellipsis")
            keys.append(f"{' · ' if self._keys else ''}{self._hint}" if self._hint else "", "yellow")
            rows.append(keys)
        self._live.update(Group(*rows), refresh=True)
