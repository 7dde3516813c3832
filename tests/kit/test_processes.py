"""Real processes and bounded waiting: the helpers must be trusted before the tests that use them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dromos.testing.processes import (
    SERVER_PORTS,
    ProcessDiedError,
    RealProcess,
    ServeProcess,
    clean_environment,
    free_port,
)
from dromos.testing.waiting import NotSeenInTimeError, Watched, eventually, within

TICKING = """
import itertools, sys, time
for n in itertools.count():
    print(n, flush=True)
    time.sleep(0.01)
"""

WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("child", child.pid, flush=True)
time.sleep(60)
"""


def python(code: str, tmp_path: Path) -> RealProcess:
    return RealProcess([sys.executable, "-c", code], log=tmp_path / "log")


def _exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_kill_and_term_end_it_with_their_signal_and_it_can_start_again(tmp_path: Path) -> None:
    process = python(TICKING, tmp_path)
    async with process:
        await eventually(lambda: "1\n" in process.logs(), what="its output")
        process.kill()
        assert await process.wait_exit() == -signal.SIGKILL
        first = process.pid
        await process.start()
        assert process.pid != first
        process.term()
        assert await process.wait_exit() == -signal.SIGTERM


async def test_stop_freezes_it_and_cont_lets_it_go_on(tmp_path: Path) -> None:
    async with python(TICKING, tmp_path) as process:
        await eventually(process.logs, what="its output")
        process.stop()
        stat = Path(f"/proc/{process.pid}/stat")
        await eventually(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", what="the stop")
        frozen = process.logs()
        process.cont()
        await eventually(lambda: len(process.logs()) > len(frozen), what="more output")


async def test_leaving_the_context_ends_the_whole_group_also_if_it_is_stopped(tmp_path: Path) -> None:
    async with python(WITH_CHILD, tmp_path) as process:
        await eventually(lambda: process.logs().startswith("child "), what="the child")
        child = int(process.logs().split()[1])
        assert _exists(child)
        process.stop()
    await eventually(lambda: not _exists(child), what="the child's end")
    assert not process.running


async def test_waiting_for_an_end_that_does_not_come_shows_the_log(tmp_path: Path) -> None:
    async with python("print('still here', flush=True); import time; time.sleep(60)", tmp_path) as process:
        await eventually(process.logs, what="its output")
        with pytest.raises(NotSeenInTimeError, match="still here"):
            await process.wait_exit(timeout=0.05)
        assert process.running


async def test_a_signal_to_a_dead_process_says_so(tmp_path: Path) -> None:
    async with python("print('bye')", tmp_path) as process:
        assert await process.wait_exit() == 0
        with pytest.raises(ProcessDiedError, match="bye"):
            process.kill()


async def test_a_server_that_ends_before_it_is_ready_shows_its_log(tmp_path: Path) -> None:
    server = ServeProcess(tmp_path / "data", args=["--no-such-option"])
    with pytest.raises(ProcessDiedError, match="end of data-serve"):
        async with server:
            pytest.fail("it cannot have been ready")
    assert not server.running


def test_a_process_gets_no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROMOS_MODEL", "other")
    monkeypatch.setenv("OLLAMA_HOST", "elsewhere")
    environment = clean_environment()
    assert "DROMOS_MODEL" not in environment
    assert "OLLAMA_HOST" not in environment
    assert environment["PATH"] == os.environ["PATH"]


async def test_what_does_not_come_in_time_is_named_and_cancelled() -> None:
    waiting = asyncio.get_running_loop().create_future()
    with pytest.raises(NotSeenInTimeError, match=r"the answer did not come within 0\.01 s"):
        await within(0.01, waiting, "the answer")
    assert waiting.cancelled()


async def test_a_time_out_of_the_awaited_thing_itself_is_passed_on() -> None:
    async def fails() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await within(5, fails())


async def test_a_condition_is_asked_until_it_holds_and_its_last_answer_is_shown(tmp_path: Path) -> None:
    answers = iter([0, 0, 7])
    assert await eventually(lambda: next(answers), what="seven") == 7

    async def opened() -> str:
        return (tmp_path / "missing").read_text()

    with pytest.raises(NotSeenInTimeError, match=r"the file was not seen within 0\.05 s; last: FileNotFound"):
        await eventually(opened, seconds=0.05, what="the file")


async def test_a_watched_value_wakes_who_waits_for_it() -> None:
    watched = Watched(0)
    waiting = asyncio.create_task(watched.until(lambda value: value >= 2, seconds=5))
    await watched.put(1)
    await watched.put(2)
    assert await waiting == 2
    with pytest.raises(NotSeenInTimeError, match=r"the value \(now 2\)"):
        await watched.until(lambda value: value > 2, seconds=0.01)


def test_a_servers_port_lies_below_the_systems_own_and_is_not_given_twice():
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert set(ports) <= set(SERVER_PORTS)


def test_a_port_in_use_is_passed_over():
    first = free_port()
    following = SERVER_PORTS[(SERVER_PORTS.index(first) + 1) % len(SERVER_PORTS)]
    with socket.socket() as taken:
        with suppress(OSError):  # somebody has it already, which is as good
            taken.bind(("127.0.0.1", following))
        assert free_port() not in (first, following)
