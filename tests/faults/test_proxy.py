"""Behind a stock nginx, which buffers and compresses answers and closes what is silent: the stream is none of that."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from dromos.testing.processes import RealProcess, ServeProcess, free_port
from dromos.testing.waiting import eventually, within
from tests.faults.driver import Person

FULL = bool(os.environ.get("FULL"))
READ_TIMEOUT, SILENCE = (60, 90) if FULL else (8, 11)
"""Seconds after which the proxy closes a silent connection, and for how long the stream has nothing to say."""

CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    gzip on;
    gzip_min_length 1;
    gzip_proxied any;
    gzip_types {types};
    proxy_read_timeout {timeout}s;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{server}; }}
    }}
}}
"""


@pytest.fixture(params=["application/json", "*"], ids=["compressing-json", "compressing-everything"])
async def proxied(
    nginx: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[ServeProcess, str]]:
    """A server and the address of the proxy before it."""
    folder = tmp_path / "nginx"
    folder.mkdir()
    port = free_port()
    async with ServeProcess(tmp_path / "data") as server:
        user = "user root;" if os.geteuid() == 0 else ""
        text = CONFIGURATION.format(
            folder=folder, user=user, timeout=READ_TIMEOUT, port=port, server=server.port, types=request.param
        )
        (folder / "nginx.conf").write_text(text)
        command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")]
        proxy = RealProcess(command, log=folder / "out.log")
        await proxy.start()
        try:
            url = f"http://127.0.0.1:{port}"

            async def answers() -> bool:
                async with httpx.AsyncClient(trust_env=False) as http:
                    try:
                        return (await http.get(f"{url}/healthz")).status_code == 200
                    except httpx.TransportError:
                        return False

            await eventually(answers, what="the proxy")
            yield server, url
        finally:
            await proxy.close()


@pytest.mark.case("P96")
@pytest.mark.slow(180)
async def test_small_frames_arrive_at_once_and_the_stream_outlives_silence(
    proxied: tuple[ServeProcess, str],
) -> None:
    server, url = proxied
    async with (
        Person(server) as direct,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as through,
    ):
        whole = await through.get("/v1/agents", headers={"accept-encoding": "gzip"})
        assert whole.headers["content-encoding"] == "gzip", "this proxy compresses what it may"
        conversation = await direct.conversation()
        request = through.build_request(
            "GET", "/v1/stream", params={"focus": conversation}, headers={"accept-encoding": "gzip"}
        )
        answer = await through.send(request, stream=True)
        try:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert "no-transform" in answer.headers["cache-control"]
            pieces = answer.aiter_bytes()

            async def until(word: bytes) -> float:
                heard = b""
                while word not in heard:
                    heard += await anext(pieces)
                return time.monotonic()

            await within(2, until(b"event: hello"), "the first frame")
            began = time.monotonic()
            await direct.ask("PATCH", f"/v1/conversations/{conversation}", json={"title": "one"})
            assert await within(5, until(b"conversation.changed"), "an event") - began < 1
            comments = 0
            quiet_until = time.monotonic() + SILENCE
            while time.monotonic() < quiet_until:
                piece = await within(7, anext(pieces), "a sign of life")
                assert piece.strip() == b":"
                comments += 1
            assert comments >= SILENCE // 6
            began = time.monotonic()
            posting = asyncio.create_task(direct.say(conversation, "!say a\n!say b"))
            arrived = await within(10, until(b"event: run.document"), "the first frame of a run")
            await posting
            await within(10, until(b'"status":"completed"'), "the end")
            assert arrived - began < 5
        finally:
            await answer.aclose()
