"""Reading an existing `langgraph.json`: its graphs become agents, so that a LangGraph project runs here unchanged.

Honoured: `graphs` (a path or an object with `path` and `description`), `dependencies` that are folders (put on the
import path), `env` (a file or an object). Images, stores and the rest concern other ways to deploy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE_NAME = "langgraph.json"


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One graph: `graph` is an absolute `file.py:attribute` or a `module:attribute`."""

    graph: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """What the file says. `environ` are variables for the graphs' own code; `folders` belong on the import path."""

    graphs: Mapping[str, GraphEntry]
    environ: Mapping[str, str]
    folders: tuple[Path, ...]

    def enter(self, environ: MutableMapping[str, str]) -> None:
        """Put folders on the import path, and variables into `environ` where they are not set yet."""
        for folder in reversed(self.folders):
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
        for name, value in self.environ.items():
            environ.setdefault(name, value)


def read_project(path: Path) -> Project:
    """Read the file. Raises `ValueError` saying what is wrong with it and where."""
    try:
        body = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
    graphs = body.get("graphs") if isinstance(body, dict) else None
    if not isinstance(graphs, dict):
        raise ValueError(f'{path} has no "graphs": {{name: "./file.py:attribute"}}.')
    folder = path.resolve().parent
    return Project(
        graphs={str(name): _entry(path, folder, name, value) for name, value in graphs.items()},
        environ=_environ(folder, body.get("env")),
        folders=tuple(_folders(folder, body.get("dependencies"))),
    )


def _entry(path: Path, folder: Path, name: Any, value: Any) -> GraphEntry:
    description = ""
    if isinstance(value, dict):
        description = str(value.get("description") or "")
        value = value.get("path")
    if not isinstance(value, str) or ":" not in value:
        raise ValueError(
            f'{path}: graph {name!r} is not written as "./file.py:attribute" or "module:attribute".'
        )
    place, _, attribute = value.rpartition(":")
    if place.endswith(".py"):
        place = str((folder / place).resolve())
    return GraphEntry(f"{place}:{attribute}", description)


def _folders(folder: Path, dependencies: Any) -> list[Path]:
    found = [folder]
    for dependency in dependencies if isinstance(dependencies, list) else []:
        place = (folder / str(dependency)).resolve()
        if str(dependency).startswith(".") and place.is_dir():
            found.extend(part for part in (place, place / "src") if part.is_dir() and part not in found)
    return found


def _environ(folder: Path, env: Any) -> dict[str, str]:
    if isinstance(env, dict):
        return {str(name): str(value) for name, value in env.items()}
    if not isinstance(env, str):
        return {}
    try:
        lines = (folder / env).read_text("utf-8").splitlines()
    except OSError:
        return {}
    values: dict[str, str] = {}
    for line in lines:
        name, found, value = line.strip().removeprefix("export ").partition("=")
        if found and name.strip() and not name.lstrip().startswith("#"):
            values[name.strip()] = value.strip().strip("'\"")
    return values
