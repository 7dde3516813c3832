"""What the command line needs from inside without a server: migrate the schema; look at everything, change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dromos.bootstrap.parts import make_registry, make_toolbox
from dromos.bootstrap.reality import SystemClock, TimeOrderedIds
from dromos.domain.errors import DromosError, SchemaMismatch, Unavailable
from dromos.settings import Settings

if TYPE_CHECKING:
    from dromos.ports.agent import ModelChoice
    from dromos.ports.tool import ToolSourceHealth
    from dromos.store.migrations import Migrated


def migrate(settings: Settings) -> Migrated:
    """Bring the schema to this version; returns what was done. Raises `Unavailable` with the cure."""
    from dromos.store.migrations import migrate as upgrade

    with ExitStack() as stack:
        if settings.sqlite_path is not None:
            from dromos.store.sqlite.folder_lock import DataFolderLock

            stack.enter_context(DataFolderLock(settings.sqlite_path.parent))
        return upgrade(settings.database_url)


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What the database says of itself.

    `schema`: none (no tables yet), current, old, newer (a later version wrote it), unknown (not reachable; `error`
    says why, with the cure). `locked`: a server holds the data folder.
    """

    version: str  # "SQLite 3.45.1", "PostgreSQL 18.6"
    schema: Literal["none", "current", "old", "newer", "unknown"]
    error: str | None
    locked: bool


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """A configured agent; `error` is why it cannot be loaded, with the cure."""

    name: str
    description: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What `dromos doctor` judges. `model` is None where none can be chosen; `model_error` then says why."""

    database: DatabaseFacts
    agents: Sequence[AgentFacts]
    default_agent: str
    model: ModelChoice | None
    model_error: str | None
    tools: Sequence[ToolSourceHealth]


def inspect(settings: Settings) -> Inspection:
    """Look at everything a server would use, changing nothing: the database is opened for reading only."""
    return asyncio.run(_inspect(settings))


async def _inspect(settings: Settings) -> Inspection:
    from dromos.ports.tool import ToolSourceHealth
    from dromos.tools.gateway import ToolGateway
    from dromos.tools.local import LocalToolbox

    clock, ids = SystemClock(), TimeOrderedIds()
    database = await asyncio.to_thread(_database_facts, settings)
    async with AsyncExitStack() as stack:
        try:
            toolbox = make_toolbox(settings, clock)
            stack.push_async_callback(toolbox.aclose)
            await toolbox.specs()
            tools = [source for source in await toolbox.health() if source.name != "local"]
        except DromosError as error:
            toolbox = ToolGateway(LocalToolbox(clock))
            tools = [ToolSourceHealth(str(settings.mcp), False, str(error))]
        agents = make_registry(settings, NoStore(), toolbox, clock, ids)
        stack.push_async_callback(agents.aclose)
        faults = await agents.faults()
        model, model_error = None, None
        try:
            model = await agents.choose_model()
            model_error = await agents.model_fault(model)
        except Unavailable as error:
            model_error = error.detail
        facts = [AgentFacts(info.name, info.description, faults.get(info.name)) for info in agents.infos()]
        return Inspection(database, facts, agents.default, model, model_error, tools)


class NoStore:
    """`ports.store.Store` of a process that only looks: it has none, and says so."""

    async def write(self, fn: object) -> Any:
        raise Unavailable("This command does not open the database.")

    read = write

    async def check(self) -> None:
        raise Unavailable("This command does not open the database.")

    async def aclose(self) -> None:
        return None


def _database_facts(settings: Settings) -> DatabaseFacts:
    from dromos.store.migrations import check_schema, current, known_revisions
    from dromos.store.opening import server_version

    locked = False
    if settings.sqlite_path is not None and settings.sqlite_path.parent.exists():
        from dromos.store.sqlite.folder_lock import DataFolderLock

        locked = DataFolderLock(settings.sqlite_path.parent).is_held()
    address = settings.database_url
    shown = "SQLite" if settings.sqlite_path is not None else "PostgreSQL"
    try:
        shown = server_version(address)
        found = current(address)
        if found is None:
            return DatabaseFacts(shown, "none", None, locked)
        try:
            check_schema(address)
        except SchemaMismatch:
            return DatabaseFacts(shown, "old" if found in known_revisions() else "newer", None, locked)
        return DatabaseFacts(shown, "current", None, locked)
    except DromosError as error:
        return DatabaseFacts(shown, "unknown", getattr(error, "detail", str(error)), locked)
