"""A small reference of what the lifecycle promises: dictionaries and plain rules, written apart from the product.

`Reference` says what each step must lead to. It knows statuses and follow-ups by name only; the machine under test
is not consulted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FINAL = {"completed", "failed", "cancelled", "interrupted", "expired"}
END_OF_CAUSE = {
    "cancel_requested": "cancelled",
    "superseded": "interrupted",
    "budget_exceeded": "interrupted",
    "run_deadline": "expired",
}
EDGES = {
    *(("queued", to) for to in ("running", "cancelled", "interrupted", "expired", "failed")),
    *(
        ("running", to)
        for to in ("queued", "waiting_input", "cancelling", "completed", "failed", "interrupted")
    ),
    *(("waiting_input", to) for to in ("queued", "cancelled", "expired", "interrupted")),
    *(("cancelling", to) for to in ("cancelled", "interrupted", "expired")),
}


@dataclass
class RunState:
    id: str
    conversation: str
    status: str = "queued"
    cause: str | None = None
    stopped_by_person: bool = False
    crashes: int = 0
    attempt: int = 0
    owner: str | None = None
    resume_of: str | None = None
    open_end: bool = False

    @property
    def is_final(self) -> bool:
        return self.status in FINAL


@dataclass
class Asked:
    """A question to a person; `policy` says what counts where nobody answers in time."""

    id: str
    run: str
    policy: str = "expire"
    status: str = "open"
    said: str | None = None
    by: str | None = None


@dataclass
class Waiting:
    id: str
    text: str
    status: str = "waiting"
    during_stop: bool = False
    mode: str = "queue"  # what it acts as
    asked: str = "queue"

    @property
    def is_open(self) -> bool:
        return self.status in ("waiting", "held")

    def queue(self) -> None:
        """The run it was to steer is over."""
        if self.mode == "steer":
            self.mode = "queue"


@dataclass
class Talk:
    id: str
    runs: list[str] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)  # in order, whatever their status
    said: list[str] = field(default_factory=list)  # by the person, in the order of the history
    head: str | None = None  # the run whose input reached the thread last


@dataclass
class Reference:
    asks: bool
    runs: dict[str, RunState] = field(default_factory=dict)
    talks: dict[str, Talk] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)

    def questions(self, run: RunState, *statuses: str) -> list[Asked]:
        return [one for one in self.asked.values() if one.run == run.id and one.status in statuses]

    def decided(self, one: Asked, said: str, by: str) -> None:
        """A person's word or the policy's; with the last one the run goes on."""
        one.status, one.said, one.by = "decided", said, by
        run = self.runs[one.run]
        if not self.questions(run, "open"):
            run.status = "queued"

    def timed_out(self, one: Asked) -> None:
        if one.policy == "expire":
            one.status = "expired"
            self.end(self.runs[one.run], "expired")
        else:
            self.decided(one, "deny" if one.policy == "deny" else "approve", "policy")

    def live(self, talk: Talk) -> RunState | None:
        last = self.runs[talk.runs[-1]] if talk.runs else None
        return last if last is not None and not last.is_final else None

    def started(self, talk: Talk, run_id: str, resume_of: str | None = None) -> None:
        assert self.live(talk) is None
        self.runs[run_id] = RunState(run_id, talk.id, resume_of=resume_of)
        talk.runs.append(run_id)
        for one in talk.waiting:
            if one.status == "waiting":
                one.during_stop = False
                one.queue()

    def claimed(self, run: RunState, owner: str) -> None:
        run.status, run.owner, run.attempt = "running", owner, run.attempt + 1

    def stop(self, run: RunState, cause: str) -> bool:
        """A stop arrives; True where the run ends by it at once."""
        if run.status == "running":
            run.status, run.cause = "cancelling", cause
        elif run.status in ("queued", "waiting_input"):
            run.cause = cause
            self.end(run, END_OF_CAUSE[cause])
        elif run.status == "cancelling" and cause == "cancel_requested" and run.cause != cause:
            run.cause = cause
            for one in self.talks[run.conversation].waiting:
                one.during_stop = False
        run.stopped_by_person |= cause == "cancel_requested"
        return run.is_final

    def owner_is_done(self, run: RunState, status: str) -> None:
        """The attempt is over with this status, unless a stop decides the end."""
        run.owner = None
        if run.status == "cancelling":
            self.end(run, END_OF_CAUSE[run.cause or ""])
        elif status in FINAL:
            self.end(run, status, open_end=status in ("failed", "interrupted"))
        else:
            run.status = status

    def owner_is_lost(self, run: RunState) -> None:
        if run.status == "running":
            run.crashes += 1
        if run.crashes >= 3 and run.status == "running":
            self.owner_is_done(run, "failed")
        else:
            self.owner_is_done(run, "interrupted" if self.asks else "queued")

    def end(self, run: RunState, status: str, *, open_end: bool = False) -> None:
        run.status, run.open_end, run.owner = status, open_end, None
        for asked in self.questions(run, "open", "decided"):
            asked.status = "void"
        goes_on = status == "completed" or (run.cause == "superseded" and not open_end)
        for one in self.talks[run.conversation].waiting:
            if one.status == "waiting" and not goes_on and not one.during_stop:
                one.status = "held"
                one.queue()

    def accepted(self, talk: Talk, waiting: Waiting) -> None:
        """Behind what is open; a message that interrupts before it."""
        open_ones = [one for one in talk.waiting if one.is_open]
        front = waiting.mode == "interrupt" and open_ones
        talk.waiting.insert(talk.waiting.index(open_ones[0]) if front else len(talk.waiting), waiting)

    def moved(self, talk: Talk, one: Waiting, place: int) -> None:
        open_ones = [other for other in talk.waiting if other.is_open and other is not one]
        open_ones.insert(place, one)
        talk.waiting = [other for other in talk.waiting if not other.is_open] + open_ones

    def read_while_at_work(self, talk: Talk) -> list[str]:
        """The live run's owner takes what is to steer it."""
        steering = [one for one in talk.waiting if one.status == "waiting" and one.mode == "steer"]
        for one in steering:
            one.status = "applied"
            talk.said.append(one.text)
        return [one.text for one in steering]

    def applied(self, talk: Talk, one: Waiting) -> None:
        """It starts a run; what waits behind it waits for that one."""
        one.status = "applied"
        talk.said.append(one.text)
        one.queue()

    def successor_is_due(self, talk: Talk) -> Waiting | None:
        """After an end: the message that must have started the next run."""
        if self.live(talk) is not None:
            return None
        return next((one for one in talk.waiting if one.status == "waiting"), None)

    def succeeded(self, talk: Talk, run_id: str) -> None:
        first = self.successor_is_due(talk)
        assert first is not None
        self.applied(talk, first)
        self.started(talk, run_id)

    def way_to_continue(self, talk: Talk) -> str | None:
        """resume_of | retry_of | None, where the agent's thread has something pending."""
        last = self.runs[talk.runs[-1]]
        if not last.is_final or last.status == "completed":
            return None
        run: RunState | None = last
        while last.open_end and run is not None:
            if run.id == talk.head:
                return "resume_of"
            run = self.runs[run.resume_of] if run.resume_of else None
        return "retry_of"
