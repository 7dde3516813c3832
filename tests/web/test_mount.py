"""The mount alone: addresses to files, caching, policy, and what it says when nothing is built."""

from __future__ import annotations

import gzip
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from dromos.web import mount

Get = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
def static(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>page</title>" + " " * 500)
    (folder / "assets" / "index-abc123.js").write_text("export const x = 1;" * 50)
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / ".sources").write_text("digest")
    return folder


@pytest.fixture
def get(static: Path) -> Get:
    async def agents(_: Request) -> JSONResponse:
        return JSONResponse({"items": []})

    app = Starlette(routes=[Route("/v1/agents", agents)])
    mount(app, static)

    async def request(path: str, method: str = "GET", **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, headers={"Accept-Encoding": "identity", **sent})

    return request


async def test_the_page_answers_at_its_own_addresses(get: Get) -> None:
    for path in ("/", "/c/0192f000-0000-7000-8000-000000000001", "/anything"):
        answer = await get(path)
        assert answer.status_code == 200
        assert "<title>page</title>" in answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"


async def test_addresses_of_the_api_are_never_the_page(get: Get) -> None:
    assert (await get("/v1/agents")).json() == {"items": []}
    for path in ("/v1/nothing", "/v1", "/api/chat", "/metrics", "/healthz/x", "/openapi.json"):
        assert (await get(path)).status_code == 404, path
    assert (await get("/v1/nothing", "POST")).status_code == 404
    assert (await get("/", "POST")).status_code == 404


async def test_a_missing_file_is_missing_and_not_the_page(get: Get) -> None:
    for path in ("/assets/index-old.js", "/robots.txt", "/.sources", "/../pyproject.toml", "/%2e%2e/x.py"):
        answer = await get(path)
        assert answer.status_code == 404, path
        assert "digest" not in answer.text


async def test_hashed_files_are_kept_for_ever_and_the_page_is_asked_for_each_time(get: Get) -> None:
    asset = await get("/assets/index-abc123.js")
    assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert asset.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (await get("/")).headers["cache-control"] == "no-cache"


async def test_what_a_browser_has_already_is_not_sent_again(get: Get) -> None:
    first = await get("/")
    again = await get("/", If_None_Match=f'W/"other", {first.headers["etag"]}')
    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["etag"] == first.headers["etag"]
    assert (await get("/", If_None_Match='"other"')).status_code == 200


async def test_files_are_sent_packed_to_those_who_take_it(get: Get, static: Path) -> None:
    packed = await get("/assets/index-abc123.js", Accept_Encoding="gzip, br")
    body = (static / "assets" / "index-abc123.js").read_bytes()
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == body  # httpx has unpacked it
    assert int(packed.headers["content-length"]) < len(body)
    assert len(gzip.compress(body)) < len(body)


async def test_head_sends_no_body(get: Get) -> None:
    answer = await get("/", "HEAD")
    assert answer.status_code == 200
    assert answer.content == b""


async def test_every_answer_carries_a_strict_policy(get: Get) -> None:
    for path in ("/", "/assets/index-abc123.js", "/robots.txt"):
        headers = (await get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


async def test_without_a_build_the_page_says_what_to_do_and_comes_when_it_is_built(
    get: Get, static: Path
) -> None:
    index = static / "index.html"
    page = index.read_text()
    assert (await get("/")).status_code == 200
    index.unlink()
    answer = await get("/")
    assert answer.status_code == 503
    assert "make setup" in answer.text
    assert (await get("/v1/agents")).status_code == 200
    index.write_text(page)
    assert (await get("/")).status_code == 200


async def test_a_new_build_is_served_without_a_restart(get: Get, static: Path) -> None:
    await get("/")
    index = static / "index.html"
    index.write_text("<!doctype html><title>newer</title>")
    os.utime(index, ns=(1, 1))
    assert "newer" in (await get("/")).text
