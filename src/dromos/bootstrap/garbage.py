"""The garbage collector of a process that serves: what was loaded stays, and is not looked through again and again.

LangChain and what it brings are some hundred thousand objects. A full collection looks at each of them, which takes
as long as dozens of small runs, and concurrent runs bring it about often. It must not know what was loaded.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 10_000
"""So many new objects bring about a collection of the young ones (Python's own: 700). What a step allocates is then
mostly gone before it counts as old."""


def collect_less() -> None:
    """For this process, from now on."""
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


def keep_what_is_loaded() -> None:
    """Everything that is there now counts as permanent. Called once, when all is imported."""
    gc.collect()
    gc.freeze()
