"""What is shown of long work where there is no terminal."""

import time

from pipeline.runtime import progress
from pipeline.runtime.progress import Lines, in_time, note, noted, showing


def test_notes_of_several_workers_add_up(tmp_path):
    for worker, amount in ((0, 3), (1, 4), (1, 5)):
        note(str(tmp_path), "done", worker, amount)
    assert noted(str(tmp_path), "done") == 8
    assert noted(str(tmp_path), "nothing") == 0


def test_a_line_says_how_much_is_done_and_how_long_it_takes_still():
    lines = Lines(" windows")
    lines.stage, lines.begun = "mining", (0.0, 100)
    assert lines.line(60, 100, 4000) == "mining: 100 of 4,000 windows"  # nothing was made yet: no guess
    assert lines.line(60, 400, 4000, "5 shards") == "mining: 400 of 4,000 windows, 12 min left, 5 shards"
    assert Lines("").line(0, 0, None) == ""
    assert [in_time(seconds) for seconds in (45, 100, 7500)] == ["45 s", "2 min", "2 h 5 min"]


def test_lines_come_at_once_with_every_new_stage_and_then_at_their_time(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    lines = Lines("windows")
    for moment, stage, done in ((0, "starting", 0), (1, "starting", 0), (2, "mining", 10), (30, "mining", 20)):
        now[0] = moment
        lines.show(stage, done, 100)
    now[0] = 62.5
    lines.show("mining", 40, 100)
    said = capsys.readouterr().err.splitlines()
    assert said == ["starting: 0 of 100 windows", "mining: 10 of 100 windows", "mining: 40 of 100 windows, 2 min left"]


def test_without_a_terminal_lines_are_written_unless_they_are_not_wanted(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS", 0.01)
    for wanted, said in (("1", ["mining: 1 of 2 windows, so far"]), ("0", [])):
        monkeypatch.setenv("RESIDUAL_EBM_PROGRESS", wanted)
        with showing(lambda: ("mining", 1, 2), " windows", details=lambda: "so far"):
            time.sleep(0.2)
        assert capsys.readouterr().err.splitlines() == said
