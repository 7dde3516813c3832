"""A command-line agent as coding tools are: a prompt in, newline-delimited JSON out, a session that can be resumed.

It counts the words of the text files in its folder. It knows nothing of Dromos.
"""

import argparse
import json
import sys
import uuid
from pathlib import Path


def tell(kind: str, **values: object) -> None:
    print(json.dumps({"type": kind, "session_id": session, **values}), flush=True)


def say(text: str, *calls: dict) -> None:
    global words
    words += len(text.split())
    content = [{"type": "text", "text": text}] if text else []
    usage = {"input_tokens": 40, "cache_read_input_tokens": 60, "output_tokens": len(text.split())}
    message = {
        "id": f"msg_{uuid.uuid4().hex}",
        "role": "assistant",
        "content": [*content, *calls],
        "usage": usage,
    }
    tell("assistant", message=message)


def use(tool: str, result: str = "", **arguments: object) -> None:
    call = {"type": "tool_use", "id": f"call_{uuid.uuid4().hex}", "name": tool, "input": arguments}
    say("", call)
    result = result or (folder / str(arguments["file"])).read_text()
    part = {"type": "tool_result", "tool_use_id": call["id"], "content": result, "is_error": False}
    tell("user", message={"role": "user", "content": [part]})


def plan(done: int) -> None:
    names = ["pending"] * len(books)
    names[:done] = ["completed"] * done
    if done < len(books):
        names[done] = "in_progress"
    todos = [
        {"content": f"Count {book.name}", "status": name} for book, name in zip(books, names, strict=True)
    ]
    use("TodoWrite", "kept", todos=todos)


parser = argparse.ArgumentParser()
parser.add_argument("--resume", default="")
parser.add_argument("--model", default="counting-1")
options = parser.parse_args()

prompt, words, folder = sys.stdin.read().strip(), 0, Path(__file__).parent / "books"
session = options.resume or f"session-{uuid.uuid4().hex[:12]}"
notes = Path(__file__).parent / "sessions" / f"{session}.json"
notes.parent.mkdir(exist_ok=True)
counts = json.loads(notes.read_text()) if notes.exists() else {}
books = sorted(folder.glob("*.txt"))

tell("system", subtype="init", model=options.model)
say(f"You asked: {prompt} I know {len(counts)} of {len(books)} books.")
for number, book in enumerate(books):
    if book.name in counts:
        continue
    plan(number)
    use("Read", file=book.name)
    counts[book.name] = len(book.read_text().split())
    notes.write_text(json.dumps(counts))
plan(len(books))
say(", ".join(f"{name} has {count} words" for name, count in counts.items()) + ".")
tell("result", subtype="success", is_error=False, result="", total_cost_usd=words * 0.0001)
