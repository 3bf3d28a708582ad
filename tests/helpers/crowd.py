"""Many raters at once, over HTTP: what each was told that it has voted, and how long every answer took."""

import asyncio
import random
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from tests.helpers.visitor import FORM_TOKEN, PAGE

TLS = ssl.create_default_context()  # one for all, since making one takes longer than an answer


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
        limits = httpx.Limits(max_connections=2, max_keepalive_connections=2)
        async with httpx.AsyncClient(base_url=self.address, timeout=300, limits=limits, verify=TLS) as client:
            with suppress(httpx.TransportError):  # the server was killed: nothing more is acknowledged
                await asyncio.sleep(rng.random() * self.pause)
                opened = await client.get("/r/" + link.rsplit("/", 1)[1], follow_redirects=True)
                if token := FORM_TOKEN.search(opened.text):
                    await client.post("/start", data={"form_token": token[1]})
                done = 0
                while (self.pages is None or done < self.pages) and await self._page(client, rng):
                    done += 1
                    await asyncio.sleep(rng.random() * self.pause)

    async def _page(self, client: httpx.AsyncClient, rng: random.Random) -> bool:
        started = time.perf_counter()
        shown = await client.get("/rate")
        self.seconds["see a page"].append(time.perf_counter() - started)
        page, token = PAGE.search(shown.text), FORM_TOKEN.search(shown.text)
        if page is None or token is None:
            return False
        places = range(1, 1 + shown.text.count("<fieldset"))
        choices = {place: rng.choice(("left", "right")) for place in places}
        form = {"page": page[1], "form_token": token[1]} | {f"choice_{place}": choices[place] for place in places}
        started = time.perf_counter()
        answers = await asyncio.gather(*(client.post("/rate", data=form) for _ in range(1 + (rng.random() < 0.25))))
        self.seconds["send a page"].append(time.perf_counter() - started)
        if any(answer.status_code == 303 for answer in answers):
            self.sent[int(page[1])] = choices
        self.refused += [answer.status_code for answer in answers if answer.status_code != 303]
        return True
