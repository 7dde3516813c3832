"""The SDK stays light: who drives a run installs nothing of the server into their program."""

from __future__ import annotations

import subprocess
import sys

SERVER_ONLY = {
    *("pydantic", "fastapi", "starlette", "uvicorn", "sqlalchemy", "psycopg", "langgraph", "langchain_core"),
    *("mcp", "structlog", "prometheus_client"),
}
ROOMS = {"client", "domain", "wire"}


def test_importing_it_loads_httpx_and_the_rules_only() -> None:
    program = "import sys, dromos.client.adapter; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=15
    )
    loaded = set(done.stdout.split())
    assert "httpx" in loaded
    assert {name.partition(".")[0] for name in loaded} & SERVER_ONLY == set()
    assert {name.split(".")[1] for name in loaded if name.startswith("dromos.")} <= ROOMS
