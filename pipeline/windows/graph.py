"""The Beam graph that turns text into a windows store: the steps of here.py, for many workers.

Every element is a group of files, a bucket of digests or a shard, never a row. A worker's results are files, named
after everything that they depend on: a step that finds its result does nothing, so a killed run continues.
"""

from collections.abc import Iterable, Iterator
from operator import truth
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsSingleton

from pipeline.text.documents import Source
from pipeline.text.survey import Repeats, find_repeats
from pipeline.windows.job import WindowsJob
from pipeline.windows.near_copies import bands_of_group, copies_of, pairs_of_bucket, spread_copies
from pipeline.windows.shards import finish, plan_shards, shard_runs, write_shards
from pipeline.windows.streams import PlacedStretch, TokenisedStretch, place_stretches
from pipeline.windows.surveys import (
    SurveyedGroup,
    SurveySummary,
    check,
    digests_of_group,
    group_files,
    join_stretches,
    survey_group,
)
from pipeline.windows.tokenise import TokenisedGroup, Work, cut_stretch, divide_work, tokenise


class MakeWindows(beam.PTransform):
    """Input files to a windows store; its one output is the store's digest, when the manifest is written."""

    def __init__(self, job: WindowsJob, sources: list[Source]):
        super().__init__()
        self.job, self.sources = job, sources

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        job = self.job
        groups = begin | "Files" >> beam.Create(group_files(self.sources, job.settings.stretch_bytes))
        surveys = groups | "Spread files" >> beam.Reshuffle() | "Survey" >> beam.Map(survey_group, job)
        whole = surveys | "Whole files" >> beam.FlatMapTuple(summaries_of_files)
        divided = (
            surveys
            | "Stretches" >> beam.FlatMapTuple(stretches_by_file)
            | "Stretches of a file meet" >> beam.GroupByKey()
            | "Join stretches" >> beam.MapTuple(join_stretches)
        )
        surveyed = (
            (whole, divided)
            | "Whole or not" >> beam.Flatten()
            | "All files" >> beam.combiners.ToList()
            | "Check" >> beam.Map(check, job)
        )
        digests = divided | "Digests of their files" >> beam.Map(digest_of_file)
        copies = (
            surveys
            | "Signatures" >> beam.FlatMap(bands_of_group, job)
            | "Like documents meet" >> beam.GroupByKey()
            | "Find near copies" >> beam.Map(pairs_of_bucket, job)
            | "All pairs" >> beam.combiners.ToList()
            | "Keep one of each group" >> beam.Map(copies_of)
        )
        repeats = (
            {
                "digests": surveys | "Digests" >> beam.FlatMap(digests_of_group, AsDict(digests)),
                "copies": copies | "Spread copies" >> beam.FlatMap(spread_copies),
            }
            | "Equal documents meet" >> beam.CoGroupByKey()
            | "Find repeats" >> beam.FlatMapTuple(repeats_of_bucket)
        )
        tokenised = (
            {"surveys": surveys, "repeats": repeats}
            | "Files and their repeats" >> beam.CoGroupByKey()
            | "Work" >> beam.FlatMap(works_of_group, job, AsSingleton(surveyed | "Checked" >> beam.Map(truth)))
            | "Spread work" >> beam.Reshuffle()
            | "Tokenise" >> beam.Map(tokenise, job)
        )
        of_files, of_stretches = tokenised | "Cut or not" >> beam.Partition(is_stretch, 2)
        of_streams = (
            of_stretches
            | "By file" >> beam.Map(lambda stretch: (stretch.file, stretch))
            | "Streams" >> beam.GroupByKey()
            | "Place stretches" >> beam.FlatMap(places_of_file, job)
            | "Spread stretches" >> beam.Reshuffle()
            | "Cut" >> beam.Map(cut_stretch, job)
        )
        plan = (
            (of_files, of_streams)
            | "Files and streams" >> beam.Flatten()
            | "All parts" >> beam.combiners.ToList()
            | "Plan shards" >> beam.Map(plan_shards, job, AsSingleton(surveyed), AsSingleton(copies))
        )
        shards = (
            plan
            | "Shards" >> beam.FlatMap(shard_runs)
            | "Spread shards" >> beam.Reshuffle()
            | "Write shards" >> beam.FlatMap(write_shards, job, AsSingleton(plan))
        )
        return (
            shards
            | "All shards" >> beam.combiners.ToList()
            | "Finish" >> beam.Map(finish, job, AsSingleton(surveyed), AsSingleton(plan))
        )


def summaries_of_files(number: int, group: SurveyedGroup) -> Iterator[SurveySummary]:
    if not group.is_stretch:
        yield group.summary


def stretches_by_file(number: int, group: SurveyedGroup) -> Iterator[tuple[str, SurveyedGroup]]:
    if group.is_stretch:
        yield group.sources[0].url, group


def digest_of_file(summary: SurveySummary) -> tuple[str, str]:
    (entry,) = summary.inputs
    return entry["file"], entry["digest"]


def works_of_group(group: tuple[int, dict[str, Any]], job: WindowsJob, checked: bool) -> list[Work]:
    """One group of files; `checked` is only waited for: nothing is tokenised before all files were surveyed."""
    number, found = group
    (surveyed,) = found["surveys"]
    return divide_work(number, surveyed, list(found["repeats"]), job)


def is_stretch(tokenised: TokenisedGroup | TokenisedStretch, kinds: int) -> int:
    return int(isinstance(tokenised, TokenisedStretch))


def places_of_file(file: tuple[str, Iterable[TokenisedStretch]], job: WindowsJob) -> Iterator[PlacedStretch]:
    return place_stretches(file[1], job.window)


def repeats_of_bucket(bucket: int, found: dict[str, Any]) -> Iterator[tuple[int, Repeats]]:
    near = {digest.tobytes() for digests in found["copies"] for digest in digests}
    return find_repeats(found["digests"], near)
