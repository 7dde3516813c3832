"""What every test may rely on: markers, time limits, and real servers. No helper of one room lives here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from dromos.testing.postgres_server import PostgresServer

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")  # how long an example takes says something of the machine only

FULL = bool(os.environ.get("FULL"))
_no_browser: list[str] = []
_no_proxy: list[str] = []
_no_checker: list[str] = []
_left_out: list[pytest.Item] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`slow(n)` raises a test's limit to n seconds, `browser` to a minute; `full` leaves it out unless FULL=1."""
    if not FULL:
        _left_out.extend(item for item in items if item.get_closest_marker("full") is not None)
        items[:] = [item for item in items if item not in _left_out]
        config.hook.pytest_deselected(items=_left_out)
    for item in items:
        slow = item.get_closest_marker("slow")
        if slow is not None:
            if len(slow.args) != 1 or slow.kwargs:
                raise pytest.UsageError(f"{item.nodeid}: write @pytest.mark.slow(seconds)")
            item.add_marker(pytest.mark.timeout(slow.args[0]))
        elif item.get_closest_marker("browser") is not None:  # a page that tries again waits longer each time
            item.add_marker(pytest.mark.timeout(60))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud when the browser tests did not run: a skip is easily overlooked."""
    if _no_browser:
        terminalreporter.write_sep("!", "browser tests did NOT run", red=True)
        terminalreporter.write_line(_no_browser[0])
    if _no_proxy:
        terminalreporter.write_sep("!", "tests behind a proxy did NOT run", red=True)
        terminalreporter.write_line(_no_proxy[0])
    if _no_checker:
        terminalreporter.write_sep("!", "the models of the protocol were NOT checked", red=True)
        terminalreporter.write_line(_no_checker[0])
    if _left_out:
        terminalreporter.write_line(
            f"{len(_left_out)} tests of the full size were left out; FULL=1 runs them"
        )


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for the session; tests take `postgres_url`, a database of their own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def used_databases() -> list[str]:
    """Databases of tests that are over."""
    return []


@pytest.fixture
def postgres_url(postgres: PostgresServer, used_databases: list[str]) -> str:
    """Address of a fresh, empty database. What a test started may be closed after this fixture is, and must not find
    its database gone: so it is dropped when the next one is asked for."""
    while used_databases:
        postgres.drop_database(used_databases.pop())
    used_databases.append(postgres.create_database())
    return postgres.url(used_databases[-1])


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium to drive; without one the test is skipped and the summary says so."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is not None:
            return path
    reason = "no Chromium found; install your system's `chromium` package"
    _no_browser.append(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def nginx() -> str:
    """Path of an nginx to stand before the server; without one the test is skipped and the summary says so."""
    path = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if path is not None:
        return path
    reason = "no nginx found; install your system's `nginx` package"
    _no_proxy.append(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def spin() -> tuple[str, str]:
    """Paths of a model checker and the compiler it needs; without both the test is skipped and the summary says so."""
    checker, compiler = shutil.which("spin"), shutil.which("gcc")
    if checker is not None and compiler is not None:
        return checker, compiler
    reason = "no spin or no gcc found; install your system's `spin` and `gcc` packages"
    _no_checker.append(reason)
    pytest.skip(reason)
