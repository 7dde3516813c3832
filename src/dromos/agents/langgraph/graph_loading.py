"""Finding a graph by its name: `module:attribute`, or `./file.py:attribute` as a `langgraph.json` writes it.

What is found may be a compiled graph, a graph still to be compiled, or a function (plain or async, with or without a
`config` argument) that makes one. It runs the person's own code; every failure becomes a text that says the cure.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.pregel import Pregel

from dromos.agents.langgraph.failures import ConfigurationInvalid, safe_text

Graph = Pregel[Any, Any, Any, Any]


def load_attribute(reference: str, root: Path) -> Any:
    """The object that `reference` names; modules and files are looked for under `root` first.

    Raises `ConfigurationInvalid`.
    """
    place, _, attribute = reference.rpartition(":")
    if not place or not attribute:
        raise ConfigurationInvalid(f"{reference!r} is not written as module:attribute.")
    try:
        module = _from_file(place, root) if place.endswith(".py") else _from_module(place, root)
    except Exception as error:
        text = f"{type(error).__name__}: {safe_text(error)}"
        raise ConfigurationInvalid(
            f"{place} cannot be imported ({text}). Correct it, or install what it needs, and start again."
        ) from error
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigurationInvalid(
                f"{place} has no {attribute!r}. Name the graph or the function making it."
            )
        found = getattr(found, part)
    return found


async def make_graph(found: Any, reference: str, config: dict[str, Any] | None = None) -> Graph:
    """The compiled graph of what `load_attribute` found. Raises `ConfigurationInvalid`."""
    if callable(found) and not isinstance(found, Pregel):
        try:
            found = found(config or {}) if takes_config(found) else found()
            if inspect.isawaitable(found):
                found = await found
        except Exception as error:
            raise ConfigurationInvalid(
                f"{reference} failed to make its graph ({type(error).__name__}: {safe_text(error)})."
            ) from error
    if not isinstance(found, Pregel) and hasattr(found, "compile"):
        found = found.compile()
    if not isinstance(found, Pregel):
        raise ConfigurationInvalid(
            f"{reference} is a {type(found).__name__}, not a LangGraph graph. Name a compiled graph, or a function"
            " that returns one."
        )
    return found


def takes_config(factory: Callable[..., Any]) -> bool:
    """True for a function that must be called anew for each attempt, with its configuration."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


def check_fields(graph: Graph, reference: str, input_field: str | None, output_field: str | None) -> None:
    """Raises `ConfigurationInvalid` where the graph has no place for a message, or no answer."""
    channels = graph.channels
    for field in (input_field, output_field):
        if field is not None and field not in channels:
            known = ", ".join(sorted(name for name in channels if not name.startswith(("__", "branch:"))))
            raise ConfigurationInvalid(f"The state of {reference} has no field {field!r}. It has: {known}.")
    if "messages" not in channels and (input_field is None or output_field is None):
        raise ConfigurationInvalid(
            f"The state of {reference} has no `messages`. Set `input` and `output` of this agent in dromos.toml to the"
            " fields that take the person's message and hold the answer."
        )


def _from_module(name: str, root: Path) -> Any:
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(name)


def _from_file(name: str, root: Path) -> Any:
    path = (root / name).resolve()
    module_name = f"dromos_agent_{path.stem}_{abs(hash(str(path))):x}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module
