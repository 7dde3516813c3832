"""What happens when something is done to a run, for every state it can be in: the guide's table, as data.

`generate.py` writes it into the guide; `tests/faults/test_matrix.py` carries out each cell on a real stack. It must
hold no rule of its own: what is said here is what is seen from outside.
"""

from __future__ import annotations

from dataclasses import dataclass

STATES: dict[str, str] = {
    "queued": "`queued`",
    "backoff": "`queued`, backing off",
    "rate_limited": "`queued`, rate limited",
    "model": "`running`, model answers",
    "read": "`running`, a call that may be repeated",
    "unsafe": "`running`, a call that must not be cut",
    "waiting_input": "`waiting_input`",
    "cancelling": "`cancelling`, such a call is waited for",
    "completed": "`completed`",
    "failed": "`failed`",
    "cancelled": "`cancelled`",
    "interrupted": "`interrupted`",
    "expired": "`expired`",
}
LIVE = tuple(STATES)[:8]
ENDS = tuple(STATES)[8:]
PEOPLE: dict[str, str] = {
    "cancel": "stop",
    "queue": "message, `queue`",
    "steer": "message, `steer`",
    "interrupt": "message, `interrupt`",
    "reject": "message, `reject`",
    "decide": "decide",
    "delete": "delete the conversation",
    "continue": "Continue",
}
SIGNALS: dict[str, str] = {"TERM": "SIGTERM, start again", "KILL": "SIGKILL, start again"}


@dataclass(frozen=True)
class Cell:
    """`answer`: HTTP status, `code` of a refusal. `run`: where the run is led by it, '' where it goes on as it was.

    `then`: `waits` · `follows` (its run starts with this one's end) · `starts` (its run starts at once) · `goes on` ·
    `erased` · `new run`.
    """

    answer: int = 0
    code: str = ""
    run: str = ""
    then: str = ""

    def __str__(self) -> str:
        answer = f"`{self.answer}`" if self.answer else ""
        code = f"`{self.code}`" if self.code else ""
        run = f"→ `{self.run}`" if self.run else ""
        words = {
            "waits": "it waits",
            "follows": "its run follows",
            "starts": "its run starts",
            "goes on": "goes on",
            "erased": "erased",
            "new run": "a new run goes on",
            "taken over": "taken over, a crash counted",
            "handed back": "handed back, then goes on",
            "asks": "asks what became of the call",
            "as it was": "as it was",
        }
        said = words.get(self.then, self.then)
        return " ".join(part for part in (answer, code, run) if part) + (
            f"{', ' if answer or run else ''}{said}" if said else ""
        )


def _people() -> dict[tuple[str, str], Cell]:
    cells: dict[tuple[str, str], Cell] = {}
    for state in LIVE:
        unowned = state in ("queued", "backoff", "rate_limited", "waiting_input")
        stopping = state == "cancelling"
        cells[state, "cancel"] = Cell(202, run="cancelled")
        later = Cell(202, run="cancelled", then="follows") if stopping else Cell(202, then="waits")
        cells[state, "queue"] = cells[state, "steer"] = later
        if unowned:
            cells[state, "interrupt"] = Cell(201, run="interrupted", then="starts")
        else:
            cells[state, "interrupt"] = Cell(
                202, run="cancelled" if stopping else "interrupted", then="follows"
            )
        cells[state, "reject"] = Cell(409, "conversation_busy")
        cells[state, "decide"] = Cell(404, "not_found")
        cells[state, "delete"] = Cell(204, then="erased")
        cells[state, "continue"] = Cell(409, "conversation_busy")
    for state in ENDS:
        cells[state, "cancel"] = Cell(200) if state == "cancelled" else Cell(409, "already_ended")
        for mode in ("queue", "steer", "interrupt", "reject"):
            cells[state, mode] = Cell(201, then="starts")
        cells[state, "decide"] = Cell(404, "not_found")
        cells[state, "delete"] = Cell(204, then="erased")
        cells[state, "continue"] = Cell(201, then="new run")
    cells["waiting_input", "decide"] = Cell(200, run="completed", then="goes on")
    for state in ("cancelled", "expired"):  # ended while a question was open
        cells[state, "decide"] = Cell(409, "request_closed")
    cells["completed", "continue"] = Cell(409, "run_not_resumable")
    return cells


def _signals() -> dict[tuple[str, str], Cell]:
    cells: dict[tuple[str, str], Cell] = {}
    for state in STATES:
        cells[state, "TERM"] = cells[state, "KILL"] = Cell(then="as it was")
    for state in ("model", "read"):
        cells[state, "TERM"] = Cell(then="handed back")
        cells[state, "KILL"] = Cell(then="taken over")
    cells["unsafe", "TERM"] = cells["unsafe", "KILL"] = Cell(run="waiting_input", then="asks")
    cells["cancelling", "TERM"] = cells["cancelling", "KILL"] = Cell(run="cancelled")
    return cells


CELLS: dict[tuple[str, str], Cell] = _people() | _signals()


def table(actions: dict[str, str]) -> str:
    """The part of the matrix with these columns."""
    head = "| state | " + " | ".join(actions.values()) + " |"
    rows = [
        f"| {shown} | " + " | ".join(str(CELLS[state, action]) for action in actions) + " |"
        for state, shown in STATES.items()
    ]
    return "\n".join([head, "|---" * (len(actions) + 1) + "|", *rows])
