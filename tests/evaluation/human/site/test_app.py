"""The site as a careless or hostile client meets it: every mistake gets a plain page, and the study is unharmed."""

import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from evaluation.human import invite
from evaluation.human.site import connections
from evaluation.human.site.guards import MOST_KNOWN, LastMinute
from tests.evaluation.human.conftest import HARD, Prepared, attentive, integrity, served_here
from tests.helpers.commands import run
from tests.helpers.visitor import Visitor


@pytest.fixture
def site(prepared) -> Iterator[tuple[Prepared, str]]:
    study = prepared()
    with served_here(study.path, of_strangers=40) as address:
        yield study, address


def votes(study: Prepared) -> int:
    return study.one("SELECT count(*) FROM slot JOIN page ON page.id = page WHERE page.state = 'sent'")


def says(answer: httpx.Response, status: int, words: str) -> bool:
    """A page of ours, with the headers of ours."""
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.startswith("<!doctype html>")
    return (answer.status_code, words in answer.text) == (status, True)


def test_three_raters_finish_a_study(site):
    study, address = site
    for link in study.links[:3]:
        visitor = Visitor(address, link)
        visitor.begin()
        assert visitor.rate_all(study) == 1 + 4
        assert says(visitor.get(), 200, "that is all for now")
    late = Visitor(address, study.links[3])
    late.begin()
    assert late.rate_all(study) == 1  # the qualification, and then there is nothing left
    overview = httpx.get(address + "/o/" + study.overview.rsplit("/", 1)[1], follow_redirects=False)
    page = httpx.get(address + "/overview", cookies=dict(overview.cookies))
    assert says(page, 200, "36 of 36 votes")
    assert "100.00%" in page.text


def test_texts_are_shown_as_text_and_sources_are_not(site):
    study, address = site
    visitor = Visitor(address, study.links[0])
    visitor.begin()
    visitor.post(form := visitor.form(), study.choices(int(form["page"]), attentive))
    pages = ""
    while form := visitor.form():
        pages += visitor.get().text
        visitor.post(form, study.choices(int(form["page"]), attentive))
    assert "&lt;script&gt;" in pages
    assert not re.search(r"<script|<img|onerror=\"|style=|javascript:", pages)
    assert "{{ 7 * 7 }}" in pages
    assert "\x07" not in pages
    assert not re.search(r"gold|decoy|model1|model2|window|w00\d\d|check\b", pages)
    assert HARD[2] in pages


def test_mistakes_get_a_page_that_says_what_to_do_and_count_nothing(site):
    study, address = site
    visitor, other = (Visitor(address, link) for link in study.links[:2])
    for one in (visitor, other):
        one.begin()
    form = visitor.form()
    choices = study.choices(int(form["page"]), attentive)
    assert says(visitor.post(form | {"form_token": "wrong"}, choices), 403, "out of date")
    assert says(visitor.post({"page": form["page"]}, choices), 403, "out of date")
    assert says(visitor.post(form | {"form_token": other.form()["form_token"]}, choices), 403, "out of date")
    assert says(visitor.post(form | {"page": other.form()["page"]}, choices), 404, "no such page for you")
    for number in ("999999", "-1", "1e3", "٣", "9" * 40, "'; DROP TABLE page; --"):
        assert says(visitor.post(form | {"page": number}, choices), 404, "no such page for you")
    assert says(visitor.post(form, {1: "left"}), 422, "still without a choice")
    assert says(visitor.post(form, dict.fromkeys(choices, "both")), 422, "still without a choice")
    assert says(visitor.client.post("/rate", json=form), 403, "out of date")
    assert says(visitor.client.post("/rate", data={f"x{n}": "1" for n in range(50)}), 400, "could not be read")
    assert says(visitor.client.put("/rate", data=form), 405, "cannot be done")
    assert says(visitor.get("/nowhere"), 404, "no such page")
    assert says(httpx.post(address + "/rate", data=form), 401, "open your personal link")
    assert says(httpx.get(address + "/r/guess"), 404, "not known")
    assert says(httpx.get(address + "/overview"), 404, "no such page")
    assert says(httpx.get(address + "/overview", cookies={"organiser": "guess"}), 404, "no such page")
    assert says(visitor.get("/overview"), 404, "no such page")
    assert votes(study) == 0
    assert visitor.post(form, choices).status_code == 303
    assert votes(study) == 4


def test_twice_is_once_and_the_first_answers_count(site):
    study, address = site
    visitor, tab = (Visitor(address, study.links[0]) for _ in range(2))
    visitor.begin()
    tab.open()
    form, in_tab = visitor.form(), tab.form()
    assert form["page"] == in_tab["page"]
    choices = study.choices(int(form["page"]), attentive)
    assert visitor.post(form, choices).status_code == 303
    assert visitor.post(form, choices).status_code == 303
    assert tab.post(in_tab, choices).status_code == 303
    flipped = {place: "left" if side == "right" else "right" for place, side in choices.items()}
    assert says(tab.post(in_tab, flipped), 409, "already sent")
    assert votes(study) == 4
    visitor.open()
    tab_form = visitor.form()
    visitor.open()  # the link once more, in the same browser: the first tab's form is still good
    assert visitor.post(tab_form, study.choices(int(tab_form["page"]), attentive)).status_code == 303


def test_large_bodies_are_refused_with_and_without_a_length(site):
    study, address = site
    visitor = Visitor(address, study.links[0])
    visitor.begin()
    form = visitor.form()
    assert says(visitor.post(form, {}, filler="x" * 1_000_000), 413, "too much")
    assert says(visitor.client.post("/rate", content=b"x" * 1_000_000), 413, "too much")
    pieces = (b"x" * 1000 for _ in range(1000))
    answer = visitor.client.post("/rate", content=pieces, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert says(answer, 413, "too much")
    assert says(visitor.get(), 200, "Comparison 1")


def test_links_expire_and_votes_that_come_later_are_refused(site):
    study, address = site
    visitor = Visitor(address, study.links[0])
    visitor.begin()
    form = visitor.form()
    with study.study.writing() as connection:
        connection.execute("UPDATE rater SET expires = ?", (time.time() - 1,))
    assert says(visitor.post(form, study.choices(int(form["page"]), attentive)), 410, "expired")
    assert says(visitor.open(), 410, "expired")
    assert votes(study) == 0
    invite.main(["--study", str(study.path), "--raters", "1"])
    assert says(Visitor(address, Prepared(study.path, "").links[-1]).open(), 200, "Begin")


def test_cookies_are_out_of_reach_of_scripts_and_other_sites(site):
    study, address = site
    cookie = httpx.get(address + "/r/" + study.links[0].rsplit("/", 1)[1]).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    behind = {"X-Forwarded-Proto": "https"}
    with served_here(study.path, proxy="127.0.0.1") as address:
        secure = httpx.get(address + "/r/" + study.links[0].rsplit("/", 1)[1], headers=behind).headers["set-cookie"]
    assert "Secure" in secure


def test_guessing_is_slowed_down_and_raters_are_not_harmed_by_it(site):
    study, address = site
    with httpx.Client(base_url=address) as client:  # who claims to be somebody else each time is believed of no proxy
        answers = [
            client.get(f"/r/guess{number}", headers={"X-Forwarded-For": f"10.0.0.{number}"}).status_code
            for number in range(60)
        ]
    assert answers.count(404) == 40
    assert set(answers[40:]) == {429}
    assert says(Visitor(address, study.links[0]).open(), 200, "Begin")


def test_the_pace_is_that_of_the_last_minute_and_forgets_who_has_gone():
    pace = LastMinute(2)
    assert [pace.allows("one", now) for now in (0.0, 30.0, 59.0, 60.0, 61.0, 90.0)] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]
    for number in range(3 * MOST_KNOWN):
        pace.allows(str(number), 100.0 + number)
    assert len(pace._came) <= MOST_KNOWN + 1


def test_a_new_link_to_the_overview_replaces_the_old_one(prepared, capsys):
    study = prepared()
    invite.main(["--study", str(study.path), "--organiser"])
    path = "/o/" + capsys.readouterr().out.strip().rsplit("/", 1)[1]
    with served_here(study.path) as address:
        assert httpx.get(address + path).headers["location"] == "/overview"
        assert says(httpx.get(address + "/o/" + study.overview.rsplit("/", 1)[1]), 404, "no such page")


@pytest.mark.slow
def test_a_port_that_is_taken_is_named(prepared):
    with served_here((study := prepared()).path) as address:
        ended = run("evaluation/human/serve.py", "--study", study.path, "--port", address.rsplit(":", 1)[1])
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "Address already in use" in ended.stderr


def test_a_rater_in_a_great_hurry_is_asked_to_wait(prepared):
    study = prepared()
    with served_here(study.path, of_raters=5) as address:
        visitor = Visitor(address, study.links[0])
        visitor.begin()  # link, instructions, start
        assert [visitor.get().status_code for _ in range(4)] == [200, 200, 429, 429]
        assert visitor.get().headers["retry-after"] == "60"


def test_pausing_notes_the_choices_and_counts_nothing(site):
    study, address = site
    visitor = Visitor(address, study.links[0])
    visitor.begin()
    answer = visitor.post(visitor.form(), {2: "right"}, action="pause")
    assert answer.headers["location"] == "/paused"
    assert says(visitor.get("/paused"), 200, "noted")
    elsewhere = Visitor(address, study.links[0])
    elsewhere.open()
    assert re.findall(r'id="(\w+)" [^>]* checked', elsewhere.get().text) == ["right_2"]
    assert votes(study) == 0


def test_who_does_not_recognise_real_texts_is_thanked(site):
    study, address = site
    visitor = Visitor(address, study.links[0])
    visitor.begin()
    assert visitor.rate_all(study, lambda *_: "model") == 1
    assert says(visitor.open(), 200, "Thank you for taking part")
    assert visitor.get().headers["location"] == "/"


def test_votes_are_refused_with_a_page_while_the_disk_is_full_and_none_is_lost(prepared, disk_of, capsys):
    study = prepared()
    disk = disk_of(2000)
    path = Path(shutil.copy(study.path, disk / "study.db"))
    shutil.copy(f"{study.path}.links.csv", f"{path}.links.csv")
    full = Prepared(path, study.overview)
    with served_here(path) as address:
        visitor = Visitor(address, full.links[0])
        visitor.begin()
        first, second = visitor.form(), Visitor(address, full.links[1])
        visitor.post(first, full.choices(int(first["page"]), attentive))
        form = visitor.form()
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(1024)):
                pass
        answers = [visitor.post(form, full.choices(int(form["page"]), attentive)) for _ in range(20)]
        assert says(answers[0], 507, "could not be kept")
        assert says(second.open(), 200, "Begin")  # what needs no disk still works
        kept = votes(full)
        (disk / "filler").unlink()
        assert visitor.post(form, full.choices(int(form["page"]), attentive)).status_code == 303
        assert votes(full) == kept + 4
    assert integrity(path) == "ok"
    assert "disk" in capsys.readouterr().err


def test_connections_that_send_nothing_keep_nobody_out(prepared, monkeypatch):
    monkeypatch.setattr(connections, "PATIENCE", 2.0)
    study = prepared()
    with served_here(study.path) as address, ExitStack() as idle:
        port = int(address.rsplit(":", 1)[1])
        for number in range(1100):
            one = idle.enter_context(socket.create_connection(("127.0.0.1", port)))
            if number % 2:
                one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")  # and the rest never comes
        visitor = Visitor(address, study.links[0])
        visitor.begin()
        assert visitor.rate_all(study) == 5
        one.settimeout(30)
        with suppress(ConnectionResetError):  # the last one of them is given up too, after its time
            assert one.recv(1) == b""


def test_a_hundred_raters_behind_one_address_keep_their_connections(prepared):
    study = prepared()
    with served_here(study.path, of_strangers=1000) as address, ExitStack() as open_now:
        port = int(address.rsplit(":", 1)[1])
        for _ in range(150):  # opened all at once, and used a moment later
            open_now.enter_context(socket.create_connection(("127.0.0.1", port)))
        browsers = [open_now.enter_context(httpx.Client(base_url=address)) for _ in range(200)]
        assert {browser.get("/").status_code for browser in browsers} == {401}
        assert {browser.get("/").status_code for browser in browsers} == {401}  # none was closed in between
