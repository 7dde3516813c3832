"""Wake-ups: hints that something may be there to read. They carry no truth; losing one costs latency only.

In the process that committed it, what there is to read may come along, so that nobody has to read it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

WORK = "work"
"""A queued run may be claimable."""


def user_topic(user_id: str) -> str:
    """New durable events of a user."""
    return f"user:{user_id}"


def run_topic(run_id: str) -> str:
    """Something about an owned run changed that its owner must see: a stop, a steer."""
    return f"run:{run_id}"


def document_topic(conversation_id: str) -> str:
    """The document of a run of this conversation was saved; told to other processes only."""
    return f"document:{conversation_id}"


class Wakeup(Protocol):
    def notify(self, topic: str, news: Sequence[Any] = ()) -> None:
        """Wake whoever listens to `topic`; after the commit, never inside it. Thread-safe, never blocks.

        `news`: what was committed, for those who follow the topic in this process.
        """
        ...

    def notify_elsewhere(self, topic: str) -> None:
        """As `notify`, but only listeners in other processes are woken."""
        ...

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on the event loop at each wake-up (several may be merged into one); returns `stop`."""
        ...

    def follow(self, topic: str, callback: Callable[[Sequence[Any]], None]) -> Callable[[], None]:
        """As `listen`, but each wake-up comes by itself, in order, with its news. One without is to be read up on."""
        ...
