"""One server over HTTP: requests that are repeated safely, and answers turned into values or errors.

A POST carries an `Idempotency-Key` made once for the call, so a repeat after a lost answer has one effect and gets the
first answer. It must not know which operations there are.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from dromos.client.errors import ClientError, ProtocolError, ServerFault, ServerUnreachable, from_problem

DELAYS = (0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds before each repeat; the last one repeats."""
ANSWER_SECONDS = 30.0
_BUSY = frozenset({502, 503, 504})


class Connection:
    """`patience`: seconds for which a request that got no answer, or 502 503 504, is repeated; 0: one try."""

    def __init__(
        self,
        url: str,
        *,
        patience: float = 10.0,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        new_key: Callable[[], str] = lambda: secrets.token_urlsafe(18),
    ) -> None:
        self.url = url.rstrip("/")
        self.patience = patience
        self.new_key = new_key
        self.http = httpx.AsyncClient(
            base_url=_address(self.url),
            transport=transport,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=5.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
            trust_env=False,
        )

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        answer_seconds: float = ANSWER_SECONDS,
        token: str | None = None,
        key: str | None = None,
        patience: float | None = None,
    ) -> httpx.Response:
        """The 2xx answer to a request. Raises ServerUnreachable, ProtocolError or an ApiError.

        `token`, `patience`: instead of the connection's. `key`: the Idempotency-Key of a POST that the caller repeats.
        """
        headers = {"Idempotency-Key": key or self.new_key()} if method == "POST" else {}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        params = {name: value for name, value in (query or {}).items() if value is not None}
        give_up = time.monotonic() + (self.patience if patience is None else patience)
        attempt = 0
        while True:
            wait = DELAYS[min(attempt, len(DELAYS) - 1)]
            attempt += 1
            try:
                answer = await self.http.request(
                    method,
                    path,
                    params=params,
                    json=body,
                    headers=headers,
                    timeout=httpx.Timeout(answer_seconds, connect=5.0),
                )
            except httpx.TransportError as error:
                if time.monotonic() + wait > give_up:
                    raise ServerUnreachable(self.url, _why(error)) from error
            else:
                if answer.status_code not in _BUSY or time.monotonic() + wait > give_up:
                    return checked(answer)
            await asyncio.sleep(wait)

    async def json(self, method: str, path: str, **options: Any) -> Any:
        """Like `send`, giving the JSON of the answer (None where it has no body)."""
        answer = await self.send(method, path, **options)
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            raise ProtocolError(
                f"{answer.url} answered something that is not JSON; is it a Dromos server?"
            ) from None

    @asynccontextmanager
    async def open_stream(
        self, path: str, *, query: Mapping[str, Any], headers: Mapping[str, str], silence: float
    ) -> AsyncIterator[httpx.Response]:
        """An answer whose body is read as it comes; `silence` is how many seconds may pass without a byte.

        One try. Raises ServerUnreachable (also while reading), ProtocolError or an ApiError.
        """
        timeout = httpx.Timeout(10.0, connect=5.0, read=silence)
        request = self.http.build_request(
            "GET", path, params=dict(query), headers=dict(headers), timeout=timeout
        )
        try:
            answer = await self.http.send(request, stream=True)
            try:
                if not answer.is_success:
                    await answer.aread()
                yield checked(answer)
            finally:
                await answer.aclose()
        except httpx.TransportError as error:
            raise ServerUnreachable(self.url, _why(error)) from error

    async def aclose(self) -> None:
        await self.http.aclose()


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
        if address.scheme in ("http", "https") and address.host:
            return address
        why = "it needs http:// or https:// and a name"
    except httpx.InvalidURL as error:
        why = str(error)
    raise ClientError(f"{url!r} is not an address ({why}); write one such as http://127.0.0.1:8321")


def checked(answer: httpx.Response) -> httpx.Response:
    """The answer if it is a success, else the error it means. A body must have been read for an error."""
    if answer.is_success:
        return answer
    status = answer.status_code
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if isinstance(problem, Mapping) and ("code" in problem or "detail" in problem):
        raise from_problem(status, problem)
    if status >= 500:
        raise ServerFault(
            status, f"http_{status}", f"{answer.url} answered {status}; look into the server's log"
        )
    raise ProtocolError(f"{answer.url} answered {status} without saying why; is it a Dromos server?")


def _why(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectError):
        return "nobody listens there"
    if isinstance(error, httpx.TimeoutException):
        return "it took too long"
    return str(error) or "the connection broke"
