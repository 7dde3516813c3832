"""Write the lock files beside this script from `pyproject.toml`, or say whether they are current.

    python locks/relock.py             solve again, keeping locked versions where they still fit
    python locks/relock.py --upgrade   solve again with the newest versions
    python locks/relock.py --check     no network: exit 1 when a lock is stale or names a host

| file | holds | installed by |
|---|---|---|
| `installer.txt` | the pinned installer | every target |
| `run.txt` | the product, the small local model, what builds the page | `make run` |
| `dev.txt` | all of it and what tests, checks and documents need | `make setup` |
| `bench.txt` | all of it and what benchmarks compare with | `make bench` |

Every file carries hashes, holds for all platforms, and names no host. Its first line is a digest of what it
was solved from, so that staleness is seen without a network. It must not know what the packages are for.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

# In this order: each file is held to the versions of the one before it, so one environment can take them all.
LOCKS: dict[str, list[str]] = {
    "installer": ["--group", "pyproject.toml:installer"],
    "run": ["pyproject.toml", "--extra", "local", "--group", "build"],
    "dev": ["pyproject.toml", "--extra", "local", "--group", "dev", "--constraint", "locks/run.txt"],
    "bench": [
        "pyproject.toml",
        "--extra",
        "local",
        "--group",
        "dev",
        "--group",
        "bench",
        "--constraint",
        "locks/dev.txt",
    ],
}
FLAGS = [
    "--universal",
    "--generate-hashes",
    "--no-header",
    "--no-annotate",
    "--python-version",
    "3.11",
    "--quiet",
]
PREFIX = "# solved from sha256:"


def digest(name: str) -> str:
    """SHA-256 over everything in `pyproject.toml` that decides the versions of one lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    inputs = {
        "lock": [name, *LOCKS[name], *FLAGS],
        "python": project["project"]["requires-python"],
        "dependencies": project["project"]["dependencies"],
        "extras": project["project"].get("optional-dependencies", {}),
        "groups": project["dependency-groups"],
        "uv": project.get("tool", {}).get("uv", {}),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def faults() -> list[str]:
    """What is wrong with the lock files, one sentence each; empty when all is well."""
    found = []
    for name in LOCKS:
        path = HERE / f"{name}.txt"
        text = path.read_text() if path.exists() else ""
        if not text.startswith(f"{PREFIX}{digest(name)}\n"):
            found.append(f"locks/{name}.txt is stale: run `make lock` and commit the result")
        if re.search(r"://|--(?:index|extra-index|find-links)", text):
            found.append(f"locks/{name}.txt names a host or an index: write it with `make lock` only")
        bare = [
            line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line) and not line.endswith("\\")
        ]
        if bare:
            found.append(f"locks/{name}.txt: {bare[0]!r} has no hash")
    strays = {path.name for path in HERE.glob("*.txt")} - {f"{name}.txt" for name in LOCKS}
    found += [f"locks/{stray} is written by nobody: remove it" for stray in sorted(strays)]
    return found


def solve(*, upgrade: bool) -> None:
    """Write every lock file. Needs `uv` beside this interpreter and a package index."""
    uv = Path(sys.executable).with_name("uv")
    for name, sources in LOCKS.items():
        target = HERE / f"{name}.txt"
        command = [str(uv), "pip", "compile", *sources, *FLAGS, "--output-file", str(target)]
        subprocess.run([*command, *(["--upgrade"] if upgrade else [])], cwd=ROOT, check=True)
        target.write_text(f"{PREFIX}{digest(name)}\n{target.read_text()}")
        print(f"locks/{name}.txt written")


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        problems = faults()
        print("\n".join(problems) or "locks are current")
        return 1 if problems else 0
    if arguments not in ([], ["--upgrade"]):
        print(__doc__)
        return 2
    solve(upgrade=bool(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
