"""Orders for a server process: be killed, or hold, at a commit boundary that it reaches.

A server that was started with `CrashPoints.env` looks for orders at every point (`dromos.ports.probe.Point`). It must
not know what a server does between them.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from dromos.ports.probe import Moment, Point


class CrashPoints:
    """The orders to one server at a time, over all its starts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def env(self) -> dict[str, str]:
        """For the server's environment."""
        return {"DROMOS_TEST_PROBE": str(self._path)}

    def kill(self, point: Point, moment: Moment, times: int = 1) -> None:
        """The process kills itself where it reaches this the `times`-th time from now on."""
        self._give(f"kill {point.at(moment)} {times}")

    def hold(self, point: Point, moment: Moment, times: int = 1) -> None:
        """The thread that reaches this waits for `let_go`: the event loop, but at `written` a thread of the store."""
        self._beside("open").unlink(missing_ok=True)
        self._give(f"hold {point.at(moment)} {times}")

    def let_go(self) -> None:
        self._beside("open").touch()

    @property
    def hit(self) -> bool:
        """Whether the last order was carried out, or is being."""
        return self._beside("hit").exists()

    def withdraw(self) -> bool:
        """Take an order back that nothing came to; False where it was carried out."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    def reached(self) -> Counter[str]:
        """How often each moment was reached, by `POINT.MOMENT`."""
        file = self._beside("reached")
        return Counter(file.read_text().split()) if file.exists() else Counter()

    def _give(self, order: str) -> None:
        self._beside("hit").unlink(missing_ok=True)
        draft = self._beside("draft")
        draft.write_text(order)
        os.replace(draft, self._path)

    def _beside(self, name: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{name}")
