"""One browser tab with the page, in the words of a person: say, wait for an answer, read the box."""

from __future__ import annotations

import re
from typing import Any, Self
from urllib.parse import urlsplit

from playwright.async_api import Browser, ConsoleMessage, Locator, Page, Request, expect

WAIT_MS = 12_000
_LOST = re.compile(
    r"net::ERR_(CONNECTION_(REFUSED|RESET|CLOSED|ABORTED)|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE"
    r"|CONTENT_LENGTH_MISMATCH|SOCKET_NOT_CONNECTED)"
)
_HIDDEN = """(hidden) => {
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event('visibilitychange'));
}"""


class Tab:
    """A tab, and what it has done that it must not do: errors on its console, requests to another host."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.may_lose_server = False
        self.may_be_refused = False
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._asked)
        page.set_default_timeout(WAIT_MS)

    @classmethod
    async def open(
        cls,
        browser: Browser,
        base: str,
        path: str,
        *,
        beside: Tab | None = None,
        init: str | None = None,
        permissions: tuple[str, ...] = (),
        **options: Any,
    ) -> Self:
        """A tab on `base + path`: in the same browser profile as `beside`, else in a fresh one, in which every page
        first runs the script `init`, and may do what `permissions` name."""
        if beside is not None:
            context = beside.page.context
        else:
            context = await browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
            granted = ["clipboard-read", "clipboard-write", *permissions]
            await context.grant_permissions(granted, origin=base)
            if init is not None:
                await context.add_init_script(init)
        tab = cls(await context.new_page(), base)
        await tab.page.goto(base + path)
        await tab.composer.wait_for()
        return tab

    async def close(self) -> None:
        await self.page.close()
        if not self.page.context.pages:
            await self.page.context.close()

    # --- what is on the page -----------------------------------------------------------------------------------

    @property
    def composer(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def send_button(self) -> Locator:
        return self.page.locator("form.compose button[aria-busy]")

    @property
    def boxes(self) -> Locator:
        return self.page.locator("section.box")

    @property
    def box(self) -> Locator:
        """The newest run's box."""
        return self.boxes.last

    @property
    def answers(self) -> Locator:
        return self.page.get_by_role("article", name="Answer")

    @property
    def answer(self) -> Locator:
        return self.answers.last

    @property
    def column(self) -> Locator:
        return self.page.get_by_role("navigation", name="Conversations")

    @property
    def conversation(self) -> str:
        """Id of the open conversation, from the address."""
        return urlsplit(self.page.url).path.removeprefix("/c/")

    # --- what a person does ------------------------------------------------------------------------------------

    async def say(self, text: str) -> None:
        """Types a message and presses Enter; returns once the server has it."""
        await self.composer.fill(text)
        await self.composer.press("Enter")
        await expect(self.composer).to_have_value("", timeout=WAIT_MS)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """What another device does: a request beside the page."""
        answer = await self.page.request.post(self.base + path, data=body)
        assert answer.ok, await answer.text()
        return await answer.json()

    async def status(self, wanted: str) -> None:
        """Waits until the newest box has this status of the API."""
        await expect(self.box).to_have_attribute("data-status", wanted, timeout=WAIT_MS)

    async def ended(self, wanted: str = "completed", boxes: int = 1) -> None:
        """Waits until there are so many boxes and the newest has ended so."""
        await expect(self.boxes).to_have_count(boxes, timeout=WAIT_MS)
        await self.status(wanted)

    async def hide(self) -> None:
        """The person looks at another tab, as far as the page can tell."""
        await self.page.evaluate(_HIDDEN, True)

    async def show(self) -> None:
        await self.page.evaluate(_HIDDEN, False)

    async def choose_way(self, name: str) -> None:
        """Chooses how a message meets the run that is live: Queue, Steer, Stop and send."""
        await self.page.get_by_role("button", name="How it is sent").click()
        await self.page.get_by_role("menuitemradio", name=name).click()

    async def chosen_way(self) -> str:
        button = self.page.get_by_role("button", name="How it is sent")
        return ((await button.get_attribute("aria-label")) or "").partition(": ")[2]

    # --- what it must not do -----------------------------------------------------------------------------------

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        if self.may_lose_server and _LOST.search(message.text):
            return
        if self.may_be_refused and "the server responded with a status of" in message.text:
            return
        self.errors.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.elsewhere.append(request.url)
