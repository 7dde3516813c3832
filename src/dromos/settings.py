"""Settings: read once at start from `dromos.toml`, the environment and the command line, the later ones winning;
typed, and final from then on. Each value remembers where it came from, and everything wrong is told at once.

It must not know what the values are used for, open a database or touch the network. Only `bootstrap` and `cli` read
it; every other room is handed plain values. A secret is never printed: see `masked`.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
)

FILE_NAME = "dromos.toml"
PREFIX = "DROMOS_"
CONFIG_VARIABLE = "DROMOS_CONFIG"
OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "DROMOS_SERVER", "DROMOS_TOKEN"})
"""Names with our prefix that are no settings of the server."""
_FOREIGN = re.compile(r"DROMOS_(TEST_\w+|SERVICE_(HOST|PORT\w*)|PORT_\d+_\w+)")
"""Test probes, and what Kubernetes sets for a service called `dromos`."""

FLAGS: Mapping[str, str] = MappingProxyType(
    {"data": "--data", "host": "--host", "port": "--port", "database": "--database"}
)
"""Settings that have a flag, by key."""


class SettingsError(Exception):
    """Settings that cannot be used. `problems` holds one text for each, with where it stands and the cure."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def masked(text: str) -> str:
    """The text with the password of every address in it replaced by `***`."""
    text = re.sub(r"(://[^/?#\s:@]*):[^/?#\s]*@", r"\1:***@", text)
    return re.sub(r"(?i)([?&](?:\w*password|sslpassword|token|api_?key)=)[^&\s]+", r"\1***", text)


# ── the settings ──────────────────────────────────────────────────────────────────────────────────────────────


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("write a number")
    return value


def _off(value: Any) -> Any:
    return None if value == "off" else _number(value)


def _words(value: Any) -> Any:
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


Count = Annotated[int, BeforeValidator(_number), Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
Limit = Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, BeforeValidator(_off)]
Days = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_off)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Recovery = Literal["auto", "ask"]


class Section(BaseModel):
    """A group of settings; immutable, knows every key it may hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity that is written."
    )
    format: Literal["auto", "console", "json"] = Field(
        "auto",
        description="Lines for people, JSON for programs, or `auto`: people on a terminal, JSON elsewhere.",
    )


class WorkerSettings(Section):
    concurrency: Count = Field(
        32, le=4096, description="Runs that this process carries out at the same time."
    )
    stop_deadline_s: Seconds = Field(
        15.0, description="How long a stop waits for a tool call that is under way."
    )
    drain_s: Seconds = Field(20.0, description="How long SIGTERM lets runs reach the end of their step.")
    lease_s: Annotated[Seconds, Field(ge=3)] = Field(
        10.0, description="How long a worker's sign of life counts. Other workers take over after it."
    )
    queue_deadline_s: Limit = Field(
        None, description="A run that waits longer for a worker expires; `off`: never."
    )
    recovery: Recovery = Field(
        "auto",
        description="A run whose worker died: `auto` goes on by itself, `ask` ends for a person to continue.",
    )
    step_limit: Count = Field(
        25, description="Steps after which a run ends with RECURSION_LIMIT, its work kept."
    )


class RetentionSettings(Section):
    idempotency_days: Count = Field(
        7, description="How long a repeated Idempotency-Key gets the stored answer."
    )
    events_days: Days = Field(
        None, description="How long events are kept for streams that come back; `off`: always."
    )


class RetrySettings(Section):
    tries: Count = Field(..., description="Tries of one step, the first included.")
    delays_s: tuple[Seconds, ...] = Field(
        (), description="Seconds before each further try; the last one repeats. Empty: at once."
    )


class AgentSettings(Section):
    graph: str = Field(
        ...,
        pattern=r"^[^:\s]+:[^:\s]+$",
        description="A compiled graph or a function that makes one: `module:attribute`.",
    )
    input: str | None = Field(
        None,
        min_length=1,
        description="Field of the graph's state that takes the person's message, without `messages`.",
    )
    output: str | None = Field(
        None, min_length=1, description="Field of the graph's state that holds the answer."
    )
    step_limit: Count | None = Field(None, description="Like `worker.step_limit`, for this agent.")
    recovery: Recovery | None = Field(None, description="Like `worker.recovery`, for this agent.")
    description: str = Field("", description="One line for the list of agents.")
    model: str | None = Field(None, min_length=1, description="Like `model`, for this agent.")


RetryCode = Literal["MODEL_RATE_LIMITED", "MODEL_BAD_RESPONSE", "MODEL_UNAVAILABLE", "STALLED"]
AgentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class Settings(Section):
    """Everything that can be configured. Paths are absolute; `source` says where a value came from."""

    data: Path = Field(Path("dromos-data"), description="Folder of the database file and the lock.")
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: Annotated[int, BeforeValidator(_number)] = Field(
        8321, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    database: str | None = Field(
        None,
        description="`postgresql://user:password@host/name`; without it, `dromos.db` in the data folder.",
    )
    allowed_hosts: Words = Field(
        (), description="Further Host headers to answer, beside this machine's own names; `*` answers all."
    )
    model: str | None = Field(
        None, min_length=1, description="The model that answers: `provider:model`, `local` or `scripted`."
    )
    ollama_host: str | None = Field(
        None, description="Address of an Ollama server; also read from OLLAMA_HOST."
    )
    mcp: Path | None = Field(
        None,
        description="File with `mcpServers`; without it, `mcp.json` beside `dromos.toml` or in the data folder.",
    )
    langgraph_json: Path | None = Field(
        None,
        description="A LangGraph project file to take agents from; without it, `langgraph.json` beside `dromos.toml`.",
    )
    default_agent: str | None = Field(
        None,
        min_length=1,
        description="Agent of conversations that name none; without it `assistant`, the built-in one.",
    )
    log: LogSettings = LogSettings()
    worker: WorkerSettings = WorkerSettings()
    retention: RetentionSettings = RetentionSettings()
    retries: dict[RetryCode, RetrySettings] = {}
    agents: dict[AgentName, AgentSettings] = {}

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)
    _root: Path = PrivateAttr(default_factory=Path.cwd)
    _file: Path | None = PrivateAttr(default=None)

    @field_validator("database")
    @classmethod
    def _known_database(cls, value: str | None) -> str | None:
        if value is None:
            return None
        value = re.sub(r"^postgres(ql\+psycopg)?://", "postgresql://", value)
        if not re.match(r"postgresql://[^/]*/?|sqlite:///.", value):
            raise ValueError("write postgresql://user:password@host:port/name, or sqlite:///path/to/file.db")
        return value

    @field_validator("ollama_host")
    @classmethod
    def _full_address(cls, value: str | None) -> str | None:
        """What Ollama itself accepts, as a whole address; its `0.0.0.0` (listen everywhere) is reached as loopback."""
        if value is None:
            return None
        parts = urlsplit(value if "://" in value else f"http://{value}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("write an address such as http://127.0.0.1:11434")
        port = parts.port or (None if "://" in value else 11434)
        host = "127.0.0.1" if parts.hostname in ("0.0.0.0", "::") else parts.hostname
        host = f"[{host}]" if ":" in host else host
        user = parts.netloc.rpartition("@")
        return (
            f"{parts.scheme}://{''.join(user[:2])}{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
        )

    @property
    def file(self) -> Path | None:
        """The settings file that was read, None if there was none."""
        return self._file

    @property
    def root(self) -> Path:
        """The folder of the settings file, else the working directory: where agents' modules are looked for too."""
        return self._root

    @property
    def sqlite_path(self) -> Path | None:
        """The database file; None with PostgreSQL."""
        if self.database is None:
            return self.data / "dromos.db"
        if self.database.startswith("sqlite:///"):
            return self._root / Path(self.database.removeprefix("sqlite:///")).expanduser()
        return None

    @property
    def database_url(self) -> str:
        """The whole address, password included: never print it, print `database_shown`."""
        path = self.sqlite_path
        return self.database or "" if path is None else f"sqlite:///{path}"

    @property
    def database_shown(self) -> str:
        """The address as a person may see it."""
        return masked(self.database_url)

    def source(self, key: str) -> str:
        """Where the value of a key such as `worker.drain_s` came from: `default`, `file:PATH`, `env:NAME`, `flag`."""
        return self._sources.get(key, "default")

    def in_force(self) -> list[InForce]:
        """Every value with its source, in the order of the documentation; secrets masked."""
        return list(_in_force(self, "", self))

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from ((entry.key, entry.value) for entry in self.in_force())


# ── the list of settings ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class InForce:
    """One value as it is used: `key` is dotted, `value` is JSON-ready and masked."""

    key: str
    value: Any
    source: str


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


def _section(annotation: Any) -> type[Section] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def _table(annotation: Any) -> type[Section] | None:
    """The section that a named table (`[agents.NAME]`) holds."""
    return _section(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def _type_text(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(f'"{word}"' for word in get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _type_text(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(_type_text(part) for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is tuple:
        return f"list of {_type_text(get_args(annotation)[0])}"
    return {int: "integer", float: "number", str: "text", Path: "path"}[annotation]


def _settings(model: type[Section], prefix: str, named: bool = False) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        key, annotation = f"{prefix}{name}", field.annotation
        if inner := _section(annotation):
            yield from _settings(inner, f"{key}.", named)
        elif entry := _table(annotation):
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
_BY_KEY = {setting.key: setting for setting in SETTINGS}


def _in_force(section: Section, prefix: str, settings: Settings) -> Iterator[InForce]:
    for name, field in type(section).model_fields.items():
        key, value = f"{prefix}{name}", getattr(section, name)
        if isinstance(value, Section):
            yield from _in_force(value, f"{key}.", settings)
        elif _table(field.annotation):
            for entry, inner in value.items():
                yield from _in_force(inner, f"{key}.{entry}.", settings)
        else:
            source = settings.source(key)
            if isinstance(value, (str, Path)):
                value = masked(str(value))
            yield InForce(key, list(value) if isinstance(value, tuple) else value, source)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────


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
            section, entry = _section(field.annotation), _table(field.annotation)
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
            allowed = (
                ", ".join(get_args(RetryCode)) if loc[0] == "retries" else "letters, digits, `-`, `_` and `.`"
            )
            return f"{place}: this name cannot be used; allowed: {allowed}"
        value = self.values.get(tuple(loc))
        shown = "" if key == "database" else f", not {masked(str(value))!r}"
        told = f"{place}: {_cure(error, _BY_KEY[_general(tuple(loc))])}{shown}"
        if place == "DROMOS_PORT" and str(value).startswith("tcp://"):
            told += " (Kubernetes sets this for a service called `dromos`: set `enableServiceLinks: false`)"
        return told


def _general(path: tuple[str, ...]) -> str:
    """The documented key of a concrete one: `agents.writer.graph` is `agents.NAME.graph`."""
    return (
        f"{path[0]}.NAME.{path[2]}" if path[0] in ("agents", "retries") and len(path) == 3 else ".".join(path)
    )


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
        return "write `module:attribute`"
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
