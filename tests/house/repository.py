"""Where things are, for the tests of the house: the product's modules, the repository's own texts."""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dromos"
DOCS = ROOT / "docs"

# Folders that are made, not written.
BUILT = {
    *(".git", ".venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"),
    *(".import_linter_cache", "node_modules", "dist", "site", "static", "dromos-data", "test-artifacts"),
}


def modules() -> list[Path]:
    """Every Python module of the product."""
    return sorted(path for path in SOURCE.rglob("*.py") if not BUILT & set(path.parts))


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file a person wrote, with its content."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in BUILT and not name.endswith(".egg-info")]
        for name in names:
            path = Path(folder, name)
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a picture


def shown(path: Path) -> str:
    """A path as a person reads it: from the repository's root."""
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    """A file as Python parses it.

    Nothing is collected meanwhile: what another test left behind may tell of its end in a log whose traceback is
    parsed too, and a parse inside of a parse is an error of Python 3.11.
    """
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()
