"""What a command says when it ends."""

from pipeline.runtime.summary import print_summary


def test_facts_stand_below_the_title_and_empty_ones_nowhere(capsys):
    print_summary("windows store s", {"windows": "7", "of which": "", "digest": "d"})
    assert capsys.readouterr().out == "windows store s\n  windows    7\n  digest     d\n"
