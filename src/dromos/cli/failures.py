"""From an error to what a person reads on standard error, and the exit code. It must not print or exit itself.

Imports the rooms whose errors it knows only when there is an error, so that a command starts quickly.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3


def explain(error: Exception) -> tuple[str | None, ExitCode]:
    """The text and the exit code; no text where the error is not one that was foreseen."""
    from dromos.client.errors import ApiError, ClientError, ServerUnreachable
    from dromos.domain.errors import DromosError, Refusal, Unavailable
    from dromos.settings import SettingsError

    if isinstance(error, SettingsError):
        return "\n".join(["error: these settings cannot be used", *error.problems]), ExitCode.USAGE
    if isinstance(error, Refusal | Unavailable):
        return f"error: {error.detail}", ExitCode.FAILED
    if isinstance(error, ServerUnreachable):
        return f"error: {error.detail}: --server URL, or DROMOS_SERVER", ExitCode.UNREACHABLE
    if isinstance(error, ApiError):
        faults = [
            f"  {fault.get('path', '')}: {fault.get('message', '')}"
            for fault in error.errors
            if str(fault.get("message", "")).casefold() not in error.detail.casefold()  # said already
        ]
        return "\n".join([f"error: {error.detail} ({error.code})", *faults]), ExitCode.FAILED
    if isinstance(error, ClientError):
        return f"error: {error.detail}", ExitCode.FAILED
    if isinstance(error, DromosError):
        return f"error: {error}", ExitCode.FAILED
    return None, ExitCode.FAILED
