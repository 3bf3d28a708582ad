"""Digests: stores that exist were made with exactly these."""

from pipeline.runtime.digests import digest_of


def test_a_digest_is_of_the_facts_whatever_the_order_of_their_keys():
    facts = {"corpus": "b", "seed": 0, "inner": {"y": [1, 2], "x": None}}
    shuffled = {"inner": {"x": None, "y": [1, 2]}, "seed": 0, "corpus": "b"}
    assert digest_of(facts) == digest_of(shuffled)
    assert digest_of(facts) != digest_of(facts | {"seed": 1})
    assert digest_of([1, 2]) != digest_of([2, 1])


def test_digests_stay_what_they_were():
    assert digest_of({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert digest_of([1, "windows", "é"]) == "69bfb593376ad8e22c7759e6d8b13a1a4ed73abbb87cf54604d3e6d3661ee903"
