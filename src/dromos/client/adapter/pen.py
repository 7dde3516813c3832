"""Sends what the box and the spoken text say, four times a second at most, and keeps up with the document.

Every patch names the version it was made for. A conflict, a lost answer or a restarted server is healed in one way:
take the document as it is now and make the patch for what is still wanted again. What the server refuses is logged
fault by fault, dropped, and raised where somebody waits. It must not know runs, stops or leases.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from dromos.client.adapter.box import Box
from dromos.client.adapter.calls import BUSY, MOST_FAULTS, RunCalls
from dromos.client.adapter.edits import Edits, Patch, patch_for
from dromos.client.adapter.spoken import Spoken
from dromos.client.connection import DELAYS
from dromos.client.errors import ApiError, Conflict, ServerFault, ServerUnreachable
from dromos.domain.document import EMPTY_CONTENT
from dromos.domain.errors import LeaseLost
from dromos.domain.text import moment_text

log = logging.getLogger("dromos.adapter")
Json = dict[str, Any]

SECONDS_BETWEEN: Final = 0.25
SECONDS_OF_ACTIVITY: Final = 1.0
"""At most so often is told when the agent last moved."""
MOST_REBASES: Final = 8
"""Conflicts in a row before the next patch waits its turn again."""
MOST_UNSENT: Final = 256 * 1024
"""Characters of text that may wait before `say` waits too."""
MOST_STEPS: Final = 200


class Pen:
    """Writes one run's document. `box` and `spoken` are the caller's; `run` is to be kept as a task."""

    def __init__(
        self, calls: RunCalls, make_box: Callable[[Callable[[], None]], Box], new_id: Callable[[], str]
    ) -> None:
        self.version = 0
        self.box = make_box(self.touch)
        self.spoken = Spoken(new_id)
        self._calls = calls
        self._monotonic = calls.lease.monotonic
        self._known: Json = {}
        self._unsure = True  # the document has to be read before a patch can fit
        self._wanted = asyncio.Event()
        self._sending = asyncio.Lock()
        self._next_at = self._activity_at = 0.0
        self._moved_at: datetime | None = None  # the agent moved then, and nobody was told
        self._failures = self._faults = 0
        self._mark = self._settled = 0
        self._moved = asyncio.Event()
        self._refusal: ApiError | None = None
        self._ended: BaseException | None = None

    # ── the writer's side ─────────────────────────────────────────────────────────────────────────────────────

    def touch(self) -> None:
        """There is something to send."""
        self._mark += 1
        self._moved_at = self._calls.lease.server_now()
        self._wanted.set()

    async def say(self, text: str) -> None:
        """Append text; waits only while very much of it waits to be sent. Raises what the server refused before."""
        self._raise_refusal()
        self.spoken.say(text)
        self.touch()
        while self.spoken.unsent > MOST_UNSENT:
            await self._movement()

    async def flush(self) -> None:
        """Returns when the server has taken all so far. Raises LeaseLost, or an ApiError for what it refused."""
        mark = self._mark
        while self._settled < mark:
            self._raise_refusal()
            await self._movement()
        self._raise_refusal()

    async def show(self) -> None:
        """Send at once what was said: of a message that is stored, nothing more is shown live. Raises LeaseLost; where
        the server cannot be reached or takes no text, the rest is left out."""
        while self.spoken.unsent and not self._failures:
            await self._send()

    async def finish(self) -> None:
        """Send the rest at once, steps too. Raises LeaseLost; what the server refuses is logged and dropped, and so is
        everything where the server itself fails again and again."""
        self._faults = 0
        while self._pending() and self._faults < MOST_FAULTS:
            await self._calls.lease.pause(self._backoff())
            await self._send()
        self._refusal = None

    async def read(self) -> Json:
        """Take the document as it is now, and begin from its content part."""
        while self._unsure:
            await self._calls.lease.pause(self._backoff())
            try:
                await self._read()
            except (ServerUnreachable, ServerFault):
                self._failures += 1
        self._failures = 0
        return self._known

    async def run(self) -> None:
        """Send what is wanted, for ever. Raises LeaseLost."""
        try:
            while True:
                await self._wanted.wait()
                await self._calls.lease.pause(max(self._next_at - self._monotonic(), self._backoff()))
                await self._send()
        except BaseException as ended:
            self._ended = ended
            self._move()
            raise

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────

    def _pending(self) -> bool:
        return bool(self.box.edits or self.box.finished_steps or self.spoken.unsent)

    def _backoff(self) -> float:
        return DELAYS[min(self._failures, len(DELAYS)) - 1] if self._failures else 0.0

    async def _send(self) -> None:
        """One patch with all that fits into one, then the steps that ended. Never raises what a later try may heal."""
        async with self._sending:
            self._wanted.clear()
            mark = self._mark
            self._next_at = self._monotonic() + SECONDS_BETWEEN
            try:
                await self._send_patch()
                await self._send_steps()
            except (ServerUnreachable, ServerFault) as error:
                self._failures += 1
                self._faults += isinstance(error, ServerFault) and error.status not in BUSY
                log.debug("run %s: %s; trying again", self._calls.run_id, error)
            else:
                self._failures = self._faults = 0
            if self._pending():
                self._wanted.set()
            else:
                self._settled = max(self._settled, mark)
            self._move()

    async def _send_patch(self) -> None:
        if self._moved_at is not None and self._monotonic() >= self._activity_at:
            self.box.edits.put(("activity_at",), moment_text(self._moved_at))
            self._moved_at, self._activity_at = None, self._monotonic() + SECONDS_OF_ACTIVITY
        edits = self.box.edits.take()
        try:
            for _ in range(MOST_REBASES):
                if self._unsure:
                    await self._read()
                patch, piece = patch_for(self._known, edits), self.spoken.piece()
                if not patch.operations and piece is None:
                    edits = patch.left
                    return
                body: Json = {"base_version": self.version, "patch": patch.operations}
                if piece is not None:
                    body["text"] = piece
                try:
                    answer = await self._calls.patch(body)
                except ApiError as refusal:
                    if isinstance(refusal, ServerFault):
                        self._unsure = True
                        raise
                    self._refused(refusal, edits, patch)
                    continue
                except BaseException:
                    self._unsure = True  # it may have arrived
                    raise
                self._known, self.version, edits = patch.document, answer["version"], patch.left
                if piece is not None:
                    self.spoken.took(piece)
                return
        finally:
            self.box.edits.put_back(edits)

    async def _send_steps(self) -> None:
        while steps := self.box.finished_steps[:MOST_STEPS]:
            try:
                await self._calls.post("steps", {"steps": steps})
            except ApiError as refusal:
                if isinstance(refusal, ServerFault):
                    raise
                self._note(refusal)
            del self.box.finished_steps[: len(steps)]

    def _refused(self, refusal: ApiError, edits: Edits, patch: Patch) -> None:
        """Learn from a refusal: what to rebase on, or which changes can never be made."""
        if isinstance(refusal, Conflict) and "document" in refusal.current:
            self._take(refusal.current["document"], refusal.current["version"])
            return
        self._unsure = True
        self._note(refusal)
        dropped = False
        for fault in refusal.errors:
            at = str(fault.get("path", "")) + "/"
            if at.startswith("/text/"):
                self.spoken.give_up()
                dropped = True
            for operation, path in zip(patch.operations, patch.of, strict=True):
                if at.startswith(operation["path"] + "/"):
                    dropped = edits.drop(path) or dropped
        if not dropped:  # nothing to blame: all of this patch
            for path in patch.of:
                edits.drop(path)
            if not patch.operations:
                self.spoken.give_up()

    def _note(self, refusal: ApiError) -> None:
        faults = [f"{one.get('path')}: {one.get('message')} ({one.get('code')})" for one in refusal.errors]
        log.warning(
            "run %s: the server refused what the box should show: %s%s",
            self._calls.run_id,
            refusal.detail,
            "".join(f"\n  {fault}" for fault in faults),
        )
        self._refusal = refusal

    # ── the document ──────────────────────────────────────────────────────────────────────────────────────────

    async def _read(self) -> None:
        answer = await self._calls.document()
        self._take(answer["document"], answer["version"])

    def _take(self, document: Mapping[str, Any], version: int) -> None:
        self._known = {name: value for name, value in document.items() if name in EMPTY_CONTENT}
        shown = self._known.pop("text", None) or {"message_id": None, "length": 0}
        self.version, self._unsure = version, False
        self.spoken.seen(shown)

    # ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    async def _movement(self) -> None:
        self._calls.lease.check()
        if isinstance(self._ended, Exception):
            raise RuntimeError(
                "the box is not written any more; the cause is an error of the SDK"
            ) from self._ended
        if self._ended is not None:
            raise LeaseLost("this attempt of the run is over; nothing is sent for it any more")
        await self._moved.wait()

    def _move(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
