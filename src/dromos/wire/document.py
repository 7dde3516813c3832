"""The whole of `run_document.v1` for a reader: the server part composed from rows, the content part as it was saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dromos.domain.document import EMPTY_CONTENT

__all__ = ["EMPTY_CONTENT", "document_json"]

Json = dict[str, Any]


def document_json(server: Mapping[str, Any], content: Mapping[str, Any] | None, version: int) -> Json:
    """`{"run_id", "version", "run_version", "document"}`: a snapshot as it is fetched and streamed.

    The server part wins over a content key of the same name.
    """
    return {
        "run_id": server["run_id"],
        "version": version,
        "run_version": server["run_version"],
        "document": {**server, **EMPTY_CONTENT, **(content or {}), **server},
    }
