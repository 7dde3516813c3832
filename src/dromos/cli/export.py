"""`dromos export`: a conversation from a running server into a file or to standard output, byte for byte."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Literal

from dromos.client import Client
from dromos.domain.errors import Unavailable


def write(
    server: str, conversation: str, format: Literal["md", "jsonl", "json"], output: Path | None
) -> None:
    """Write the export. A file is replaced as a whole or left as it was.

    Raises Unavailable where the file cannot be written.
    """

    async def fetch() -> bytes:
        async with Client(server, patience=0) as client:
            return await client.export(conversation, format)

    content = asyncio.run(fetch())
    if output is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    partial = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(content)
        partial.replace(output)
    except OSError as error:
        partial.unlink(missing_ok=True)
        reason = error.strerror or error
        raise Unavailable(f"{output} cannot be written ({reason}); name another file with --output") from None
