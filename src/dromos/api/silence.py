"""Owners that give no sign of life: shown to whoever looks at their runs, with the time of the takeover.

A silent owner tells nobody, so somebody has to look: as often as the sweep that takes its runs over, and only for
conversations that are in focus here. It decides nothing; the lease acts.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from dromos.domain.errors import Unavailable
from dromos.domain.runs import Run
from dromos.lifecycle import Lifecycle
from dromos.ports.live import LiveDocuments

log = structlog.get_logger("dromos.api")


async def tell_of_silent_owners(lifecycle: Lifecycle, live: LiveDocuments, every: float) -> None:
    """Look every `every` seconds until cancelled."""
    told: dict[str, Run] = {}  # by conversation
    while True:
        await asyncio.sleep(every)
        try:
            told = await _look(lifecycle, live, told)
        except Unavailable as error:
            log.warning("silence.unreadable", error=error.detail)
        except Exception:
            log.exception("silence.failed")


async def _look(lifecycle: Lifecycle, live: LiveDocuments, told: dict[str, Run]) -> dict[str, Run]:
    """Tell of owners that are silent, and of those that were and are not any more; returns the silent ones."""
    focused = live.focused()
    if not focused:
        return {}
    silent = await lifecycle.silent_owners(focused)
    for conversation_id, (run, owner) in silent.items():
        live.server(conversation_id, run.id, {"run_version": run.version, "owner": owner})
    for conversation_id, run in told.items():
        if conversation_id not in silent:
            back: dict[str, Any] = {"kind": run.owner_kind, "seen_at": None, "takeover_at": None}
            live.server(conversation_id, run.id, {"run_version": run.version, "owner": back})
    return {conversation_id: run for conversation_id, (run, _) in silent.items()}
