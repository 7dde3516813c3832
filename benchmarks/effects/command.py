"""A command-line agent: one line with its session, one message, a result. Asked to go on it says that it does."""

from __future__ import annotations

import json
import sys
from typing import Any

SESSION = {"session_id": "s-1"}


def main() -> None:
    sys.stdin.read()
    said = "went on" if "--resume" in sys.argv else "heard"
    message = {"id": f"m-{said}", "content": [{"type": "text", "text": said}]}
    _print(type="system", subtype="init")
    _print(type="assistant", message=message)
    _print(type="result", subtype="success", result=said)


def _print(**line: Any) -> None:
    print(json.dumps({**line, **SESSION}), flush=True)


if __name__ == "__main__":
    main()
