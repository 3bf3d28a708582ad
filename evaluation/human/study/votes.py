"""The votes that a study holds, read from its file."""

from dataclasses import dataclass

from evaluation.human.study.design import MODEL_2
from evaluation.human.study.file import StudyFile
from evaluation.human.study.outcome import Preference


@dataclass(frozen=True)
class Vote:
    """A vote with everything that is known of it."""

    rater: str
    page: int
    comparison: int
    window_id: str
    choice: str
    preferred: str  # model1 or model2
    check_passed: bool
    sent: float

    @property
    def preference(self) -> Preference:
        return Preference(self.rater, self.window_id, self.preferred == MODEL_2, self.check_passed)


def votes_of(study: StudyFile) -> list[Vote]:
    """Votes on items, in the order in which they came; those of pages with a failed check are among them."""
    rows = study.reader.execute(
        "SELECT rater.code AS rater, page.id AS page, comparison.id AS comparison, window_id, choice, "
        "CASE choice WHEN 'left' THEN left_source ELSE right_source END AS preferred, passed AS check_passed, sent "
        "FROM slot JOIN page ON page.id = page JOIN rater ON rater.id = page.rater "
        "JOIN comparison ON comparison.id = comparison "
        "WHERE slot.kind = 'item' AND page.state = 'sent' ORDER BY sent, page.id, place"
    )
    return [Vote(**dict(row) | {"check_passed": bool(row["check_passed"])}) for row in rows]
