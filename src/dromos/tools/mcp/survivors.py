"""What outlives a server that was killed: process groups it had started are ended by a small program beside it.

Run as a program it reads from its stdin which groups there are (`+PGID`, `-PGID`, one a line). The kernel closes that
pipe when the server is gone, however it went; what is left of the groups then has a moment to end by itself, and is
terminated and killed. One such program serves the whole process, from the first group on. Uses the standard library
only, so that it starts at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

GRACE = 2.0
"""Seconds for the groups to end by themselves: their input is closed."""
KILL_AFTER = 1.0
_POLL = 0.05


class Watch:
    """Tells the program beside us. Raises nothing: a group that cannot be watched is one that may survive a kill."""

    def __init__(self) -> None:
        self._program: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def add(self, group: int) -> None:
        self._tell(b"+%d\n" % group)

    def remove(self, group: int) -> None:
        self._tell(b"-%d\n" % group)

    def _tell(self, line: bytes) -> None:
        with self._lock:
            try:
                if self._program is None:
                    self._program = self._start()
                assert self._program.stdin is not None
                self._program.stdin.write(line)
            except OSError:
                pass

    def _start(self) -> subprocess.Popen[bytes]:
        program = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the server
            bufsize=0,
        )
        atexit.register(self._close)
        return program

    def _close(self) -> None:
        program = self._program
        if program is not None and program.stdin is not None:
            program.stdin.close()
            program.wait()


watch = Watch()
"""That of this process."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the server, and with nothing else
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        group = int(line[1:])
        if line.startswith(b"+"):
            groups.add(group)
        else:
            groups.discard(group)
    _wait(groups, GRACE)
    _signal(groups, signal.SIGTERM)
    _wait(groups, KILL_AFTER)
    _signal(groups, signal.SIGKILL)


def _wait(groups: set[int], seconds: float) -> None:
    end = time.monotonic() + seconds
    while _signal(groups, 0) and time.monotonic() < end:
        time.sleep(_POLL)


def _signal(groups: Iterable[int], number: int) -> bool:
    """Signal what is left of the groups; False where nothing is."""
    left = False
    for group in groups:
        try:
            os.killpg(group, number)
            left = True
        except PermissionError:
            left = True
        except ProcessLookupError:
            pass
    return left


if __name__ == "__main__":
    main()
