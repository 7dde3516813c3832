"""One suite for every store: what `dromos.ports.store` promises, as tests a store is run against.

Import the classes of `rows`, `runs`, `events` and `transactions` into a test module and provide a fixture `backend`
(a `Backend`). The suite knows ports and domain only; it never asks which database it has, and skips nothing: what
a store cannot do, it declares.
"""

from __future__ import annotations

from typing import Protocol

from dromos.ports.store import LeaseKeeper, Store


class Backend(Protocol):
    """A store on an empty database of its own."""

    @property
    def store(self) -> Store: ...

    async def elsewhere(self) -> Store:
        """The store as another process sees it. A database that only one process writes gives the same store."""
        ...

    def lease_keeper(self) -> LeaseKeeper:
        """Blocking; called from a thread."""
        ...
