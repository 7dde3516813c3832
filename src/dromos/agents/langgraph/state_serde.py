"""How the engine's values become bytes, and back, without ever losing one silently.

The format is LangGraph's own msgpack (`JsonPlusSerializer`), so what it stores can be read by it. Reading differs in
one thing: a value whose class is gone raises `UnreadableValue` naming the class, where LangGraph would hand the graph
the bare data, or None, and let it go on. This module knows values only, no tables and no runs.
"""

from __future__ import annotations

import importlib
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send

_OPTIONS = ormsgpack.OPT_NON_STR_KEYS
_CONSTRUCTORS = frozenset(
    {
        jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG,
        jsonplus.EXT_CONSTRUCTOR_POS_ARGS,
        jsonplus.EXT_CONSTRUCTOR_KW_ARGS,
        jsonplus.EXT_METHOD_SINGLE_ARG,
        jsonplus.EXT_PYDANTIC_V1,
        jsonplus.EXT_PYDANTIC_V2,
    }
)


class UnreadableValue(Exception):
    """A stored value that cannot be rebuilt; the message says which class and why."""


class StateSerializer(JsonPlusSerializer):
    """LangGraph's serializer with strict reading. `dumps_typed` is unchanged."""

    def __init__(self) -> None:
        super().__init__(allowed_msgpack_modules=True)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value of `data` (type name, bytes). Raises `UnreadableValue`."""
        kind, payload = data
        try:
            return _unpack(payload) if kind == "msgpack" else super().loads_typed(data)
        except UnreadableValue:
            raise
        except Exception as error:
            raise UnreadableValue(f"it is damaged or in an unknown format ({kind}: {error})") from error


def _unpack(payload: bytes) -> Any:
    reader = _Reader()
    try:
        return reader.unpack(payload)
    except ValueError as error:
        raise UnreadableValue(reader.reason or str(error)) from error


class _Reader:
    """One reading. Keeps the first reason, because msgpack hides what is raised in its hook."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def unpack(self, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self._rebuild, option=_OPTIONS)

    def _rebuild(self, code: int, data: bytes) -> Any:
        if code == jsonplus.EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(self.unpack(data))
        if code not in _CONSTRUCTORS:
            return self._by_langgraph(code, data)
        parts = self.unpack(data)
        module, name, payload = parts[0], parts[1], parts[2]
        try:
            target = getattr(importlib.import_module(module), name)
            return _construct(code, target, payload, parts)
        except Exception as error:
            raise self._refuse(
                f"its class {module}.{name} cannot be used here ({type(error).__name__}: {error})"
            ) from error

    def _by_langgraph(self, code: int, data: bytes) -> Any:
        value = _LENIENT(code, data)
        if value is None:
            raise self._refuse(
                f"it needs a part of the format that is not understood here (extension {code})"
            )
        return value

    def _refuse(self, reason: str) -> ValueError:
        self.reason = self.reason or reason
        return ValueError(reason)


def _construct(code: int, target: Any, payload: Any, parts: Any) -> Any:
    if code == jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG:
        return target(payload)
    if code == jsonplus.EXT_CONSTRUCTOR_POS_ARGS:
        if target is Send and len(payload) == 3:
            return Send(payload[0], payload[1], timeout=payload[2])
        return target(*payload)
    if code == jsonplus.EXT_METHOD_SINGLE_ARG:
        return getattr(target, parts[3])(payload)
    if code == jsonplus.EXT_CONSTRUCTOR_KW_ARGS:
        return target(**payload)
    try:
        return target(**payload)
    except Exception:
        # The class is there but its rules changed: LangGraph's way is to take the fields as they are.
        construct = getattr(target, "model_construct", None) or target.construct
        return construct(**payload)


_LENIENT = jsonplus._create_msgpack_ext_hook(True)
