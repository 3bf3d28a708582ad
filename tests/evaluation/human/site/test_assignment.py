"""Who gets which items: three raters each and no more, whoever vanishes, returns, or does things twice."""

import random
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from evaluation.human.site.assignment import page_for, progress
from evaluation.human.site.ballots import Reply, receive, start
from tests.evaluation.human.conftest import Prepared, attentive

LEASE = 1800.0


def begin(prepared: Prepared, number: int, now: float = 0.0) -> None:
    """A rater reads the instructions and passes the qualification."""
    start(prepared.study, prepared.rater(number))
    while prepared.rater(number).state == "qualifying":
        send(prepared, number, now)


def send(prepared: Prepared, number: int, now: float = 0.0) -> Reply | None:
    rater = prepared.rater(number)
    page = page_for(prepared.study, rater, now)
    if page is None:
        return None
    return receive(prepared.study, rater, page.id, prepared.choices(page.id, attentive), now).reply


def votes_by_item(prepared: Prepared) -> Counter[int]:
    rows = prepared.study.reader.execute(
        "SELECT comparison FROM slot JOIN page ON page.id = page WHERE slot.kind = 'item' AND page.state = 'sent'"
    )
    return Counter(item for (item,) in rows)


def test_every_item_reaches_three_raters_and_no_more(prepared):
    study = prepared("--raters 5")
    for number in range(5):
        begin(study, number)
    for _ in range(13):
        for number in range(5):
            send(study, number)
    assert set(votes_by_item(study).values()) == {3}
    assert len(votes_by_item(study)) == 12
    assert study.one("SELECT sum(free) FROM comparison") == 0


def test_a_page_has_three_items_and_a_check_in_any_place(prepared):
    study = prepared("--items 24", contexts=50)
    begin(study, 0)
    places = set()
    while send(study, 0):
        kinds = [
            [
                kind
                for (kind,) in study.study.reader.execute("SELECT kind FROM slot WHERE page = ? ORDER BY place", (p,))
            ]
            for (p,) in study.study.reader.execute("SELECT id FROM page WHERE kind = 'rating'")
        ]
        assert all(Counter(page) == {"item": 3, "check": 1} for page in kinds)
        places = {page.index("check") for page in kinds}
    assert len(places) > 1


def test_what_a_vanished_rater_had_goes_to_others(prepared):
    study = prepared("--items 3 --votes 1")
    begin(study, 0)
    begin(study, 1)
    vanished = page_for(study.study, study.rater(0), 0.0)
    assert page_for(study.study, study.rater(1), LEASE - 1) is None
    assert send(study, 1, LEASE + 1) is Reply.SENT
    late = receive(study.study, study.rater(0), vanished.id, study.choices(vanished.id, attentive), LEASE + 2)
    assert late.reply is Reply.LOST
    assert set(votes_by_item(study).values()) == {1}
    assert page_for(study.study, study.rater(0), LEASE + 3) is None


def test_a_rater_who_returns_late_keeps_the_page_if_nobody_has_taken_it(prepared):
    study = prepared("--items 3 --votes 1")
    begin(study, 0)
    begin(study, 1)
    page = page_for(study.study, study.rater(0), 0.0)
    with study.study.writing() as connection:
        connection.execute("UPDATE page SET state = 'released' WHERE id = ?", (page.id,))
        connection.execute("UPDATE comparison SET free = free + 1 WHERE kind = 'item'")
    assert page_for(study.study, study.rater(0), 3 * LEASE).id == page.id
    assert page_for(study.study, study.rater(1), 3 * LEASE) is None
    assert send(study, 0, 3 * LEASE) is Reply.SENT


def test_reading_on_keeps_a_page_longer(prepared):
    study = prepared("--items 3 --votes 1")
    begin(study, 0)
    begin(study, 1)
    page_for(study.study, study.rater(0), 0.0)
    page_for(study.study, study.rater(0), LEASE * 0.9)
    assert page_for(study.study, study.rater(1), LEASE * 1.5) is None


def test_the_same_page_twice_counts_once_and_the_first_answers_count(prepared):
    study = prepared()
    begin(study, 0)
    page = page_for(study.study, study.rater(0), 0.0)
    choices = study.choices(page.id, attentive)
    other = {place: "left" if side == "right" else "right" for place, side in choices.items()}
    replies = [receive(study.study, study.rater(0), page.id, given, 0.0).reply for given in (choices, choices, other)]
    assert replies == [Reply.SENT, Reply.REPEATED, Reply.CHANGED]
    kept = dict(study.study.reader.execute("SELECT place, choice FROM slot WHERE page = ?", (page.id,)).fetchall())
    assert kept == choices


def test_half_a_page_counts_nothing_and_is_remembered(prepared):
    study = prepared()
    begin(study, 0)
    page = page_for(study.study, study.rater(0), 0.0)
    assert receive(study.study, study.rater(0), page.id, {1: "left"}, 0.0, pause=True).reply is Reply.KEPT
    answer = receive(study.study, study.rater(0), page.id, {2: "right", 3: "sideways", 99: "left"}, 0.0)
    assert (answer.reply, answer.missing) == (Reply.INCOMPLETE, [1, 3, 4])
    again = page_for(study.study, study.rater(0), 1.0)
    assert [one.choice for one in again.comparisons] == ["left", "right", None, None]
    assert not votes_by_item(study)


def test_nobody_can_send_the_page_of_another(prepared):
    study = prepared()
    begin(study, 0)
    begin(study, 1)
    page = page_for(study.study, study.rater(0), 0.0)
    choices = study.choices(page.id, attentive)
    assert receive(study.study, study.rater(1), page.id, choices, 0.0).reply is Reply.UNKNOWN
    assert receive(study.study, study.rater(1), 10**9, choices, 0.0).reply is Reply.UNKNOWN
    assert not votes_by_item(study)


def test_threads_that_do_everything_twice_harm_nothing(prepared):
    study = prepared("--raters 8 --items 18", contexts=50)
    for number in range(8):
        begin(study, number)

    def hurry(number: int) -> None:
        while send(study, number % 8) is not None:
            pass

    with ThreadPoolExecutor(16) as threads:  # two threads for each rater
        list(threads.map(hurry, range(16)))
    assert set(votes_by_item(study).values()) == {3}
    assert len(votes_by_item(study)) == 18


def test_raters_who_come_and_go_at_random_leave_every_item_with_three(prepared):
    study = prepared("--raters 12 --items 15", contexts=50)
    rng, now = random.Random(4), 0.0
    for number in range(12):
        begin(study, number)
    for _ in range(400):
        now += rng.uniform(0, LEASE / 8)
        number = rng.randrange(12)
        if rng.random() < 0.4:
            page_for(study.study, study.rater(number), now)  # looks and leaves
        else:
            send(study, number, now)
        assert max(votes_by_item(study).values(), default=0) <= 3
    assert set(votes_by_item(study).values()) == {3}
    assert len(votes_by_item(study)) == 15


def test_the_database_itself_refuses_a_fourth_rater_and_a_second_vote(prepared):
    study = prepared("--votes 1")
    begin(study, 0)
    page = page_for(study.study, study.rater(0), 0.0)
    (item,) = study.study.reader.execute(
        "SELECT comparison FROM slot WHERE page = ? AND kind = 'item' LIMIT 1", (page.id,)
    ).fetchone()
    with pytest.raises(sqlite3.IntegrityError), study.study.writing() as connection:
        connection.execute("UPDATE comparison SET free = free - 1 WHERE id = ?", (item,))
    rater = study.rater(0).id
    with pytest.raises(sqlite3.IntegrityError), study.study.writing() as connection:
        connection.execute("INSERT INTO slot VALUES (?, 9, ?, ?, 'item', 'left')", (page.id, rater, item))


def test_a_rater_stops_at_the_most_pages_and_progress_says_so(prepared):
    study = prepared("--most_pages 2")
    begin(study, 0)
    assert progress(study.study, study.rater(0)).total == 8
    assert [send(study, 0) for _ in range(3)] == [Reply.SENT, Reply.SENT, None]
    done = progress(study.study, study.rater(0))
    assert (done.sent, done.left) == (8, 0)


@pytest.mark.parametrize(("right", "state"), [(8, "declined"), (9, "rating")])
def test_more_than_two_thirds_have_to_be_right(prepared, right, state):
    study = prepared("--qualification_items 12")
    start(study.study, study.rater(0))
    answered = 0
    while study.rater(0).state == "qualifying":
        page = page_for(study.study, study.rater(0), 0.0)
        wanted = {one.place: "gold" if answered + one.place <= right else "model" for one in page.comparisons}
        receive(study.study, study.rater(0), page.id, study.choices(page.id, lambda place, _: wanted[place]), 0.0)  # noqa: B023
        answered += len(page.comparisons)
    assert (study.rater(0).state, answered) == (state, 12)
