import random
from collections import Counter

import numpy as np
import pytest

from pipeline.runtime.errors import UserError
from pipeline.text.documents import Source
from pipeline.text.survey import Reject, Survey, check_rejects, find_repeats, spread_digests


def survey_of(documents: list[int]) -> Survey:
    digests = b"".join(document.to_bytes(16, "little") for document in documents)
    return Survey(Source("f", "text", "train"), len(documents), digests, bytes(len(documents)), [], 0, 0)


def occurrences(groups: list[list[list[int]]]) -> dict[tuple[int, int], list[int]]:
    """(group, file) -> the occurrence number of each document, as the graph computes it."""
    buckets: dict[int, list] = {}
    for number, group in enumerate(groups):
        for bucket, found in spread_digests(number, [survey_of(file) for file in group]):
            buckets.setdefault(bucket, []).append(found)
    result = {(g, f): [0] * len(file) for g, group in enumerate(groups) for f, file in enumerate(group)}
    for found in buckets.values():
        random.Random(0).shuffle(found)
        for group, repeats in find_repeats(found):
            for document, occurrence in zip(repeats.documents, repeats.occurrences, strict=True):
                result[group, repeats.file][document] = int(occurrence)
    return result


@pytest.mark.parametrize("seed", range(10))
def test_equal_documents_are_numbered_from_zero_without_gaps(seed):
    rng = random.Random(seed)
    groups = [[[rng.randrange(30) for _ in range(rng.randrange(1, 20))] for _ in range(3)] for _ in range(3)]
    seen: dict[int, list[int]] = {}
    for (group, file), numbers in occurrences(groups).items():
        for document, occurrence in zip(groups[group][file], numbers, strict=True):
            seen.setdefault(document, []).append(occurrence)
    for numbers in seen.values():
        assert sorted(numbers) == list(range(len(numbers)))


@pytest.mark.parametrize("seed", range(5))
def test_numbers_do_not_depend_on_the_order_or_grouping_of_files(seed):
    rng = random.Random(seed)
    files = [[rng.randrange(9) for _ in range(8)] for _ in range(6)]
    files.append(files[0])  # a whole file twice

    def by_content(groups):
        return Counter(
            (tuple(groups[group][file]), tuple(numbers)) for (group, file), numbers in occurrences(groups).items()
        )

    def windows(groups):
        """What the numbers are for: names of consecutive documents, which must be the same multiset."""
        names: Counter = Counter()
        for (group, file), numbers in occurrences(groups).items():
            named = list(zip(groups[group][file], numbers, strict=True))
            names.update((name, document) for name, document in zip(named, groups[group][file][1:], strict=False))
        return names

    one = [files]
    other = [[file] for file in rng.sample(files, len(files))]
    assert windows(one) == windows(other)
    different = list(files[1:-1])
    assert by_content([different]) == by_content([[file] for file in reversed(different)])


def test_within_a_file_the_first_one_keeps_the_plain_name():
    assert occurrences([[[7, 5, 7, 7]]])[0, 0] == [0, 0, 1, 2]


def test_too_many_rejects_stop_a_run_and_name_the_first():
    rejects = [Reject("b.txt", 0, 17, "NUL byte"), Reject("a.txt", 2, 5, "invalid UTF-8")]
    check_rejects(rejects, 2, 200, 0.01)
    with pytest.raises(UserError, match=r"2 of 199 documents .*--max_reject_fraction 0.01.*a.txt at 5: invalid UTF-8"):
        check_rejects(rejects, 2, 199, 0.01)


def test_digests_are_compared_whole():
    a, b = 1 << 100, 1 << 101  # equal in the first eight bytes
    assert occurrences([[[a, b, a]]])[0, 0] == [0, 0, 1]
    assert np.frombuffer(a.to_bytes(16, "little"), "<u8")[0] == 0
