"""Every setting as a list: key, variables, flag, type, default and meaning, taken from the sections' types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from dromos.settings.sections import Section, Settings, section_in, table_of

PREFIX = "DROMOS_"
CONFIG_VARIABLE = "DROMOS_CONFIG"
OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "DROMOS_SERVER"})
"""Names with our prefix that are no settings of the server."""

FLAGS: Mapping[str, str] = MappingProxyType(
    {"data": "--data", "host": "--host", "port": "--port", "database": "--database"}
)
"""Settings that have a flag, by key."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What can be set: dotted key (`agents.NAME.graph`), variables (the first wins), flag, default, meaning."""

    key: str
    variables: tuple[str, ...]
    flag: str | None
    type: str
    default: Any
    required: bool
    description: str
    is_path: bool


def _type_text(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(f'"{word}"' for word in get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _type_text(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(_type_text(part) for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is tuple:
        return f"list of {_type_text(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return "table of text"
    return {bool: "true | false", int: "integer", float: "number", str: "text", Path: "path"}[annotation]


def _settings(model: type[Section], prefix: str, named: bool = False) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        key, annotation = f"{prefix}{name}", field.annotation
        if inner := section_in(annotation):
            yield from _settings(inner, f"{key}.", named)
        elif entry := table_of(annotation):
            yield from _settings(entry, f"{key}.NAME.", named=True)
        else:
            text = _type_text(annotation)
            variables = () if named else (PREFIX + key.replace(".", "_").upper(),)
            default = None if field.is_required() else field.default
            yield Setting(
                key=key,
                variables=(*variables, "OLLAMA_HOST") if key == "ollama_host" else variables,
                flag=FLAGS.get(key),
                type=text,
                default=str(default) if isinstance(default, Path) else default,
                required=field.is_required(),
                description=field.description or "",
                is_path=text == "path",
            )


SETTINGS: tuple[Setting, ...] = tuple(_settings(Settings, ""))
"""Every setting, for the documentation and its check."""
