"""The site: a rater's way from the personal link to the last page, and the organiser's overview. No JavaScript."""

import re
import sys
import time
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from evaluation.human.site.assignment import Page, page_for, progress
from evaluation.human.site.ballots import Reply, receive, start
from evaluation.human.site.guards import HEADERS, Headers, Pace, SmallBodies
from evaluation.human.site.links import Rater, day, digest, find_rater, form_token, new_session, same, token_of
from evaluation.human.site.notices import Notice, notice
from evaluation.human.site.overview import overview
from evaluation.human.study.file import StudyFile, UnwritableStudy
from evaluation.reporting.blocks import visible

SESSION, ORGANISER = "session", "organiser"
MOST_FIELDS = 20
UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


async def form_of(request: Request) -> FormData:
    await request.body()  # whatever it says that it is, so that all that is too large is refused as such
    return await request.form(max_files=0, max_fields=MOST_FIELDS)


Form = Annotated[FormData, Depends(form_of)]


def create_app(study: StudyFile, pace: Pace) -> FastAPI:
    """The whole site for one study."""
    site = Site(study, pace)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    for path, method, endpoint in (
        ("/r/{token}", "GET", site.open_link),
        ("/", "GET", site.welcome),
        ("/start", "POST", site.start),
        ("/rate", "GET", site.rate),
        ("/rate", "POST", site.send),
        ("/paused", "GET", site.paused),
        ("/o/{token}", "GET", site.open_organiser_link),
        ("/overview", "GET", site.overview),
    ):
        app.add_api_route(path, endpoint, methods=[method], response_class=HTMLResponse, response_model=None)
    app.mount("/static", StaticFiles(packages=[("evaluation.human.site", "static")]))
    for kind in (Notice, HTTPException, UnwritableStudy, Exception):
        app.add_exception_handler(kind, site.show_notice)
    app.add_middleware(SmallBodies)
    app.add_middleware(Headers)
    return app


class Site:
    """Every page of the site as a method; what is wrong with a request is raised as a Notice, and shown as a page."""

    def __init__(self, study: StudyFile, pace: Pace):
        self.study, self.pace = study, pace
        self.templates = Environment(
            loader=PackageLoader("evaluation.human.site"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=lambda value: visible(value) if type(value) is str and UNSHOWABLE.search(value) else value,
        )

    # What raters see

    def open_link(self, request: Request, token: str) -> Response:
        rater = self.rater_of(request, token)
        cookie = request.cookies.get(SESSION, "")
        if token_of(cookie) != token:  # opened a second time, a link leaves the first tab's forms valid
            cookie = new_session(token)
        answer = RedirectResponse("/", 303)
        set_cookie(request, answer, SESSION, cookie, rater.expires - time.time())
        return answer

    def welcome(self, request: Request) -> Response:
        rater, form = self.session(request)
        done = progress(self.study, rater)
        return self.page("welcome.html.j2", rater=rater, progress=done, until=day(rater.expires), form_token=form)

    def start(self, request: Request, form: Form) -> Response:
        rater, wanted = self.session(request)
        self.check_form(form, wanted)
        start(self.study, rater)
        return RedirectResponse("/rate", 303)

    def rate(self, request: Request) -> Response:
        rater, form = self.session(request)
        if rater.state not in ("qualifying", "rating"):
            return RedirectResponse("/", 303)
        page = page_for(self.study, rater, time.time())
        if page is None:
            return self.page("done.html.j2", progress=progress(self.study, rater), until=day(rater.expires))
        return self.rating_page(rater, form, page, [])

    def rating_page(self, rater: Rater, form: str, page: Page, missing: list[int]) -> Response:
        done = progress(self.study, rater)
        status = 422 if missing else 200
        return self.page("rate.html.j2", status, page=page, progress=done, missing=missing, form_token=form)

    def send(self, request: Request, form: Form) -> Response:
        rater, wanted = self.session(request)
        self.check_form(form, wanted)
        now, number = time.time(), field(form, "page")
        if not (number.isascii() and number.isdigit() and len(number) < 16):
            raise notice("unknown page")
        names = {name for name in form if name.startswith("choice_") and name[7:].isascii() and name[7:].isdigit()}
        choices = {int(name[7:]): field(form, name) for name in names}
        answer = receive(self.study, rater, int(number), choices, now, pause=field(form, "action") == "pause")
        if answer.reply is Reply.INCOMPLETE and (page := page_for(self.study, rater, now)) is not None:
            return self.rating_page(rater, wanted, page, answer.missing)
        if answer.reply is Reply.KEPT:
            return RedirectResponse("/paused", 303)
        if refused := {Reply.UNKNOWN: "unknown page", Reply.CHANGED: "changed", Reply.LOST: "lost"}.get(answer.reply):
            raise notice(refused)
        after = find_rater(self.study.reader, token_of(request.cookies[SESSION]))
        return RedirectResponse("/rate" if after is not None and after.state == rater.state else "/", 303)

    def paused(self, request: Request) -> Response:
        rater, _ = self.session(request)
        return self.page("paused.html.j2", until=day(rater.expires))

    # What the organiser sees

    def open_organiser_link(self, request: Request, token: str) -> Response:
        self.check_organiser(request, token)
        answer = RedirectResponse("/overview", 303)
        set_cookie(request, answer, ORGANISER, token, None)
        return answer

    def overview(self, request: Request) -> Response:
        self.check_organiser(request, request.cookies.get(ORGANISER, ""))
        now = time.time()
        return self.page("overview.html.j2", study=overview(self.study, now), at=day(now))

    def check_organiser(self, request: Request, token: str) -> None:
        if not same(digest(token), self.study.settings["organiser_digest"]):
            self.check_stranger(request)
            raise notice("not the organiser")

    # Who is asking

    def session(self, request: Request) -> tuple[Rater, str]:
        """The rater whose cookie came along, and the token that forms of this session carry."""
        cookie = request.cookies.get(SESSION, "")
        rater = self.rater_of(request, token_of(cookie), "no session" if not cookie else "unknown link")
        return rater, form_token(self.study.settings["form_key"], cookie)

    def rater_of(self, request: Request, token: str, otherwise: str = "unknown link") -> Rater:
        rater = find_rater(self.study.reader, token)
        if rater is None:
            self.check_stranger(request)
            raise notice(otherwise)
        if not self.pace.allows_rater(rater.id):
            raise notice("too fast")
        if rater.expires <= time.time():
            raise notice("expired")
        return rater

    def check_stranger(self, request: Request) -> None:
        if not self.pace.allows_stranger(request.client.host if request.client else ""):
            raise notice("too fast")

    def check_form(self, form: FormData, wanted: str) -> None:
        if not same(field(form, "form_token"), wanted):
            raise notice("stale form")

    # Pages

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self.templates.get_template(template).render(values), status)

    def show_notice(self, request: Request, error: Exception) -> Response:
        """Anything that was raised, as a page that says what to do."""
        if isinstance(error, UnwritableStudy):
            print(f"{error}; until then votes are refused", file=sys.stderr, flush=True)
            error = notice("not kept")
        what = error if isinstance(error, Notice) else notice(getattr(error, "status_code", 500))
        answer = self.page("notice.html.j2", what.status, notice=what)
        if what.status == 429:
            answer.headers["Retry-After"] = "60"
        answer.headers.update(HEADERS)  # a failure is answered outside of all middleware
        return answer


def field(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def set_cookie(request: Request, answer: Response, name: str, value: str, seconds: float | None) -> None:
    """Out of reach of scripts and of other sites' forms; where the site is behind HTTPS, sent over nothing else."""
    age = None if seconds is None else int(seconds)
    secure = request.url.scheme == "https"
    answer.set_cookie(name, value, max_age=age, httponly=True, samesite="lax", secure=secure)
