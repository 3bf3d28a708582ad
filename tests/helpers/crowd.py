"""Many raters at once, over HTTP: what each was told that it has voted, and how long every answer took.

They share a thread, so their own work counts as waiting: aiohttp needs a third of what httpx does for a request.
"""

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp

from tests.helpers.visitor import FORM_TOKEN, PAGE


@dataclass
class Crowd:
    """Raters who choose at random; one in four sends a page twice, as an impatient finger does."""

    address: str
    links: Sequence[str]
    pause: float = 0.0  # seconds between pages, at most
    pages: int | None = None  # of each rater
    seed: int = 0
    sent: dict[int, dict[int, str]] = field(default_factory=dict)  # acknowledged, by page and place
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"see a page": [], "send a page": []})
    refused: list[int] = field(default_factory=list)

    def run(self) -> None:
        thread = threading.Thread(target=lambda: asyncio.run(self._everyone()))  # here a browser's loop may be running
        thread.start()
        thread.join()

    async def _everyone(self) -> None:
        await asyncio.gather(*(self._rater(number, link) for number, link in enumerate(self.links)))

    async def _rater(self, number: int, link: str) -> None:
        rng = random.Random(f"{self.seed} {number}")
        options = {
            "connector": aiohttp.TCPConnector(limit=2),
            "cookie_jar": aiohttp.CookieJar(unsafe=True),  # of a site that has a number for a name
            "timeout": aiohttp.ClientTimeout(total=300),
        }
        async with aiohttp.ClientSession(self.address, **options) as client:
            with suppress(aiohttp.ClientError):  # the server was killed: nothing more is acknowledged
                await asyncio.sleep(rng.random() * self.pause)
                async with client.get("/r/" + link.rsplit("/", 1)[1]) as opened:
                    token = FORM_TOKEN.search(await opened.text())
                if token:
                    await post(client, "/start", {"form_token": token[1]})
                done = 0
                while (self.pages is None or done < self.pages) and await self._page(client, rng):
                    done += 1
                    await asyncio.sleep(rng.random() * self.pause)

    async def _page(self, client: aiohttp.ClientSession, rng: random.Random) -> bool:
        started = time.perf_counter()
        async with client.get("/rate") as answer:
            shown = await answer.text()
        self.seconds["see a page"].append(time.perf_counter() - started)
        page, token = PAGE.search(shown), FORM_TOKEN.search(shown)
        if page is None or token is None:
            return False
        places = range(1, 1 + shown.count("<fieldset"))
        choices = {place: rng.choice(("left", "right")) for place in places}
        form = {"page": page[1], "form_token": token[1]} | {f"choice_{place}": choices[place] for place in places}
        started = time.perf_counter()
        answers = await asyncio.gather(*(post(client, "/rate", form) for _ in range(1 + (rng.random() < 0.25))))
        self.seconds["send a page"].append(time.perf_counter() - started)
        if 303 in answers:
            self.sent[int(page[1])] = choices
        self.refused += [status for status in answers if status != 303]
        return True


async def post(client: aiohttp.ClientSession, path: str, form: dict[str, str]) -> int:
    """The status of the answer; where it leads is not followed."""
    async with client.post(path, data=form, allow_redirects=False) as answer:
        await answer.read()
        return answer.status
