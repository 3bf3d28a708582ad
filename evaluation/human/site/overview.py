"""What the organiser sees of a running study: how far it is, who rates how well, and what the votes say so far."""

from dataclasses import dataclass

from evaluation.human.site.ballots import qualification_score
from evaluation.human.site.links import day
from evaluation.human.study.file import StudyFile
from evaluation.human.study.outcome import Rate, agreement, rate, tallies
from evaluation.human.study.votes import votes_of

HOUR = 3600.0


@dataclass(frozen=True)
class RaterLine:
    code: str
    state: str
    qualification: str
    pages: int
    failed: int
    last: str
    expires: str


@dataclass(frozen=True)
class Overview:
    model1: str
    model2: str
    items: int
    wanted: int  # votes
    votes: int
    dropped: int
    last_hour: int
    leased: int  # items on pages that raters have before them
    by_votes: list[tuple[int, int]]  # votes, and how many items have as many
    pages: int
    failed: int
    rates: list[Rate]
    alpha: float | None
    raters: list[RaterLine]


def overview(study: StudyFile, now: float) -> Overview:
    found = votes_of(study)
    votes = [vote.preference for vote in found]
    kept = tallies(votes).values()
    counts: dict[str, int] = {}
    for vote in votes:
        counts[vote.item] = counts.get(vote.item, 0) + 1
    (items,) = study.reader.execute("SELECT count(*) FROM comparison WHERE kind = 'item'").fetchone()
    (leased,) = study.reader.execute(
        "SELECT count(*) FROM slot JOIN page ON page.id = page WHERE slot.kind = 'item' AND page.state = 'open'"
    ).fetchone()
    most = int(study.settings["votes"])
    by_votes = [(number, sum(count == number for count in counts.values())) for number in range(1, most + 1)]
    pages = {vote.page: vote.check_passed for vote in found}
    return Overview(
        study.settings["model1"],
        study.settings["model2"],
        items,
        items * most,
        len(votes),
        sum(not vote.counts for vote in votes),
        sum(vote.sent > now - HOUR for vote in found),
        leased,
        [(0, items - len(counts)), *by_votes],
        len(pages),
        sum(not passed for passed in pages.values()),
        [one for relation in ("<", "≤") if (one := rate(kept, relation)) is not None],
        agreement(votes),
        rater_lines(study, now),
    )


def rater_lines(study: StudyFile, now: float) -> list[RaterLine]:
    rows = study.reader.execute(
        "SELECT rater.id, code, rater.state, expires, max(sent), "
        "sum(page.kind = 'rating' AND page.state = 'sent'), sum(page.kind = 'rating' AND passed = 0) "
        "FROM rater LEFT JOIN page ON page.rater = rater.id GROUP BY rater.id ORDER BY rater.id"
    ).fetchall()
    lines = []
    for number, code, state, expires, last, pages, failed in rows:
        right, answered = qualification_score(study.reader, number)
        score = f"{right} of {answered}" if answered else ""
        ends = "" if expires is None else day(expires) + (", expired" if expires <= now else "")
        lines.append(RaterLine(code, state, score, pages or 0, failed or 0, ago(now, last), ends))
    return lines


def ago(now: float, moment: float | None) -> str:
    if moment is None:
        return ""
    minutes = int((now - moment) // 60)
    return "just now" if minutes < 1 else f"{minutes} min ago" if minutes < 120 else f"{minutes // 60} h ago"
