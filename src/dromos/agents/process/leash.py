"""Holds a command on a leash: it and all its children end when whoever holds the other end lets go, also by dying.

Run as a program: `leash.py FD COMMAND…`. FD is the reading end of a pipe of which the server alone has the writing
end; the kernel closes that when the server is gone, however it went. Uses the standard library only, so that it
starts at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""


def main(arguments: list[str]) -> int:
    hold, command = int(arguments[0]), arguments[1:]
    signal.signal(
        signal.SIGTERM, _stay
    )  # the group is asked to end; whoever asked waits for this process too
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    threading.Thread(target=_watch, args=(hold,), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _stay(number: int, frame: object) -> None:
    """A handler rather than SIG_IGN, which the command would inherit."""


def _watch(hold: int) -> None:
    while os.read(hold, 1):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
