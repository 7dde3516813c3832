"""SQLite on a bad day: a full disk, a damaged file, a second program, a killed process; and what is on the disk."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from dromos.domain.errors import DataFolderLocked, StoreUnavailable
from dromos.ports.store import ReadTx, Table, Tx
from dromos.store.migrations import check_schema, migrate
from dromos.store.opening import open_store
from dromos.store.sqlite import connections, work
from dromos.store.sqlite.connections import open_reader, open_writer
from dromos.store.sqlite.folder_lock import DataFolderLock
from dromos.store.sqlite.store import SqliteStore
from dromos.testing.conformance.rows_of import put, user


def _users(tx: ReadTx) -> list[str]:
    return [row["id"] for row in tx.find(Table.USERS, {}, order=["id"], columns=["id"])]


@pytest.fixture
async def store(sqlite_path: Path) -> AsyncIterator[SqliteStore]:
    migrate(str(sqlite_path))
    made = SqliteStore(sqlite_path, partial(check_schema, str(sqlite_path)))
    yield made
    await made.aclose()


class _Disk:
    """A disk on which the file may have `pages` pages more than it has; real SQLite, real SQLITE_FULL."""

    def __init__(self) -> None:
        self.free_pages: int | None = None

    def open_writer(self, path: Path) -> sqlite3.Connection:
        connection = open_writer(path)
        if self.free_pages is not None:
            used = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count={used + self.free_pages}")
        return connection


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> _Disk:
    made = _Disk()
    monkeypatch.setattr(work, "open_writer", made.open_writer)
    return made


class TestFullDisk:
    async def test_all_of_the_group_get_the_error_and_its_cure_and_none_is_done(
        self, disk: _Disk, store: SqliteStore
    ) -> None:
        disk.free_pages = 50
        began, go_on = threading.Event(), threading.Event()
        calls: list[str] = []

        def hold(tx: Tx) -> None:
            began.set()
            assert go_on.wait(10)

        def add(name: str, size: int) -> asyncio.Future[None]:
            def operation(tx: Tx) -> None:
                calls.append(name)
                tx.put(Table.USERS, user(name, name="x" * size))

            return asyncio.ensure_future(store.write(operation))

        held = asyncio.ensure_future(store.write(hold))
        assert await asyncio.to_thread(began.wait, 10)
        group = [add("before", 10), add("huge", 2_000_000), add("after", 10)]
        await asyncio.sleep(0)
        go_on.set()
        results = await asyncio.gather(held, *group, return_exceptions=True)
        assert results[0] is None
        for result in results[1:]:
            assert isinstance(result, StoreUnavailable)
            assert "disk is full" in str(result)
            assert "free some space" in str(result)
        assert calls == ["before", "huge"], "nothing is repeated, nothing begun in vain"
        assert await store.read(_users) == []
        assert store.statistics.figures().failures == 1

    async def test_an_operation_that_hides_the_full_disk_fails_all_the_same(
        self, disk: _Disk, store: SqliteStore
    ) -> None:
        disk.free_pages = 20

        def hide(tx: Tx) -> str:
            tx.put(Table.USERS, user("small"))
            try:
                tx.put(Table.USERS, user("huge", name="x" * 1_000_000))
            except StoreUnavailable:
                return "fine"
            return "huge is in"

        with pytest.raises(StoreUnavailable, match="disk is full"):
            await store.write(hide)
        assert await store.read(_users) == []

    async def test_the_store_goes_on_once_there_is_space(self, disk: _Disk, store: SqliteStore) -> None:
        disk.free_pages = 0
        await put(store, Table.USERS, user("kept"))
        with pytest.raises(StoreUnavailable):
            await put(store, Table.USERS, user("big", name="x" * 1_000_000))
        assert await store.read(_users) == ["kept"]
        disk.free_pages = None
        await put(store, Table.USERS, user("big", name="x" * 1_000_000))
        assert await store.read(_users) == ["big", "kept"]


class TestFile:
    async def test_commits_are_synced_and_only_the_writer_can_write(self, store: SqliteStore) -> None:
        writer, reader = open_writer(store.path), open_reader(store.path)
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("DELETE FROM users")
        reader.execute("PRAGMA query_only=OFF").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("DELETE FROM users")
        reader.close()
        writer.close()

    async def test_a_clean_end_leaves_one_whole_file(self, sqlite_path: Path) -> None:
        store = await open_store(sqlite_path)
        await put(store, Table.USERS, *(user(f"u{number}") for number in range(100)))
        await store.read(_users)
        await store.aclose()
        assert [path.name for path in sqlite_path.parent.iterdir()] == ["dromos.db"]
        with sqlite3.connect(sqlite_path) as shell:
            assert shell.execute("SELECT count(*) FROM users").fetchone() == (100,)
            assert shell.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        shell.close()

    async def test_a_program_that_keeps_the_file_locked_is_named_as_the_trouble(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "BUSY_MS", 50)
        shell = sqlite3.connect(store.path, isolation_level=None)
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="close it"):
            await put(store, Table.USERS, user())
        shell.execute("ROLLBACK")
        shell.close()
        await put(store, Table.USERS, user())

    @pytest.mark.case("P63")
    async def test_a_file_that_is_no_database_is_an_error_with_its_cure(self, sqlite_path: Path) -> None:
        sqlite_path.write_bytes(b"these are a person's holiday photos, really\n" * 200)
        with pytest.raises(StoreUnavailable, match="not a SQLite database: name another"):
            await open_store(sqlite_path)
        assert sqlite_path.read_bytes().startswith(b"these are")

    @pytest.mark.case("P63")
    async def test_a_folder_that_cannot_be_made_is_an_error_with_its_cure(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreUnavailable, match="check its permissions"):
            await open_store(tmp_path / "file" / "dromos.db")

    @pytest.mark.slow(60)
    async def test_what_was_acknowledged_survives_a_kill_at_any_moment(self, sqlite_path: Path) -> None:
        program = """
import asyncio, sys
from dromos.store.opening import open_store
from dromos.ports.store import Table
from dromos.testing.conformance.rows_of import user

async def main():
    store = await open_store(sys.argv[1])
    async def add(writer):
        for number in range(100_000):
            name = f"{writer}-{number:05}"
            await store.write(lambda tx: tx.put(Table.USERS, user(name)))
            print(name, flush=True)
    await asyncio.gather(*map(add, range(4)))

asyncio.run(main())
"""
        acknowledged: list[str] = []
        for turn in range(3):
            with subprocess.Popen(  # noqa: ASYNC220  # its output is read line by line until it is killed
                [sys.executable, "-c", program.replace("{writer}-", f"{{writer}}-{turn}-"), str(sqlite_path)],
                stdout=subprocess.PIPE,
                text=True,
            ) as process:
                assert process.stdout is not None
                for _ in range(50 + 20 * turn):
                    acknowledged.append(process.stdout.readline().strip())
                process.send_signal(signal.SIGKILL)
                acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
            store = await open_store(sqlite_path)
            kept = await store.read(_users)
            await store.aclose()
            assert set(acknowledged) <= set(kept)
            assert len(kept) - len(acknowledged) <= 4 * (turn + 1), (
                "at most one unacknowledged for each writer"
            )


class TestDataFolderLock:
    def test_a_second_process_is_refused_with_the_holder_and_the_cure(self, tmp_path: Path) -> None:
        holder = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys, pathlib\n"
                "from dromos.store.sqlite.folder_lock import DataFolderLock\n"
                "DataFolderLock(pathlib.Path(sys.argv[1])).acquire()\n"
                "print('held', flush=True)\n"
                "sys.stdin.read()",
                str(tmp_path),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with holder:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            lock = DataFolderLock(tmp_path)
            with pytest.raises(DataFolderLocked) as refused:
                lock.acquire()
            for part in (f"process {holder.pid}", str(tmp_path), "stop that one", "--data"):
                assert part in str(refused.value)
            holder.kill()
        lock.acquire()
        assert lock.path.read_text() == f"{os.getpid()}\n"
        lock.release()

    def test_it_is_taken_once_released_and_taken_again(self, tmp_path: Path) -> None:
        first, second = DataFolderLock(tmp_path / "new"), DataFolderLock(tmp_path / "new")
        with first:
            first.acquire()
            with pytest.raises(DataFolderLocked):
                second.acquire()
        first.release()
        with second, pytest.raises(DataFolderLocked):
            first.acquire()

    def test_on_a_full_disk_the_lock_is_taken_without_the_holders_number(self, tmp_path: Path) -> None:
        script = (
            "import resource, sys, pathlib\n"
            "from dromos.store.sqlite.folder_lock import DataFolderLock\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
            "lock = DataFolderLock(pathlib.Path(sys.argv[1]))\n"
            "with lock:\n"
            "    print(lock.is_held(), lock.path.read_text() == '')"
        )
        made = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=15
        )
        assert made.stdout == "True True\n", made.stderr

    def test_a_folder_that_cannot_be_used_is_an_error_with_its_cure(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreUnavailable, match="name another one with --data"):
            DataFolderLock(tmp_path / "file").acquire()
