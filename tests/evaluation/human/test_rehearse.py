"""Scripted raters: they go through a copy of the study, and what comes out says that they were."""

import json

import pytest

from evaluation.human import rehearse
from evaluation.human.study.file import StudyFile
from evaluation.human.study.votes import votes_of
from pipeline.runtime.errors import UserError


def test_a_rehearsal_shows_the_preference_that_it_was_given_and_leaves_the_study_alone(prepared, tmp_path):
    study = prepared("--items 90 --raters 9 --checks 20", contexts=130)
    flags = f"--study {study.path} --prefers 0.8 --careless 0.2 --output {tmp_path}/rehearsal"
    assert rehearse.main(flags.split()) == 0
    content = json.loads((tmp_path / "rehearsal/human.json").read_text())
    assert content["scripted"]
    assert "a program's votes" in content["notes"][0]
    (found,) = content["studies"]
    votes = votes_of(StudyFile(str(tmp_path / "rehearsal/rehearsed.db")))
    assert (found["items"], found["votes"], found["raters"]) == (90, 270, 9)
    assert 0 < found["dropped"] < 80  # half of the careless ones choose the right side of a check
    kept = [vote for vote in votes if vote.check_passed]
    share = sum(vote.preferred == "model2" for vote in kept) / len(kept)
    assert 0.8 - 0.1 < share < 0.8 + 0.1
    assert not votes_of(study.study)


def test_the_same_seed_gives_the_same_votes_and_what_is_there_is_replaced(prepared, tmp_path):
    study = prepared("--items 12 --raters 3")
    rates = []
    for seed in (1, 1, 2):
        flags = f"--study {study.path} --seed {seed} --output {tmp_path}/rehearsal"
        assert rehearse.main(flags.split()) == 0
        votes = votes_of(StudyFile(str(tmp_path / "rehearsal/rehearsed.db")))
        rates.append([(vote.rater, vote.comparison, vote.choice) for vote in votes])
    assert rates[0] == rates[1] != rates[2]


def test_what_people_have_rated_is_not_rehearsed(prepared, tmp_path):
    study = prepared("--items 12 --raters 3 --qualification_items 0")
    with study.study.writing() as connection:
        connection.execute("INSERT INTO page (rater, kind, state, sent) VALUES (1, 'rating', 'sent', 1.0)")
    with pytest.raises(UserError, match="people have rated it already"):
        rehearse.main(f"--study {study.path} --output {tmp_path}/rehearsal".split())
    assert not (tmp_path / "rehearsal").exists()


@pytest.mark.parametrize(("flag", "value"), [("prefers", "1.5"), ("careless", "-0.1")])
def test_shares_are_shares(flag, value, tmp_path):
    with pytest.raises(UserError, match=f"--{flag} {value}: a share"):
        rehearse.main(["--study", "none", f"--{flag}={value}", "--output", str(tmp_path)])
