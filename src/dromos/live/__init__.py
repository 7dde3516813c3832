"""Live documents and wake-ups: what is going on right now, in memory, for whoever looks.

Nothing here is the truth: rows are. This room knows no HTTP and no lifecycle.
"""

from dromos.live.hub import LiveHub
from dromos.live.memory import MemoryWakeup

__all__ = ["LiveHub", "MemoryWakeup"]
