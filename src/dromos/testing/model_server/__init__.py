"""The scripted model as an OpenAI-compatible HTTP server, for faults that go through a real client.

`python -m dromos.testing.model_server --port N` as a program, `ModelServer` inside a test. It obeys the same
directives as the scripted chat model; see `dromos.agents.langgraph.scripted.directives`. It must not know
Dromos.
"""

from dromos.testing.model_server.server import ModelServer

__all__ = ["ModelServer"]
