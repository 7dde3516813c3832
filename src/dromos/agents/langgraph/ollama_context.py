"""How much a model reads on an Ollama server: what that server itself says of it, or None.

What a model was trained for says nothing: Ollama cuts the context at what it was loaded with.
"""

from __future__ import annotations

import re
from typing import Any

SECONDS = 2.0
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


async def ollama_context(address: str, model: str) -> int | None:
    """Tokens: of the model as it is loaded now, else as its own file sets it; None where the server does not tell."""
    import httpx  # late: most servers never need it here

    try:
        async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as client:
            loaded = await client.get(f"{address}/api/ps")
            found = _loaded(loaded.json() if loaded.is_success else {}, model)
            if found is not None:
                return found
            shown = await client.post(f"{address}/api/show", json={"model": model})
            return _configured(shown.json() if shown.is_success else {})
    except (httpx.HTTPError, ValueError):
        return None


def _loaded(told: Any, model: str) -> int | None:
    entries = told.get("models") if isinstance(told, dict) else None
    for entry in entries or ():
        if isinstance(entry, dict) and {entry.get("name"), entry.get("model")} & {model, f"{model}:latest"}:
            length = entry.get("context_length")
            return length if isinstance(length, int) and length > 0 else None
    return None


def _configured(told: Any) -> int | None:
    parameters = told.get("parameters") if isinstance(told, dict) else None
    found = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return int(found[1]) if found else None
