"""The survey of all input: files in groups, large ones in stretches, each read once, and what they come to together.

A group's surveys are a file in the work folder, where later steps and later runs find them: of every document 17 bytes,
which no step holds for more than one group.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import ResumableError, UserError
from pipeline.runtime.progress import note
from pipeline.text.documents import Source
from pipeline.text.stretches import divide, divide_text
from pipeline.text.survey import Reject, Survey, check_rejects, joined_input, spread_digests, survey_file
from pipeline.windows.job import WindowsJob

GROUP_BYTES = 32 << 20


@dataclass(frozen=True)
class SurveySummary:
    """What the survey of some files, or of all, came to."""

    inputs: list[dict[str, Any]]
    rejects: list[Reject]
    documents: int
    rejected: int
    empty: int
    characters: int

    @classmethod
    def of(cls, surveys: list[Survey]) -> "SurveySummary":
        return cls(
            [survey.as_input for survey in surveys],
            [reject for survey in surveys for reject in survey.rejects],
            sum(survey.documents for survey in surveys),
            sum(survey.rejected for survey in surveys),
            sum(survey.empty for survey in surveys),
            sum(survey.characters for survey in surveys),
        )

    @classmethod
    def sum(cls, summaries: list["SurveySummary"]) -> "SurveySummary":
        return cls(
            sorted((entry for summary in summaries for entry in summary.inputs), key=lambda entry: str(entry["file"])),
            sorted((reject for summary in summaries for reject in summary.rejects), key=lambda r: (r.file, r.document)),
            sum(summary.documents for summary in summaries),
            sum(summary.rejected for summary in summaries),
            sum(summary.empty for summary in summaries),
            sum(summary.characters for summary in summaries),
        )

    @property
    def text_digests(self) -> list[str]:
        """Digests of all files' documents: what the text is, whatever the files are called."""
        return sorted(str(entry["digest"]) for entry in self.inputs)


@dataclass(frozen=True)
class SurveyedGroup:
    """Some files, or one stretch of a file: what they came to, and where their surveys are."""

    sources: list[Source]
    summary: SurveySummary
    url: str

    @property
    def is_stretch(self) -> bool:
        return self.sources[0].end is not None

    def surveys(self) -> list[Survey]:
        saved = _read_surveys(self.url)
        if saved is None:
            raise ResumableError(f"{self.url}: damaged", "run the same command again")
        return saved


def group_files(sources: list[Source], stretch_bytes: int) -> list[tuple[int, list[Source]]]:
    """Input in groups that are each worth a worker's while: small files together, each stretch of a large one alone."""
    groups: list[list[Source]] = []
    size = GROUP_BYTES
    for source in sources:
        stretches = divide(source, stretch_bytes)
        alone = len(stretches) > 1 or len(divide_text(source, stretch_bytes)) > 1
        if alone:
            groups += [[stretch] for stretch in stretches]
            size = GROUP_BYTES
            continue
        if size >= GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(source)
        size += GROUP_BYTES if source.bytes is None else source.bytes
    return list(enumerate(groups))


def survey_group(group: tuple[int, list[Source]], job: WindowsJob) -> tuple[int, SurveyedGroup]:
    """Surveys a group, unless an earlier run did and its files still have their sizes and times."""
    number, sources = group
    url = files.join(job.writer.work, "surveys", f"{digest_of([asdict(source) for source in sources])[:32]}.json")
    are_files = all(source.bytes is not None for source in sources)
    surveys = _read_surveys(url) if are_files and files.is_file(url) else None
    if surveys is None:
        surveys = []
        for source in sources:
            surveys.append(survey_file(source))
            note(job.writer.work, "surveyed", number, sum(survey.characters for survey in surveys))
        content = [survey.to_json() for survey in surveys]
        files.put(url, json.dumps({"surveys": content, "digest": digest_of(content)}).encode())
    note(job.writer.work, "surveyed", number, sum(survey.characters for survey in surveys))
    return number, SurveyedGroup(sources, SurveySummary.of(surveys), url)


def _read_surveys(url: str) -> list[Survey] | None:
    try:
        saved = json.loads(files.read(url))
        whole = digest_of(saved["surveys"]) == saved["digest"]
        return [Survey.from_json(one) for one in saved["surveys"]] if whole else None
    except (ValueError, KeyError, TypeError):
        return None


def join_stretches(file: str, groups: Iterable[SurveyedGroup]) -> SurveySummary:
    """What all stretches of one file came to. Their surveys pass one by one: none but the file's digest is kept."""
    ordered = sorted(groups, key=lambda group: group.sources[0].start)
    entry, rejects = joined_input(survey for group in ordered for survey in group.surveys())
    return replace(SurveySummary.sum([group.summary for group in ordered]), inputs=[entry], rejects=rejects)


def check(summaries: list[SurveySummary], job: WindowsJob) -> SurveySummary:
    """The summaries of all groups as one; raises where too many documents cannot be used."""
    whole = SurveySummary.sum(summaries)
    if job.text_digests is not None and whole.text_digests != job.text_digests:
        raise UserError(
            f"--output {job.settings.output}: the text has changed since this store was made, so its missing shards "
            f"cannot be made again: bring back the old text, or make a new store with --overwrite"
        )
    check_rejects(whole.rejects, whole.rejected, whole.documents, job.settings.max_reject_fraction)
    note(job.writer.work, "characters", 0, whole.characters)
    return whole


def digests_of_group(group: tuple[int, SurveyedGroup], divided: dict[str, str]) -> Iterator[Any]:
    """The digests of a group's documents; `divided` has those of the files that come in stretches."""
    return spread_digests(group[0], group[1].surveys(), divided)
