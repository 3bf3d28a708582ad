"""Flags that several values may follow."""

from evaluation.results.words import spread


def test_every_value_gets_its_flag():
    assert spread(["--f", "a", "b", "--g", "c", "d"], "--f") == ["--f", "a", "--f", "b", "--g", "c", "d"]
    assert spread(["--f", "a", "--f", "b"], "--f") == ["--f", "a", "--f", "b"]
    assert spread(["--f=a", "x"], "--f") == ["--f=a", "x"]
    assert spread(["--f", "a", "b", "c"], "--f", "--g") == ["--f", "a", "--f", "b", "--f", "c"]
