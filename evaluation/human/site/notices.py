"""What a rater reads when a request is not as it should be: what it is, and what to do."""

from typing import NamedTuple


class Wording(NamedTuple):
    title: str
    text: str
    to: str | None = None  # where a link leads
    link: str = ""


class Notice(Exception):
    """A plain page in place of the one that was asked for; the study is as it was."""

    def __init__(self, status: int, words: Wording):
        super().__init__(words.title)
        self.status, self.words = status, words


CONTINUE = ("/rate", "Go to your page")
WORDS: dict[str | int, tuple[int, Wording]] = {
    "no session": (
        401,
        Wording(
            "Please open your personal link",
            "This browser does not know who you are. Open the link that you were sent; cookies have to be allowed.",
        ),
    ),
    "unknown link": (
        404,
        Wording(
            "This link is not known",
            "Perhaps a part of it is missing: copy the whole link that you were sent, or ask for a new one.",
        ),
    ),
    "expired": (
        410,
        Wording(
            "This link has expired",
            "Thank you for coming. What you have rated is kept. To rate more, ask the organiser for a new link.",
        ),
    ),
    "too fast": (
        429,
        Wording("That was too fast", "Please wait a minute, then load this page again. Nothing is lost."),
    ),
    "stale form": (
        403,
        Wording(
            "This form is out of date",
            "Nothing was counted. Go to your page and send it from there.",
            *CONTINUE,
        ),
    ),
    "unknown page": (
        404,
        Wording("There is no such page for you", "Nothing was counted. Your own page is here:", *CONTINUE),
    ),
    "changed": (
        409,
        Wording(
            "You have already sent this page",
            "Your first answers count, and later ones change nothing. Continue with the next page.",
            *CONTINUE,
        ),
    ),
    "lost": (
        409,
        Wording(
            "Others have rated this page meanwhile",
            "You were away for long, so its comparisons went to someone else, and these votes are not counted. "
            "All that you sent before is kept.",
            *CONTINUE,
        ),
    ),
    "not the organiser": (
        404,
        Wording("There is no such page", "The overview has a link of its own, which prepare.py shows."),
    ),
    "not kept": (
        507,
        Wording(
            "Your answers could not be kept",
            "This site cannot write to its disk now, so nothing of this page was counted. All that you sent before is "
            "kept. Please tell the organiser, and send the page again later.",
            *CONTINUE,
        ),
    ),
    400: (400, Wording("That request could not be read", "Nothing was changed. Go back to your page.", *CONTINUE)),
    404: (404, Wording("There is no such page", "Go back to your page, or open your personal link again.", *CONTINUE)),
    405: (405, Wording("That cannot be done here", "Nothing was changed. Go back to your page.", *CONTINUE)),
    413: (413, Wording("That was too much to send", "Nothing was counted. Go back to your page.", *CONTINUE)),
    500: (
        500,
        Wording("Something went wrong here", "All votes that you sent before are kept. Please try again.", *CONTINUE),
    ),
}


def notice(what: str | int) -> Notice:
    """By its name, or by the HTTP status of an error that is not ours."""
    return Notice(*WORDS.get(what, WORDS[400]))
