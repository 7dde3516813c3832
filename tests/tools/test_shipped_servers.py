"""The servers that come with Dromos: one effect for a key, and the first answer to whoever lost it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dromos.domain.effects import ReplayClass, ToolPolicy
from dromos.ports.tool import ToolOutcome
from dromos.testing.processes import RealProcess, free_port
from dromos.testing.waiting import eventually, within
from dromos.tools.mcp.configuration import HttpServer, ServerEntry, StdioServer
from dromos.tools.mcp.toolbox import McpToolbox
from dromos.tools.rules import ToolRules
from dromos.tools.servers.keyed_file import Answered, KeyedFile, KeyReused, Refused, Unopened
from tests.tools.conftest import QUICK, context, toolbox

DELAYED = ("--answer-delay", "15")


@dataclass
class Shipped:
    """One of the servers over one transport; `kill` ends it as a power cut would, `again` brings it back."""

    entry: ServerEntry
    file: Path
    process: RealProcess | None = None

    async def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            await self.process.wait_exit()
            return
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        mine = [int(pid) for pid in children if str(self.file) in _command(pid)]
        assert len(mine) == 1, children
        os.kill(mine[0], signal.SIGKILL)

    async def again(self) -> None:
        if self.process is not None:
            await self.process.start()
            await self.listens()

    async def listens(self) -> None:
        assert isinstance(self.entry, HttpServer)
        port = int(self.entry.url.rsplit(":", 1)[1].split("/")[0])
        await eventually(lambda: _open(port), what="the HTTP server")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.file) as db:
            found = db.execute(sql).fetchall()
        db.close()
        return found

    def made(self) -> int:
        return self.file.exists() and self.rows("SELECT count(*) FROM tasks")[0][0]


def _command(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(params=["stdio", "http"])
async def slow_tasks(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shipped]:
    """The tasks server, which answers a while after each effect."""
    file = tmp_path / "tasks.db"
    command = ("-m", "dromos.tools.servers.tasks", "--file", str(file), *DELAYED)
    if request.param == "stdio":
        yield Shipped(StdioServer("tasks", sys.executable, command), file)
        return
    port = free_port()
    arguments = [sys.executable, *command, "--http", "--port", str(port)]
    process = RealProcess(arguments, log=tmp_path / "tasks.log", env={})
    shipped = Shipped(HttpServer("tasks", f"http://127.0.0.1:{port}/mcp"), file, process)
    await shipped.again()
    yield shipped
    await process.close()


@pytest.fixture
def tasks_entry(tmp_path: Path) -> StdioServer:
    command = ("-m", "dromos.tools.servers.tasks", "--file", str(tmp_path / "tasks.db"))
    return StdioServer("tasks", sys.executable, command)


@pytest.fixture
def memory_entry(tmp_path: Path) -> StdioServer:
    command = ("-m", "dromos.tools.servers.memory", "--file", str(tmp_path / "memory.db"))
    return StdioServer("memory", sys.executable, command)


async def create(box: McpToolbox, title: str, key: str) -> ToolOutcome:
    return await box.call("tasks__create_task", {"title": title}, context(key))


@pytest.mark.slow(40)
@pytest.mark.case("P123")
async def test_an_answer_that_was_lost_with_its_server_is_given_to_the_repeat(slow_tasks: Shipped) -> None:
    async with toolbox(slow_tasks.entry) as box:
        await box.specs()
        first = asyncio.create_task(create(box, "post the letter", "k"))
        await eventually(slow_tasks.made, what="the effect")
        await slow_tasks.kill()
        lost = await within(10, first, "the call of a dead server")
        assert lost.is_error
        await slow_tasks.again()

        repeated = await within(12, create(box, "post the letter", "k"), "the repeat")
        assert not repeated.is_error
        assert repeated.structured["id"] == 1
        assert slow_tasks.made() == 1


@pytest.mark.slow(40)
async def test_a_call_that_timed_out_had_its_effect_and_its_repeat_tells_it(slow_tasks: Shipped) -> None:
    async with toolbox(slow_tasks.entry, limits=replace(QUICK, idle=1.0, call=1.0)) as box:
        await box.specs()
        timed_out = await within(10, create(box, "water the plants", "k"), "the limit of the call")
        assert timed_out.is_error
        assert slow_tasks.made() == 1
        repeated = await within(10, create(box, "water the plants", "k"), "the repeat")
        assert (repeated.is_error, repeated.structured["id"]) == (False, 1)
        assert slow_tasks.made() == 1


async def test_a_key_has_one_effect_and_is_of_one_call_and_without_one_each_call_has_its_own(
    tasks_entry: StdioServer,
) -> None:
    async with toolbox(tasks_entry) as box:
        await box.specs()
        answers = await asyncio.gather(*(create(box, "only once", "k") for _ in range(20)))
        refused = [
            await create(box, "two", "k"),
            await box.call("tasks__complete_task", {"id": 1}, context("k")),
        ]
        unprotected = [await create(box, "twice", "") for _ in range(2)]
        listed = await box.call("tasks__list_tasks", {}, context())
    assert {answer.text for answer in answers} == {answers[0].text}
    assert all(one.is_error and "used before for another call" in one.text for one in refused)
    assert [one.structured["id"] for one in unprotected] == [2, 3]
    assert all("without an idempotency key" in one.structured["note"] for one in unprotected)
    tasks_kept = [(task["title"], task["completed_at"]) for task in listed.structured["tasks"]]
    assert tasks_kept == [("only once", None), ("twice", None), ("twice", None)]


async def test_a_task_is_completed_once_and_the_repeat_of_a_refusal_is_refused_as_before(
    tasks_entry: StdioServer,
) -> None:
    async with toolbox(tasks_entry) as box:
        await box.specs()
        early = await box.call("tasks__complete_task", {"id": 1}, context("early"))
        await create(box, "one", "k")
        done, again = [await box.call("tasks__complete_task", {"id": 1}, context("done")) for _ in range(2)]
        another = await box.call("tasks__complete_task", {"id": 1}, context("another"))
        repeated = await box.call("tasks__complete_task", {"id": 1}, context("early"))
        left = await box.call("tasks__list_tasks", {"completed": False}, context())
        over = await box.call("tasks__list_tasks", {"completed": True}, context())
    assert early.is_error
    assert repeated.text == early.text
    assert done == again
    assert done.structured["completed_at"]
    assert another.is_error
    assert "completed before" in another.text
    assert (left.structured["tasks"], len(over.structured["tasks"])) == ([], 1)


async def test_a_repeated_remember_answers_as_it_did_though_the_memory_has_changed(
    memory_entry: StdioServer,
) -> None:
    async def call(tool: str, arguments: dict[str, Any], key: str = "") -> ToolOutcome:
        return await box.call(f"memory__{tool}", arguments, context(key))

    async with toolbox(memory_entry) as box:
        await box.specs()
        first = await call("remember", {"text": "Anna likes tea", "topic": "people"}, "a")
        await call("remember", {"text": "The key is under the 100% mat"}, "b")
        found = await call("recall", {"query": "TEA anna"})
        percent = await call("recall", {"query": "100%"})
        everything = await call("recall", {})
        about = await call("recall", {"topic": "people"})
        gone = await call("forget", {"id": 1}, "c")
        again = await call("forget", {"id": 1}, "c")
        missing = await call("forget", {"id": 1}, "d")
        repeated = await call("remember", {"text": "Anna likes tea", "topic": "people"}, "a")
        left = await call("recall", {"query": "tea"})
    assert (first.structured["id"], first.structured["count"]) == (1, 1)
    assert [one["id"] for one in found.structured["memories"]] == [1]
    assert [one["id"] for one in percent.structured["memories"]] == [2]
    assert [one["id"] for one in everything.structured["memories"]] == [2, 1]
    assert [one["id"] for one in about.structured["memories"]] == [1]
    assert gone == again
    assert gone.structured["forgotten"]["text"] == "Anna likes tea"
    assert missing.is_error
    assert repeated == first
    assert left.structured["memories"] == []


async def test_the_hints_say_what_may_be_repeated(
    tasks_entry: StdioServer, memory_entry: StdioServer
) -> None:
    rules = ToolRules(trusted=frozenset({"tasks", "memory"}))
    async with toolbox(tasks_entry, memory_entry) as box:
        specs = await box.specs()
    in_force = {
        spec.name: (rule.replay, rule.policy)
        for spec in specs
        for rule in [rules.of(spec.name, spec.source, spec.annotations)]
    }
    keyed, reads = (ReplayClass.KEYED, ToolPolicy.AUTO), (ReplayClass.READ, ToolPolicy.AUTO)
    assert in_force == {
        "tasks__create_task": keyed,
        "tasks__complete_task": keyed,
        "tasks__list_tasks": reads,
        "memory__remember": keyed,
        "memory__forget": (ReplayClass.KEYED, ToolPolicy.ASK),
        "memory__recall": reads,
    }


def add(db: sqlite3.Connection) -> int:
    return int(db.execute("INSERT INTO things DEFAULT VALUES RETURNING id").fetchone()[0])


THINGS = "CREATE TABLE IF NOT EXISTS things (id INTEGER PRIMARY KEY AUTOINCREMENT);"


def test_a_key_is_forgotten_after_its_days_and_not_before(tmp_path: Path) -> None:
    file = KeyedFile(tmp_path / "a" / "file.db", THINGS)
    assert file.once("k", "add", {}, add) == Answered(1)
    with sqlite3.connect(tmp_path / "a" / "file.db") as aged:
        aged.execute("UPDATE keys SET used_at = unixepoch() - 29 * 86400")
    assert file.once("k", "add", {}, add) == Answered(1, repeated=True)
    aged.execute("UPDATE keys SET used_at = unixepoch() - 31 * 86400")
    aged.commit()
    aged.close()
    assert file.once("k", "add", {}, add) == Answered(2)
    file.close()


def test_what_fails_half_way_leaves_neither_effect_nor_key(tmp_path: Path) -> None:
    file = KeyedFile(tmp_path / "file.db", THINGS)

    def broken(db: sqlite3.Connection) -> int:
        add(db)
        raise RuntimeError("half-way")

    def refused(db: sqlite3.Connection) -> int:
        add(db)
        raise Refused("not this one")

    with pytest.raises(RuntimeError):
        file.once("k", "add", {}, broken)
    assert file.rows("SELECT * FROM things") == file.rows("SELECT * FROM keys") == []
    for _ in range(2):
        with pytest.raises(Refused, match="not this one"):
            file.once("r", "add", {}, refused)
    assert file.rows("SELECT * FROM things") == []
    assert len(file.rows("SELECT * FROM keys")) == 1
    assert file.once("k", "add", {}, add).value == 1
    with pytest.raises(KeyReused):
        file.once("k", "other", {}, add)
    file.close()


def test_two_processes_on_one_file_see_each_other_s_keys(tmp_path: Path) -> None:
    one, two = [KeyedFile(tmp_path / "file.db", THINGS) for _ in range(2)]
    assert one.once("k", "add", {}, add) == Answered(1)
    assert two.once("k", "add", {}, add) == Answered(1, repeated=True)
    one.close()
    two.close()


def test_a_file_that_cannot_be_opened_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database at all, it is only a text of some length")
    for path in (tmp_path / "text.db", tmp_path):
        with pytest.raises(Unopened, match="cannot be opened"):
            KeyedFile(path, THINGS)
