"""What the server saw: one record a request, for tests that ask whether a call was made, pulled or cut off.

It must not know HTTP.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

KEPT = 1_000
"""Records kept; the counts go on."""


@dataclass(slots=True)
class Pulled:
    """One request. `bytes` and `tokens` (words and calls) are those the client's connection has taken."""

    number: int
    model: str
    stream: bool
    status: int = 0
    bytes: int = 0
    tokens: int = 0
    open: bool = True
    finished: bool = False
    """The turn was played to its end; a request that ended without was cut off by its client."""


@dataclass(slots=True)
class Statistics:
    """All requests to `/v1/chat/completions`, refused ones included."""

    requests: int = 0
    open: int = 0
    aborted: int = 0
    refused: int = 0
    recent: deque[Pulled] = field(default_factory=lambda: deque(maxlen=KEPT))

    def begin(self) -> Pulled:
        """Count a request and give its record."""
        self.requests += 1
        self.open += 1
        pulled = Pulled(self.requests, model="", stream=False)
        self.recent.append(pulled)
        return pulled

    def end(self, pulled: Pulled) -> None:
        """The request is over, however it went; only the first call for a record counts."""
        if not pulled.open:
            return
        pulled.open = False
        self.open -= 1
        self.aborted += not pulled.finished
        self.refused += pulled.status >= 400

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it: `requests`, `open`, `aborted`, `refused` (status 400 and up), `recent`."""
        return asdict(self) | {"recent": [asdict(pulled) for pulled in self.recent]}
