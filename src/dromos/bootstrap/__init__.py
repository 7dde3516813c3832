"""The composition root: the only place that knows every room. It wires and decides nothing.

`assemble` builds a whole server as a context manager; `serve` runs one until a signal. `migrate` and `inspect` are the
other two things the command line needs from inside. Rooms are imported where they are used, so that a command loads
no more than it needs.
"""

from dromos.bootstrap.assembling import LOCAL_USER, System, assemble
from dromos.bootstrap.inspecting import AgentFacts, DatabaseFacts, Inspection, inspect, migrate
from dromos.bootstrap.serving import serve

__all__ = [
    "LOCAL_USER",
    "AgentFacts",
    "DatabaseFacts",
    "Inspection",
    "System",
    "assemble",
    "inspect",
    "migrate",
    "serve",
]
