"""Results that are found again."""

from evaluation.results.cache import ResultCache


def test_what_took_long_is_not_computed_again(tmp_path):
    kept = ResultCache(str(tmp_path / "kept.json"))
    assert kept.get("a", lambda: 1) == 1
    kept.save()
    again = ResultCache(str(tmp_path / "kept.json"))
    assert again.get("a", lambda: 2) == 1
    assert again.get("b", lambda: [3, 4]) == [3, 4]
    (tmp_path / "kept.json").write_text("{broken")
    assert ResultCache(str(tmp_path / "kept.json")).get("a", lambda: 5) == 5
