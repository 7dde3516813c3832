"""The model server as a context: application, statistics and counts on a local port.

With a state file the counts of `!error … xTIMES` outlive the process: a server that is killed and started
again fails as often as its script says.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dromos.agents.langgraph.scripted.engine import FailureCounts
from dromos.testing.local_http import LocalHTTP
from dromos.testing.model_server.app import ScriptedModelApp
from dromos.testing.model_server.statistics import Statistics


class ModelServer(LocalHTTP):
    """`async with ModelServer() as server:` serves at `server.base_url`; port 0 takes a free port.

    With `api_key`, requests without it are answered 401. Raises OSError if the port is taken, ValueError if
    the state file is not one of ours.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        state: Path | None = None,
    ) -> None:
        self.statistics = Statistics()
        self._state = state
        self._counts = FailureCounts(_read(state))
        app = ScriptedModelApp(self.statistics, self._counts, api_key=api_key, on_count=self._save)
        super().__init__(app.asgi(), host=host, port=port)

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"{self.url}/v1"

    def _save(self) -> None:
        if self._state is None:
            return
        draft = self._state.with_name(f"{self._state.name}.draft")
        draft.write_text(json.dumps({"failed": self._counts.as_dict()}))
        os.replace(draft, self._state)


def _read(state: Path | None) -> dict[str, int]:
    if state is None or not state.exists():
        return {}
    try:
        content: Any = json.loads(state.read_text())
        return {str(key): int(count) for key, count in content["failed"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        problem = f"{state} is not a state file of the model server; remove it to start anew"
        raise ValueError(problem) from None
