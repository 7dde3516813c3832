"""What can be set, as types, and the values in force with their sources.

It must not know where values are read from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)


def masked(text: str) -> str:
    """The text with the password of every address in it replaced by `***`."""
    text = re.sub(r"(://[^/?#\s:@]*):[^/?#\s]*@", r"\1:***@", text)
    return re.sub(r"(?i)([?&](?:\w*password|sslpassword|token|api_?key)=)[^&\s]+", r"\1***", text)


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
        15.0,
        description="How long a stop waits for an agent or a tool that does not let go; then it is forced.",
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


class AdapterSettings(Section):
    grace_s: Annotated[Seconds, Field(ge=3)] = Field(
        30.0,
        description="How long an adapter session keeps a run without a renewal. Others take it over after it.",
    )


class ConversationSettings(Section):
    waiting_limit: Count = Field(
        100, description="Messages that may wait or be held in one conversation; a further one is refused."
    )


class RetentionSettings(Section):
    idempotency_days: Count = Field(
        7, description="How long a repeated Idempotency-Key gets the stored answer."
    )
    events_days: Days = Field(
        None, description="How long events are kept for streams that come back; `off`: always."
    )


StallPolicy = Literal["flag", "fail", "retry"]


class StallSettings(Section):
    model_s: Limit = Field(
        120.0, description="Silence of a model call after which its run is shown as stalled; `off`: never."
    )
    tool_s: Limit = Field(
        300.0, description="Silence of a tool or another step after which its run is shown as stalled; `off`."
    )
    policy: StallPolicy = Field(
        "flag",
        description="What becomes of a stalled run: `flag` shows it, `fail` ends it, `retry` tries the step again.",
    )


class AgentStallSettings(Section):
    model_s: Limit = Field(None, description="Like `stall.model_s`, for this agent.")
    tool_s: Limit = Field(None, description="Like `stall.tool_s`, for this agent.")
    policy: StallPolicy | None = Field(None, description="Like `stall.policy`, for this agent.")


class RetrySettings(Section):
    tries: Count = Field(..., description="Tries of one step, the first included.")
    delays_s: tuple[Seconds, ...] = Field(
        (), description="Seconds before each further try; the last one repeats. Empty: at once."
    )


class ModelSettings(Section):
    context_limit: Count | None = Field(
        None, description="Tokens that a model whose name matches can read, where nobody else tells."
    )
    price_as: str | None = Field(
        None,
        pattern=r"^[^:\s]+:\S+$",
        description="Price its calls like those of this model: `provider:model`. A server of one's own has no price.",
    )


class BackendPolicySettings(Section):
    models: Words | None = Field(
        None,
        description="Patterns of the models that its runs may use: `provider:name` or a name; `*` is any text.",
    )
    providers: Words | None = Field(None, description="Names of the providers that its runs may use.")


class AgentSettings(Section):
    graph: str | None = Field(
        None,
        pattern=r"^[^:\s]+:[^:\s]+$",
        description="A compiled graph or a function that makes one: `module:attribute`.",
    )
    command: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="A command-line agent that prints newline-delimited JSON: program and arguments.",
    )
    remote: bool = Field(False, description="The agent runs elsewhere and takes its runs over HTTP.")
    prompt: Literal["stdin", "argument"] = Field(
        "stdin", description="With `command`: how it gets the person's message."
    )
    model_arguments: tuple[str, ...] = Field(
        (), description="With `command`: added where a model is named; `{model}` stands for its name."
    )
    resume_arguments: tuple[str, ...] = Field(
        (), description="With `command`: added to go on in its own session; `{session}` stands for its id."
    )
    resume_prompt: str = Field(
        "Continue.", min_length=1, description="With `command`: what it is told when a run goes on."
    )
    folder: Path | None = Field(None, description="With `command`: its working directory.")
    environment: dict[str, str] = Field(
        {}, description="With `command`: variables it gets beside the server's."
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
    stall: AgentStallSettings = AgentStallSettings()
    backend_policy: BackendPolicySettings = BackendPolicySettings()

    @model_validator(mode="after")
    def _one_engine(self) -> AgentSettings:
        given = [self.graph is not None, self.command is not None, self.remote]
        if given.count(True) != 1:
            raise ValueError("write exactly one of `graph`, `command` and `remote = true`")
        return self


ToolPolicy = Literal["auto", "ask", "deny"]


class ToolRuleSettings(Section):
    policy: ToolPolicy | None = Field(
        None, description="`auto`: it is called at once, `ask`: after a person said so, `deny`: never."
    )
    replay: Literal["read", "keyed", "unsafe"] | None = Field(
        None,
        description="After a crash: `read` is repeated, `keyed` repeated with its key, `unsafe` after a person's word.",
    )


class ApprovalSettings(Section):
    policy: ToolPolicy = Field("auto", description="Policy of tools that nothing else is said of.")
    trusted_servers: Words = Field(
        (), description="Tool servers whose own annotations (read-only, idempotent) are believed."
    )
    expires_s: Limit = Field(
        None, description="Seconds after which an approval that nobody gave is settled; `off`: never."
    )
    on_timeout: Literal["deny", "expire"] = Field(
        "deny", description="How it is settled then: the call is denied, or the run ends."
    )
    ask_person: bool = Field(
        True, description="Whether the built-in assistant may ask you questions, with a tool `ask_person`."
    )


RetryCode = Literal["MODEL_RATE_LIMITED", "MODEL_BAD_RESPONSE", "MODEL_UNAVAILABLE", "STALLED", "INTERNAL"]
ModelPattern = Annotated[str, Field(pattern=r"^\S+$")]
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
    allowed_origins: Words = Field(
        (),
        description="Further pages (`https://name`) that may change something here, beside the server's own.",
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
    adapters: AdapterSettings = AdapterSettings()
    conversations: ConversationSettings = ConversationSettings()
    retention: RetentionSettings = RetentionSettings()
    stall: StallSettings = StallSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    tools: dict[ModelPattern, ToolRuleSettings] = {}
    retries: dict[RetryCode, RetrySettings] = {}
    models: dict[ModelPattern, ModelSettings] = {}
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


@dataclass(frozen=True, slots=True)
class InForce:
    """One value as it is used: `key` is dotted, `value` is JSON-ready and masked."""

    key: str
    value: Any
    source: str


def section_in(annotation: Any) -> type[Section] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def table_of(annotation: Any) -> type[Section] | None:
    """The section that a named table (`[agents.NAME]`) holds."""
    return section_in(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def _in_force(section: Section, prefix: str, settings: Settings) -> Iterator[InForce]:
    for name, field in type(section).model_fields.items():
        key, value = f"{prefix}{name}", getattr(section, name)
        if isinstance(value, Section):
            yield from _in_force(value, f"{key}.", settings)
        elif table_of(field.annotation):
            for entry, inner in value.items():
                yield from _in_force(inner, f"{key}.{entry}.", settings)
        else:
            source = settings.source(key)
            if isinstance(value, (str, Path)):
                value = masked(str(value))
            elif isinstance(value, dict):
                value = dict.fromkeys(value, "***")  # variables of a command: some are secrets
            yield InForce(key, list(value) if isinstance(value, tuple) else value, source)
