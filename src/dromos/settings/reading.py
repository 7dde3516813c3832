"""From file, environment and flags to `Settings`, or to one `SettingsError` with everything that is wrong.

It must not know what a value is used for; what is allowed stands in `sections`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from dromos.settings.catalogue import CONFIG_VARIABLE, FLAGS, OTHER_VARIABLES, PREFIX, SETTINGS, Setting
from dromos.settings.sections import RetryCode, Section, Settings, masked, section_in, table_of

FILE_NAME = "dromos.toml"
_FOREIGN = re.compile(r"DROMOS_(TEST_\w+|SERVICE_(HOST|PORT\w*)|PORT_\d+_\w+)")
"""Test probes, and what Kubernetes sets for a service called `dromos`."""
_BY_KEY = {setting.key: setting for setting in SETTINGS}


class SettingsError(Exception):
    """Settings that cannot be used. `problems` holds one text for each, with where it stands and the cure."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Read everything. `flags` by key; those that are None were not given. `config` wins over `DROMOS_CONFIG`.

    Relative paths in the file are meant from its folder, all others from the working `directory`.
    Raises SettingsError with everything that is wrong.
    """
    environment = os.environ if environment is None else environment
    directory = (directory or Path.cwd()).absolute()
    reading = _Reading(directory)
    file = _find_file(config, environment, directory, reading.problems)
    root = file.parent if file else directory
    if file is not None:
        reading.take_file(file)
    reading.take_environment(environment)
    for key, value in (flags or {}).items():
        if value is not None:
            reading.put(key, value, "flag", f"{FLAGS[key]}", directory)
    settings = reading.finish(root, file)
    if settings is None or reading.problems:
        raise SettingsError(reading.problems)
    return settings


def _find_file(
    config: Path | None, environment: Mapping[str, str], directory: Path, problems: list[str]
) -> Path | None:
    named = config or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    if named is None:
        return directory / FILE_NAME if (directory / FILE_NAME).is_file() else None
    path = directory / named.expanduser()
    if path.is_file():
        return path
    how = "--config" if config else CONFIG_VARIABLE
    problems.append(f"{how}: there is no file {path}; name an existing one or leave {how} out")
    return None


class _Reading:
    """Values collected so far by dotted key, each with its source and how to name it in an error."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.problems: list[str] = []
        self.values: dict[tuple[str, ...], Any] = {}
        self.sources: dict[str, str] = {}
        self.places: dict[str, str] = {}

    def put(
        self, key: str, value: Any, source: str, place: str, base: Path, path: tuple[str, ...] = ()
    ) -> None:
        known = _BY_KEY.get(_general(path) if path else key)
        if known is not None and known.is_path and isinstance(value, (str, Path)):
            value = base / Path(value).expanduser()
        self.values[path or tuple(key.split("."))] = value
        self.sources[key], self.places[key] = source, place

    def take_file(self, file: Path) -> None:
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            self.problems.append(f"{file}: not valid TOML: {error}")
        except (OSError, UnicodeDecodeError) as error:
            self.problems.append(f"{file}: cannot be read: {error}; make it a readable UTF-8 text")
        else:
            self._take_table(content, Settings, (), file)

    def _take_table(
        self, table: dict[str, Any], model: type[Section], path: tuple[str, ...], file: Path
    ) -> None:
        for name, value in table.items():
            here = (*path, name)
            key = ".".join(here)
            field = model.model_fields.get(name)
            if field is None:
                self.problems.append(f"{file}: unknown key `{key}`; {_nearest(name, path, model)}")
                continue
            section, entry = section_in(field.annotation), table_of(field.annotation)
            if section is None and entry is None:
                self.put(key, value, f"file:{file}", f"{file}: `{key}`", file.parent, here)
            elif not isinstance(value, dict):
                self.problems.append(f"{file}: `{key}` is a table; write [{key}{'.NAME' if entry else ''}]")
            elif section is not None:
                self._take_table(value, section, here, file)
            elif entry is not None:
                for each, inner in value.items():
                    if isinstance(inner, dict):
                        self.places[f"{key}.{each}"] = f"{file}: [{key}.{each}]"
                        self.values.setdefault((*here, each), {})
                        self._take_table(inner, entry, (*here, each), file)
                    else:
                        self.problems.append(f"{file}: `{key}.{each}` is a table; write [{key}.{each}]")

    def take_environment(self, environment: Mapping[str, str]) -> None:
        """An empty variable counts as not set."""
        for setting in SETTINGS:
            for name in reversed(setting.variables):
                if value := environment.get(name):
                    self.put(setting.key, value, f"env:{name}", name, self.directory)
        known = {name for setting in SETTINGS for name in setting.variables} | OTHER_VARIABLES
        for name in environment:
            if name.startswith(PREFIX) and name not in known and not _FOREIGN.fullmatch(name):
                near = difflib.get_close_matches(name, known, 1, 0.6)
                cure = f"did you mean {near[0]}?" if near else "remove it, or see `dromos doctor --settings`"
                self.problems.append(f"{name}: unknown setting; {cure}")

    def finish(self, root: Path, file: Path | None) -> Settings | None:
        """Check and freeze. Files that are only looked for (`mcp.json`) come in here."""
        self.values.setdefault(("data",), self.directory / "dromos-data")
        data = self.values[("data",)]
        self._look_for("mcp", [root / "mcp.json", *([data / "mcp.json"] if isinstance(data, Path) else [])])
        self._look_for("langgraph_json", [root / "langgraph.json"])
        try:
            settings = Settings.model_validate(_nested(self.values))
        except ValidationError as error:
            self.problems += [self._told(dict(each)) for each in error.errors()]
            return None
        for agent in settings.agents:
            self.sources.setdefault(f"agents.{agent}", "file")
        settings._sources, settings._root, settings._file = self.sources, root, file
        return settings

    def _look_for(self, key: str, places: list[Path]) -> None:
        named = self.values.get((key,))
        if isinstance(named, Path) and not named.is_file():
            self.problems.append(
                f"{self.places[key]}: there is no file {named}; correct the path or leave it out"
            )
        if named is None:
            self.values[(key,)] = next((place for place in places if place.is_file()), None)

    def _told(self, error: dict[str, Any]) -> str:
        loc = [str(part) for part in error["loc"] if part != "[key]"]
        while loc and ".".join(loc) not in self.places and len(loc) > 1 and error["type"] != "missing":
            loc.pop()
        key = ".".join(loc)
        place = self.places.get(key, f"`{key}`")
        if error["type"] == "missing":
            table = self.places.get(".".join(loc[:-1]), place)
            return f"{table}: `{loc[-1]}` is missing: {_BY_KEY[_general(tuple(loc))].description}"
        if error["loc"][-1] == "[key]":
            allowed = {
                "retries": ", ".join(get_args(RetryCode)),
                "models": "a pattern without spaces such as `openai:*`",
            }.get(loc[0], "letters, digits, `-`, `_` and `.`")
            return f"{place}: this name cannot be used; allowed: {allowed}"
        setting = _BY_KEY.get(_general(tuple(loc)))
        if setting is None:  # a whole table
            return f"{place}: {error['ctx']['error']}"
        value = self.values.get(tuple(loc))
        shown = "" if key == "database" else f", not {masked(json.dumps(value, default=str))}"
        told = f"{place}: {_cure(error, setting)}{shown}"
        if place == "DROMOS_PORT" and str(value).startswith("tcp://"):
            told += " (Kubernetes sets this for a service called `dromos`: set `enableServiceLinks: false`)"
        return told


def _general(path: tuple[str, ...]) -> str:
    """The documented key of a concrete one: `agents.writer.graph` is `agents.NAME.graph`."""
    named = path[0] in ("agents", "models", "retries") and len(path) > 2
    return ".".join((path[0], "NAME", *path[2:]) if named else path)


def _nearest(name: str, path: tuple[str, ...], model: type[Section]) -> str:
    here = difflib.get_close_matches(name, model.model_fields, 1, 0.6)
    if here:
        return f"did you mean `{'.'.join((*path, here[0]))}`?"
    elsewhere = {key.rpartition(".")[2]: key for key in reversed(_BY_KEY)}
    near = difflib.get_close_matches(name, elsewhere, 1, 0.75)
    if near:
        return f"did you mean `{elsewhere[near[0]]}`?"
    return f"known here: {', '.join(f'`{known}`' for known in model.model_fields)}"


def _cure(error: dict[str, Any], setting: Setting) -> str:
    """What to write instead, from pydantic's kind of error."""
    context, kind = error.get("ctx", {}), error["type"]
    bounds = {
        "greater_than_equal": ("at least", "ge"),
        "less_than_equal": ("at most", "le"),
        "greater_than": ("more than", "gt"),
    }
    if kind in bounds:
        words, name = bounds[kind]
        return f"write a number of {words} {context[name]:g}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"write one of {setting.type.replace(' | ', ', ')}"
    if kind == "string_pattern_mismatch":
        return "write `provider:model`" if setting.key.startswith("models.") else "write `module:attribute`"
    if kind in ("string_too_short", "too_short"):
        return "write something, or leave it out"
    return f"write {'an' if setting.type[0] in 'aeiou' else 'a'} {setting.type}"


def _nested(values: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for path, value in values.items():
        inner = out
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        if value != {} or path[-1] not in inner:
            inner[path[-1]] = value
    return out
