"""`make check`: every static check, two at a time, each with its time and, where it failed, all it said.

It runs programs and reports; what is right is decided by those programs and their configuration.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

# The longest first, so that the short ones fill the gaps. Each name says what to repair.
CHECKS: dict[str, list[str]] = {
    "types": ["mypy"],
    "house": ["pytest", "tests/house", "-q", "-p", "no:cacheprovider"],
    "documents": ["mkdocs", "build", "--strict"],  # never --quiet: it would silence what --strict counts
    "imports": ["lint-imports", "--no-cache"],
    "generated documents": ["python", "docs/generate.py", "--check"],
    "lint": ["ruff", "check", "--quiet"],
    "formatting": ["ruff", "format", "--check", "--quiet"],
    "locks": ["python", "locks/relock.py", "--check"],
}


@dataclass(frozen=True)
class Outcome:
    name: str
    passed: bool
    seconds: float
    output: str


def run(name: str) -> Outcome:
    program, *arguments = CHECKS[name]
    began = time.monotonic()
    done = subprocess.run(
        [str(BIN / program), *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    return Outcome(name, done.returncode == 0, time.monotonic() - began, done.stdout)


def main() -> int:
    failed = []
    began = time.monotonic()
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        for future in as_completed([pool.submit(run, name) for name in CHECKS]):
            outcome = future.result()
            print(
                f"{'ok    ' if outcome.passed else 'FAILED'} {outcome.name} ({outcome.seconds:.1f} s)",
                flush=True,
            )
            if not outcome.passed:
                failed.append(outcome.name)
                print(outcome.output.rstrip() + "\n", flush=True)
    print(f"{time.monotonic() - began:.0f} s in all" + (f"; repair: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
