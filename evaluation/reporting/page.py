"""The page itself: all sections in order, put into the template with its style and script inside."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files as resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evaluation.reporting.accuracy import detection_section, grids_section
from evaluation.reporting.blocks import PageSection, visible
from evaluation.reporting.findings import findings_section
from evaluation.reporting.headline import headline
from evaluation.reporting.inputs import StudyResults
from evaluation.reporting.markdown import markdown
from evaluation.reporting.perplexity import bounds_section, matches_section, perplexity_section
from evaluation.reporting.runs import runs_section
from evaluation.reporting.texts import analyses_section, human_section, samples_section
from evaluation.reporting.warnings import MOST, warnings_of

# What was found comes before how it was made.
SECTIONS = (
    perplexity_section,
    bounds_section,
    matches_section,
    grids_section,
    detection_section,
    samples_section,
    findings_section,
    analyses_section,
    human_section,
    runs_section,
)


def page(found: StudyResults, title: str, inputs: Sequence[str], code_version: str) -> str:
    """One HTML file that needs nothing else: whatever was found, and the names of what was not."""
    style, script = (
        resources("evaluation.reporting").joinpath("templates", name).read_text("utf-8")
        for name in ("report.css", "report.js")
    )
    sections: list[PageSection] = [section(found) for section in SECTIONS]
    environment = Environment(
        loader=PackageLoader("evaluation.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    made = environment.get_template("report.html.j2").render(
        title=title,
        headline=headline(found),
        warnings=warnings_of(found),
        most_warnings=MOST,
        sections=sections,
        inputs=inputs,
        code_version=code_version,
        style=Markup(style),
        script=Markup(script),
        # The only script that a browser may run here is the one that the file came with.
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
    )
    return made.strip() + "\n"


def markdown_page(found: StudyResults, title: str, code_version: str) -> str:
    """The same sections as Markdown."""
    sections = [section(found) for section in SECTIONS]
    return markdown(title, headline(found), warnings_of(found), sections, code_version)
