"""Many raters at once against a real server process: no vote is lost, none counted twice, also when it is killed."""

import threading
import time
from collections import Counter

import pytest

from evaluation.human.study.votes import votes_of
from tests.evaluation.human.conftest import Prepared, integrity, served
from tests.helpers.commands import command, free_port, serving
from tests.helpers.crowd import Crowd

FAST = ("--requests_per_minute", "100000")


def counted(study: Prepared) -> dict[int, dict[int, str]]:
    """What the study holds, by page and place."""
    pages: dict[int, dict[int, str]] = {}
    for page, place, choice in study.study.reader.execute(
        "SELECT page, place, choice FROM slot JOIN page ON page.id = page WHERE page.state = 'sent'"
    ):
        pages.setdefault(page, {})[place] = choice
    return pages


@pytest.mark.slow
def test_a_crowd_loses_no_vote_and_counts_none_twice(prepared):
    study = prepared("--raters 30 --items 60 --qualification_items 0", contexts=90)
    with served(study.path, *FAST) as address:
        crowd = Crowd(address, study.links)
        crowd.run()
    assert crowd.refused == []
    assert crowd.sent == counted(study)
    votes = votes_of(study.study)
    assert set(Counter(vote.comparison for vote in votes).values()) == {3}
    assert len(votes) == 180
    assert len({(vote.rater, vote.comparison) for vote in votes}) == 180


@pytest.mark.slow
def test_every_vote_that_was_acknowledged_survives_a_kill(prepared):
    study = prepared("--raters 20 --items 300 --qualification_items 0 --checks 30", contexts=340)
    for attempt in range(2):
        port = free_port()
        server = command("evaluation/human/serve.py", "--study", study.path, "--port", str(port), *FAST)
        with serving(server, port):  # which ends by SIGKILL
            crowd = Crowd(f"http://localhost:{port}", study.links, seed=attempt)
            raters = threading.Thread(target=crowd.run)
            raters.start()
            while len(crowd.sent) < 25 and raters.is_alive():
                time.sleep(0.01)
        raters.join()  # the server is gone: no request of theirs can wait
        assert len(crowd.sent) >= 25
        assert integrity(study.path) == "ok"
        held = counted(study)
        assert {page: held.get(page) for page in crowd.sent} == crowd.sent
    assert max(Counter(vote.comparison for vote in votes_of(study.study)).values()) <= 3
    unfinished = study.one("SELECT count(*) FROM comparison WHERE kind = 'item' AND free > 0")
    assert unfinished > 0  # it was killed in the middle of the work
