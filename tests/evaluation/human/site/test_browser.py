"""A rater with a real browser and a real server: with the mouse, the keyboard, on a phone, with a screen reader."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.evaluation.human.conftest import Prepared, attentive, served_here

pytestmark = pytest.mark.browser

SERIOUS = ("serious", "critical")


class Rating:
    """A study, its site, and browser windows onto it in which nothing may go wrong unnoticed."""

    def __init__(self, study: Prepared, address: str, browser: Any):
        self.study, self.address, self.browser = study, address, browser
        self.wrong: list[str] = []

    def open(self, link: str, **options: Any) -> Any:
        page = self.browser.new_context(**options).new_page()
        page.set_default_timeout(120_000)  # a busy machine is slow, not wrong
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("request", lambda asked: None if asked.url.startswith(self.address) else self.wrong.append(asked.url))
        page.goto(self.address + "/" + "/".join(link.split("/")[-2:]))
        return page

    def choose(self, page: Any, better: Callable[[int, tuple[str, str]], str] = attentive) -> dict[int, str]:
        page.bring_to_front()  # what is behind another window is slow
        choices = self.study.choices(int(page.locator("input[name=page]").input_value()), better)
        for place, side in choices.items():
            page.check(f"#{side}_{place}")
        return choices

    def begin(self, number: int, **options: Any) -> Any:
        """Through the instructions and the qualification."""
        page = self.open(self.study.links[number], **options)
        press(page, "Begin")
        self.choose(page)
        press(page, "Send")
        page.get_by_role("link", name="Continue").click()
        page.wait_for_load_state()
        return page


def press(page: Any, button: str) -> None:
    """And wait for the page that follows."""
    with page.expect_navigation():
        page.get_by_role("button", name=button).click()


@pytest.fixture
def rating(prepared, browser) -> Iterator[Rating]:
    study = prepared()
    with served_here(study.path, of_raters=1000) as address:
        made = Rating(study, address, browser)
        yield made
        for context in browser.contexts:
            context.close()
    assert made.wrong == []


@pytest.mark.slow
def test_from_the_link_to_the_end_without_scripts(rating):
    page = rating.begin(0, java_script_enabled=False)
    pages = 0
    while page.locator("input[name=page]").count():
        assert page.get_by_role("group").count() == 4
        assert page.get_by_role("radio").count() == 8
        assert f"{4 * pages} of at most {16}" in page.get_by_role("progressbar").locator("..").inner_text()
        rating.choose(page)
        press(page, "Send")
        pages += 1
    assert pages == 4
    assert "that is all for now" in page.get_by_role("heading", level=1).inner_text()
    assert page.title() != "taken over"
    assert rating.study.one("SELECT count(*) FROM page WHERE kind = 'rating' AND passed = 1") == 4


def test_no_text_of_the_study_is_ever_run(rating):
    page = rating.begin(0)
    shown = ""
    while page.locator("input[name=page]").count():
        shown += page.inner_text("main")
        assert page.locator("main script, main img").count() == 0
        assert page.title().startswith("Study")
        rating.choose(page)
        press(page, "Send")
    assert "<script>document.title = 'taken over'</script>" in shown
    assert "{{ 7 * 7 }}" in shown


def test_who_fails_the_qualification_is_thanked(rating):
    page = rating.open(rating.study.links[0])
    press(page, "Begin")
    rating.choose(page, lambda *_: "model")
    press(page, "Send")
    assert "Thank you for taking part" in page.inner_text("h1")
    page.goto(rating.address + "/rate")
    assert page.get_by_role("radio").count() == 0


def test_a_failed_check_is_noted_and_not_shown(rating):
    page = rating.begin(0)
    rating.choose(page, lambda _, sources: "decoy" if "decoy" in sources else "model1")
    press(page, "Send")
    assert page.get_by_role("radio").count() == 8
    assert rating.study.one("SELECT passed FROM page WHERE kind = 'rating' AND state = 'sent'") == 0


def test_pause_and_return_with_another_browser(rating):
    page = rating.begin(0)
    page.check("#right_2")
    press(page, "pause")
    assert "noted" in page.inner_text("h1")
    other = rating.open(rating.study.links[0])
    assert "Welcome back" in other.inner_text("main") or "first part" in other.inner_text("main")
    other.get_by_role("link", name="Continue").click()
    assert other.is_checked("#right_2")
    assert other.locator("input:checked").count() == 1


def test_back_button_double_click_and_two_tabs_count_once(rating):
    page = rating.begin(0)
    tab = page.context.new_page()
    tab.goto(rating.address + "/rate")
    for window in (page, tab):
        rating.choose(window)
    with page.expect_navigation():
        page.get_by_role("button", name="Send").dblclick()
    press(tab, "Send")
    assert rating.study.one("SELECT count(*) FROM page WHERE kind = 'rating' AND state = 'sent'") == 1
    page.goto(rating.address + "/rate")
    second = page.locator("input[name=page]").input_value()
    rating.choose(page)
    press(page, "Send")
    page.go_back()  # asks the server again, which shows the page that is next
    assert page.locator("input[name=page]").input_value() != second
    assert rating.study.one("SELECT count(*) FROM page WHERE kind = 'rating' AND state = 'sent'") == 2


def test_with_the_keyboard_alone(rating):
    page = rating.begin(0)
    number = int(page.locator("input[name=page]").input_value())
    wanted = rating.study.choices(number, attentive)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")  # Instructions
    for place, side in wanted.items():
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.name") == f"choice_{place}"
        page.keyboard.press("Space")
        if side == "right":
            page.keyboard.press("ArrowRight")
        assert page.is_checked(f"#{side}_{place}")
        assert (
            page.evaluate("getComputedStyle(document.activeElement.closest('label')).outlineStyle") == "solid"
        )  # one sees where one is
    page.keyboard.press("Tab")
    assert "Send" in page.evaluate("document.activeElement.textContent")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    rows = rating.study.study.reader.execute("SELECT place, choice FROM slot WHERE page = ?", (number,))
    assert dict(rows.fetchall()) == wanted
    assert rating.study.one("SELECT state FROM page WHERE id = ?", number) == "sent"


def test_what_is_missing_is_said_where_the_browser_does_not_say_it(rating):
    page = rating.begin(0)
    page.check("#left_1")
    page.eval_on_selector("form", "form => { form.noValidate = true; }")
    rating.wrong.clear()
    press(page, "Send")
    assert page.get_by_role("alert").get_by_role("link").all_inner_texts() == [f"Comparison {n}" for n in (2, 3, 4)]
    assert page.is_checked("#left_1")
    page.get_by_role("alert").get_by_role("link").first.click()
    assert page.evaluate("location.hash") == "#left_2"
    rating.wrong.clear()  # the browser's console mentions the status 422


@pytest.mark.slow
def test_every_page_fits_its_window_and_reads_well_aloud(rating):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python").Axe()
    found: dict[tuple[str, int], list[str]] = {}

    def examine(page: Any) -> None:
        page.wait_for_load_state()
        for width, scheme in ((1280, "light"), (390, "dark")):
            page.set_viewport_size({"width": width, "height": 844})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            results = axe.run(page).response["violations"]
            serious = [f"{one['id']}: {one['help']}" for one in results if one["impact"] in SERIOUS]
            found[page.title(), width] = serious

    examine(rating.open(rating.study.links[1], bypass_csp=True))
    page = rating.begin(0, bypass_csp=True)
    page.check("#left_1")
    examine(page)
    press(page, "pause")
    examine(page)
    page.goto(rating.address + "/nowhere")
    examine(page)
    examine(rating.open(rating.study.overview, bypass_csp=True))
    assert len(found) == 10
    assert not any(found.values()), found
    rating.wrong = [line for line in rating.wrong if "404" not in line]
