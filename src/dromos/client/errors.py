"""What can go wrong for a client, drawn once:

    ClientError(DromosError)
    ├── ServerUnreachable      no answer: nobody listens, the connection broke, or it took too long
    ├── ProtocolError          an answer that is not this API's: another program, or a proxy, is at the address
    └── ApiError               the server said no, with a problem document (RFC 9457)
        ├── InvalidRequest     400, 422 and other 4xx: the request is wrong; `errors` says where
        ├── Denied             401, 403
        ├── NotFound           404
        ├── Conflict           409: somebody was faster or the state does not allow it; `current` says what is now
        └── ServerFault        5xx: the server cannot do it at the moment

It must not know transports: `connection` translates into these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dromos.domain.errors import DromosError

_CURRENT = ("run", "request", "document", "followup", "conversation", "version")


class ClientError(DromosError):
    """Base of everything this client raises on purpose. `detail` says what to do."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class ServerUnreachable(ClientError):
    """No answer from `url`; whether a request had an effect is unknown unless it was a repeatable one."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"no answer from {url} ({why}); start it with `dromos serve`, or name the server's address"
        )
        self.url = url


class ProtocolError(ClientError):
    """What answered does not speak this API."""


class ApiError(ClientError):
    """The server's refusal: HTTP `status`, stable `code`, readable `detail`, `errors` (code, path, message of each),
    and `current`: what the answer shows of the present state (`run`, `request`, `document` …)."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        current: Mapping[str, Any] | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.code = status, code
        self.current: dict[str, Any] = dict(current or {})
        self.errors = tuple(errors)


class InvalidRequest(ApiError):
    pass


class Denied(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    pass


class ServerFault(ApiError):
    pass


def from_problem(status: int, problem: Mapping[str, Any]) -> ApiError:
    """The error that a problem document means."""
    kinds: dict[int, type[ApiError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}
    kind = kinds.get(status, ServerFault if status >= 500 else InvalidRequest)
    return kind(
        status,
        str(problem.get("code") or f"http_{status}"),
        str(problem.get("detail") or problem.get("title") or f"the server answered {status}"),
        current={name: problem[name] for name in _CURRENT if name in problem},
        errors=[error for error in problem.get("errors") or () if isinstance(error, Mapping)],
    )
