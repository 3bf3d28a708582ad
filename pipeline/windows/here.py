"""A windows store made in this process: the steps of the Beam graph, one after another, without Beam."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from pipeline.text.documents import Source
from pipeline.text.near_copies import Digests
from pipeline.text.survey import Repeats, find_repeats
from pipeline.windows.job import WindowsJob
from pipeline.windows.near_copies import bands_of_group, copies_of, pairs_of_bucket
from pipeline.windows.shards import finish, plan_shards, shard_runs, write_shards
from pipeline.windows.streams import TokenisedStretch, place_stretches
from pipeline.windows.surveys import SurveyedGroup, check, digests_of_group, group_files, join_stretches, survey_group
from pipeline.windows.tokenise import TokenisedGroup, cut_stretch, divide_work, tokenise

Key = TypeVar("Key")
Value = TypeVar("Value")
Surveys = list[tuple[int, SurveyedGroup]]


def make_here(job: WindowsJob, sources: list[Source]) -> None:
    """Surveys all text, then tokenises, cuts and writes it; what an earlier run left is not done again."""
    surveys = [survey_group(group, job) for group in group_files(sources, job.settings.stretch_bytes)]
    stretches = grouped((group.sources[0].url, group) for _, group in surveys if group.is_stretch)
    divided = [join_stretches(file, groups) for file, groups in stretches.items()]
    surveyed = check([group.summary for _, group in surveys if not group.is_stretch] + divided, job)
    copies = near_copies(surveys, job)
    digests = {entry["file"]: entry["digest"] for summary in divided for entry in summary.inputs}
    repeats = repeats_of(surveys, digests, copies)
    groups, streams = list[TokenisedGroup](), defaultdict[str, list[TokenisedStretch]](list)
    for number, group in surveys:
        for work in divide_work(number, group, repeats.get(number, []), job):
            tokenised = tokenise(work, job)
            if isinstance(tokenised, TokenisedStretch):
                streams[tokenised.file].append(tokenised)
            else:
                groups.append(tokenised)
    groups += [cut_stretch(place, job) for file in streams.values() for place in place_stretches(file, job.window)]
    plan = plan_shards(groups, job, surveyed, copies)
    finish([shard for run in shard_runs(plan) for shard in write_shards(run, job, plan)], job, surveyed, plan)


def near_copies(surveys: Surveys, job: WindowsJob) -> Digests:
    bands = grouped(band for group in surveys for band in bands_of_group(group, job))
    return copies_of([pairs_of_bucket(bucket, job) for bucket in bands.items()])


def repeats_of(surveys: Surveys, divided: dict[str, str], copies: Digests) -> dict[int, list[Repeats]]:
    """For each group of files those of its documents that are not the first of their text."""
    near = {digest.tobytes() for digest in copies}
    buckets = grouped(digest for group in surveys for digest in digests_of_group(group, divided))
    return grouped(found for bucket in buckets.values() for found in find_repeats(bucket, near))


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    groups = defaultdict[Key, list[Value]](list)
    for key, value in pairs:
        groups[key].append(value)
    return groups
