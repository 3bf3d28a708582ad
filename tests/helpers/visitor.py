"""A rater without a browser: opens the link, follows forms, and notes what the site has acknowledged."""

import re
from collections.abc import Callable

import httpx

from tests.evaluation.human.conftest import Prepared, attentive

FORM_TOKEN = re.compile(r'name="form_token" value="([^"]*)"')
PAGE = re.compile(r'name="page" value="(\d+)"')


class Visitor:
    """Holds cookies as a browser does; redirects are followed by hand, so that each answer is seen."""

    def __init__(self, address: str, link: str):
        self.client = httpx.Client(base_url=address, timeout=300)
        self.path = "/r/" + link.rsplit("/", 1)[1]

    def open(self) -> httpx.Response:
        return self.client.get(self.path, follow_redirects=True)

    def get(self, path: str = "/rate") -> httpx.Response:
        return self.client.get(path)

    def begin(self) -> None:
        found = FORM_TOKEN.search(self.open().text)
        assert found is not None
        self.client.post("/start", data={"form_token": found[1]})

    def form(self) -> dict[str, str]:
        """The hidden fields of the page at hand; none when there is no page."""
        text = self.get().text
        page, token = PAGE.search(text), FORM_TOKEN.search(text)
        return {"page": page[1], "form_token": token[1]} if page and token else {}

    def post(self, form: dict[str, str], choices: dict[int, str], **more: str) -> httpx.Response:
        named = {f"choice_{place}": side for place, side in choices.items()}
        return self.client.post("/rate", data=form | named | more)

    def rate_all(self, study: Prepared, better: Callable[[int, tuple[str, str]], str] = attentive) -> int:
        """Sends pages until there is none; how many."""
        pages = 0
        while form := self.form():
            answer = self.post(form, study.choices(int(form["page"]), better))
            assert answer.status_code == 303, answer.text
            pages += 1
        return pages
