"""The throw-away PostgreSQL server keeps what it promises: fresh databases, restart, and no left-overs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from dromos.testing.postgres_server import PostgresServer, PostgresUnavailable


def test_each_database_is_fresh_and_gone_afterwards(postgres: PostgresServer) -> None:
    with postgres.database() as url, psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (x int)")
        name = connection.info.dbname
    with postgres.database() as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE tablename = 't'").fetchone() == (0,)
        found = connection.execute("SELECT count(*) FROM pg_database WHERE datname = %s", [name]).fetchone()
        assert found == (0,)


def test_a_database_made_from_a_template_has_its_tables(postgres: PostgresServer) -> None:
    template = postgres.create_database()
    with psycopg.connect(postgres.url(template)) as connection:
        connection.execute("CREATE TABLE kept (x int)")
    with postgres.database(template=template) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    postgres.drop_database(template)


@pytest.mark.slow(60)
def test_a_stopped_server_comes_back_with_its_data() -> None:
    with PostgresServer() as server:
        with psycopg.connect(server.url()) as connection:
            connection.execute("CREATE TABLE kept (x int)")
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url())
        server.start()
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)


@pytest.mark.slow(60)
def test_clients_that_knock_while_it_starts_do_not_end_it() -> None:
    with PostgresServer() as server:
        over = threading.Event()

        def knock() -> None:
            while not over.is_set():
                try:
                    psycopg.connect(server.url(), connect_timeout=2).close()
                except psycopg.OperationalError:
                    continue

        knocking = [threading.Thread(target=knock) for _ in range(3)]
        for thread in knocking:
            thread.start()
        try:
            for _ in range(3):
                server.stop()
                server.start()
                psycopg.connect(server.url()).close()
        finally:
            over.set()
            for thread in knocking:
                thread.join()


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(PostgresUnavailable, match="nonsense"):
        PostgresServer(settings={"shared_buffers": "nonsense"}).start()


@pytest.mark.slow(60)
def test_the_server_ends_and_its_folder_goes_when_its_owner_is_killed() -> None:
    program = (
        "from dromos.testing.postgres_server import PostgresServer\n"
        "server = PostgresServer(); server.start()\n"
        "print(server.pid, server._keeper.pid, server._folder, flush=True)\n"
        "input()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdin is not None and owner.stdout is not None
    server, keeper, folder = owner.stdout.readline().split()
    watched = os.pidfd_open(int(keeper))
    try:
        owner.send_signal(signal.SIGKILL)
        owner.wait(10)
        _wait_for_end(watched, seconds=10)
    finally:
        os.close(watched)
        owner.stdin.close()
        owner.stdout.close()
    assert not Path(folder).exists()
    assert not Path(f"/proc/{server}").exists()


def _wait_for_end(pidfd: int, *, seconds: float) -> None:
    import select

    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    assert poller.poll(seconds * 1000), "the keeper did not end"
