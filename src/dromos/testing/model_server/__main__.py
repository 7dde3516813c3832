"""`python -m dromos.testing.model_server`: prints its base URL as one line, then serves until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from dromos.testing.model_server.server import ModelServer


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m dromos.testing.model_server", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="port to listen on; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--api-key", help="answer 401 to requests without this key")
    parser.add_argument("--state", type=Path, help="keeps the counts of !error xTIMES over restarts")
    options = parser.parse_args()
    try:
        asyncio.run(_serve(options))
    except (OSError, ValueError) as problem:
        sys.exit(f"model_server: {problem}")
    except KeyboardInterrupt:
        pass


async def _serve(options: argparse.Namespace) -> None:
    async with ModelServer(
        host=options.host, port=options.port, api_key=options.api_key, state=options.state
    ) as server:
        print(server.base_url, flush=True)
        await server.serve_until_ended()


if __name__ == "__main__":
    main()
