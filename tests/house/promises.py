"""What the product promises, as data: a number and one sentence each.

A test says which promise it shows with `@pytest.mark.case("P70")` or `@pytest.mark.promise("S6")`;
`test_promises.py` checks both ways that nothing is promised without a test and no test claims an unknown
number. Cases (P) are troubles people met with systems of this kind, turned into what happens here.
"""

from __future__ import annotations

CASES: dict[str, str] = {
    "P01": "After a kill and a restart every run under way is recovered or ended, and new runs start at once.",
    "P03": "A run that used up its crashes ends failed, and its conversation takes the next message.",
    "P04": "A run left `running` without any lease is found and recovered by the first sweep.",
    "P10": "Of two recoverers that read the same stale list only the one that claims a run executes it.",
    "P14": "A continued run shows nothing of an earlier end: it is a new run with its own times and reason.",
    "P15": "Silence of a model or a tool is measured apart from the lease: it is shown, or ends the run as stalled.",
    "P16": "A slow agent that moves is never called stalled; a silent one is tried again within its tries, then fails.",
    "P17": "Nothing that marks a run as busy outlives the run: after a crash the conversation takes work again.",
    "P19": "A run that kills its worker is counted as crashed and ends after three, without grinding on.",
    "P34": "Stopping a run that waits for a person voids its question; a late answer is told so, and the next message is taken.",
    "P38": "Three parallel tool calls ask three questions with ids of their own; each call gets its own answer, in any order.",
    "P43": "Of twenty who decide one question at once one is taken, the others are told who was, and the run goes on once.",
    "P45": "A question keeps its id through restarts, the same in list, events and document, and is decided by it.",
    "P46": "A question with a time limit ends as its policy says; one without is answerable after days and restarts.",
    "P47": "A message sent while a question is open waits behind it; neither is lost.",
    "P50": "Closed clients, time and restarts never decide a question.",
    "P63": "A server that cannot reach its database is not ready and refuses runs; it never falls back to memory.",
    "P70": "A POST repeated with the same idempotency key has one effect and gets the same answer, across restarts.",
    "P72": "A stored value whose class is gone fails the run and names the field; it never becomes None in silence.",
    "P73": "Of two messages sent to one conversation at once, one starts a run and the other waits its turn.",
    "P74": "A stale writer is refused and stops; two servers never interleave in one conversation.",
    "P75": "Two writers on one thread: one is refused, the line of checkpoints never forks.",
    "P77": "A message accepted at any moment around a run's end is consumed exactly once, by that run or a later one.",
    "P78": "Messages that wait survive their client and their server, in order, editable until a run takes them.",
    "P81": "Rejoining a finished run with any cursor ends or catches up at once, before and after a restart.",
    "P85": "Whatever is raised inside a run ends it with one durable, final event.",
    "P86": "A run that failed never also reports that it finished.",
    "P88": "A page whose stream falls silent without an end finds out within two and a half heartbeats; nothing is lost.",
    "P90": "After a gap a device shows the server's document at the server's version, never what streamed before it.",
    "P92": "Nothing is lost between the snapshot of a conversation and the stream that follows it.",
    "P93": "Events become visible in the order of their numbers; a cursor never skips one that commits later.",
    "P97": "Many tabs share few connections: each page loads, answers at once, and is current when it is shown.",
    "P99": "A reload in mid-answer shows all of the answer so far and keeps what was typed and chosen.",
    "P104": "The engine and the product write one SQLite file through one writer; nobody sees 'database is locked'.",
    "P106": "Deleting a conversation removes everything it owns, checkpoints included, also when interrupted half-way.",
    "P107": "A database connection that was closed while idle is replaced; the run does not fail for it.",
    "P109": "History is stored once per message; a long conversation grows in proportion, not with its square.",
    "P123": "A tool server that dies in a call makes that call an error within a limit; the server comes back.",
    "P124": "A call that is cancelled or times out is cancelled at the tool server too; the session stays usable.",
    "P126": "Progress keeps a long call alive up to the whole limit; silence ends it at the shorter one.",
    "P128": "A huge answer of a tool is cut with a notice; the next call works.",
    "P129": "Closing a tool server ends its whole process group, also one that ignores the polite request.",
    "P130": "A NUL character in any text is stored as U+FFFD, the same on both databases, and the answer shows it.",
    "P131": "A lone surrogate from a person, a model or a tool becomes U+FFFD before it is stored or sent on.",
    "P134": "Several processes that start on one empty database all become ready; each migration runs once.",
    "P137": "Leases are judged by the database's clock; a process whose own clock is wrong takes no live work.",
    "P138": "At shutdown every stream gets a goodbye and a proper end.",
    "P140": "Reaching the step limit keeps the work done so far, and Continue goes on from there.",
    "P143": "One list per person holds what needs them, counted and linked, on every device, until it is handled on one.",
}

PROMISES: dict[str, str] = {
    "S1": "Conversation, thread, run and checkpoint are kept apart; the guide says where each one is kept.",
    "S2": "The run exists before the agent runs; its outcome and the message count are written in one transaction.",
    "S3": "Continue after a failure is a new run that adds only the missing checkpoints and repeats no finished step.",
    "S4": "A failed run carries a stable error code; a model that cannot be reached is MODEL_UNAVAILABLE.",
    "S5": "Every checkpoint names the run that wrote it, in its metadata and in a column, and can be found both ways.",
    "S6": "A conversation has at most one live run, and the database itself says so.",
    "S7": "A conversation is exported as Markdown, and as JSONL with one line for each checkpoint.",
    "S8": "The laboratory's HTTP paths, stream and SQL work unchanged on this server.",
    "L1": "Every change of status is an edge of the one table, by compare-and-swap; every other pair is refused.",
    "L9": "The laboratory of the state machine: all pairs, the closed reasons, the trigger's status for each end.",
}
