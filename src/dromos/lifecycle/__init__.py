"""The single write path of the product, and its read side.

Every change of a run is here: one function `fn(tx)` per operation that loads, lets `dromos.domain.machine` decide,
and swaps, together with the durable event, in one transaction. Doors and workers call `Lifecycle`; nothing else
writes a status. It knows ports and domain, no database, no web framework, no agent framework.
"""

from dromos.lifecycle.service import Lifecycle

__all__ = ["Lifecycle"]
