"""What stands between the site and the world: sizes of requests, how often they may come, and headers of answers."""

import threading
import time
from collections import deque
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 64 * 1024  # a page of votes has some hundred
DRAINED_BYTES = 8 * 1024 * 1024  # read and thrown away, so that a client gets to see its answer
MINUTE, MOST_KNOWN = 60.0, 10_000
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # nobody else gets to know a personal link
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Headers:
    """Puts the headers on every answer; pages are never kept by a browser, so that the back button asks again."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


class SmallBodies:
    """Refuses bodies that no form of ours has, whether or not they say how long they are."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MOST_BYTES:
                while message.get("more_body") and read <= DRAINED_BYTES:
                    message = await receive()
                    read += len(message.get("body", b""))
                raise HTTPException(413)
            return message

        await self.app(scope, counted, send)


class Pace:
    """So many requests a minute from each rater, and from each address that shows no valid link."""

    def __init__(self, of_raters: int, of_strangers: int):
        self._raters, self._strangers = LastMinute(of_raters), LastMinute(of_strangers)

    def allows_rater(self, rater: int) -> bool:
        return self._raters.allows(str(rater), time.monotonic())

    def allows_stranger(self, address: str) -> bool:
        return self._strangers.allows(address, time.monotonic())


class LastMinute:
    """When requests came, for each who made them, as far back as it matters."""

    def __init__(self, most: int):
        self._most = most
        self._came: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def allows(self, who: str, now: float) -> bool:
        with self._lock:
            if len(self._came) > MOST_KNOWN:
                self._came = {name: came for name, came in self._came.items() if came[-1] > now - MINUTE}
            came = self._came.setdefault(who, deque())
            while came and came[0] <= now - MINUTE:
                came.popleft()
            if len(came) >= self._most:
                return False
            came.append(now)
            return True
