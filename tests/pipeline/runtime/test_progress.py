"""What is shown of long work where there is no terminal."""

import time

from pipeline.runtime import progress
from pipeline.runtime.progress import Bar, Lines, in_time, note, noted, showing


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


def test_a_bar_becomes_lines_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setenv("RESIDUAL_EBM_PROGRESS", "1")
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Bar(total=500, initial=100, desc="training", unit=" steps") as bar:
        for step in range(3):
            now[0] += 40
            bar.set_postfix({"loss": f"{3 - step}"}, refresh=False)
            bar.set_description("validating")
            bar.update(10)
        assert bar.rate == 0.25
    assert capsys.readouterr().err.splitlines() == [
        "training: 100 of 500 steps",
        "training: 120 of 500 steps, 25 min left, loss 2",
    ]
    assert list(Bar(range(3), desc="reading", unit=" files")) == [0, 1, 2]
    assert capsys.readouterr().err.splitlines() == ["reading: 0 of 3 files"]


def test_a_bar_is_silent_for_other_ranks_and_where_nobody_wants_it(monkeypatch, capsys):
    for wanted, hidden in (("1", True), ("0", False)):
        monkeypatch.setenv("RESIDUAL_EBM_PROGRESS", wanted)
        with Bar(total=3, unit=" steps", hidden=hidden) as bar:
            bar.update(3)
            assert bar.done == 3
            assert bar.rate is None
    assert capsys.readouterr().err == ""
