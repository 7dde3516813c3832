"""Puts the built page under an application: addresses to files, caching, and the policy of what a page may load.

It must not know the API; all it takes from it is which addresses are not the page's. It answers only GET and HEAD
for addresses no earlier route has taken, so it is mounted last.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

STATIC = Path(__file__).with_name("static")

#: First parts of addresses that belong to the API. Unknown ones below them are its 404, never the page.
API = frozenset({"v1", "api", "healthz", "readyz", "metrics", "openapi.json", "docs", "redoc"})

#: Everything comes from this origin, as files; nothing inline, nothing from elsewhere, no frame around the page.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types svelte-trusted-html dromos-worker",
    ]
)

_SAFETY = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

_MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Dromos</title>
<h1>The page is not built yet</h1>
<p>The server works, but this installation has no built page. Run <code>make setup</code> in the project's folder,
then load this page again. The server need not be restarted.</p>
<p>Meanwhile <code>dromos chat</code> works in a terminal.</p></html>"""


def mount(app: Starlette, static: Path = STATIC) -> None:
    """Adds the page behind all routes `app` has now. `static` is the folder of the built files; it may be missing."""
    app.router.routes.append(PageRoute(static))


class PageRoute(BaseRoute):
    """Matches what is left for the page: GET and HEAD outside the API's addresses."""

    def __init__(self, static: Path) -> None:
        self._files = BuiltFiles(static)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Full for the page's addresses, none for all others, so that their 404 and 405 stay the API's."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return Match.NONE, {}
        first = str(scope["path"]).lstrip("/").split("/", 1)[0]
        return (Match.NONE, {}) if first in API else (Match.FULL, {"endpoint": self})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request of a browser."""
        response = self._answer(str(scope["path"]), Headers(scope=scope))
        await response(scope, receive, send)

    def _answer(self, path: str, headers: Headers) -> Response:
        files = self._files.current()
        if files is None:
            return HTMLResponse(_MISSING, 503, {**_SAFETY, "Cache-Control": "no-store"})
        name = path.lstrip("/")
        file = files.get(name)
        if file is None and not name.startswith("assets/") and "." not in name.rsplit("/", 1)[-1]:
            file = files["index.html"]  # an address of the page's own, such as /c/{id}
        if file is None:
            return PlainTextResponse("There is no such file.", 404, {**_SAFETY, "Cache-Control": "no-store"})
        return _serve(file, headers)


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """A file of the page as it is sent. Files under `assets/` carry a digest in their name and never change."""

    body: bytes
    packed: bytes | None
    media_type: str
    etag: str
    immutable: bool


class BuiltFiles:
    """The built files in memory (a few hundred KB), read again when a new build has replaced them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: int | None = None
        self._files: dict[str, BuiltFile] = {}

    def current(self) -> dict[str, BuiltFile] | None:
        """Files by address without the leading slash, or None when there is no build."""
        try:
            built = (self._folder / "index.html").stat().st_mtime_ns
            if built != self._built:
                self._files, self._built = self._read(), built
        except FileNotFoundError:
            self._built = None
            return None
        return self._files

    def _read(self) -> dict[str, BuiltFile]:
        files: dict[str, BuiltFile] = {}
        for path in self._folder.rglob("*"):
            if not path.is_file() or path.name.startswith("."):
                continue
            name = path.relative_to(self._folder).as_posix()
            body = path.read_bytes()
            packed = gzip.compress(body, 9, mtime=0)
            files[name] = BuiltFile(
                body=body,
                packed=packed if len(packed) < len(body) else None,
                media_type=_media_type(name),
                etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"',
                immutable=name.startswith("assets/"),
            )
        return files


def _media_type(name: str) -> str:
    if name.endswith(".js"):
        return (
            "text/javascript; charset=utf-8"  # a system's own table may say otherwise, and nosniff is strict
        )
    found = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{found}; charset=utf-8" if found.startswith("text/") else found


def _serve(file: BuiltFile, headers: Headers) -> Response:
    answer = {
        **_SAFETY,
        "ETag": file.etag,
        "Cache-Control": "public, max-age=31536000, immutable" if file.immutable else "no-cache",
        "Vary": "Accept-Encoding",
    }
    known = {tag.strip().removeprefix("W/") for tag in headers.get("If-None-Match", "").split(",")}
    if file.etag in known or "*" in known:
        return Response(None, 304, answer)
    body = file.body
    if file.packed is not None and "gzip" in headers.get("Accept-Encoding", ""):
        body, answer["Content-Encoding"] = file.packed, "gzip"
    return Response(body, 200, answer, file.media_type)
