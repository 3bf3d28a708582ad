"""What is asked of the models: cut at the left, in windows, without the token that precedes a text."""

import pytest

from evaluation.harness.answers import before_end, before_stops, room_for
from evaluation.harness.passages import fitted, rolling, text_of

START = 99


def test_a_prompt_leaves_room_for_its_completion():
    assert fitted((1, 2, 3), 2, window=4) == (1, 2, 3)
    assert fitted((1, 2, 3), 3, window=4) == (2, 3)
    assert fitted((START, 1, 2, 3), 2, window=4) == (1, 2, 3)
    assert fitted((START, 1, 2, 3), 2, window=4, start=START) == (START, 2, 3)
    assert fitted((START, 1, 2, 3), 4, window=4, start=START) == (START,)


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize(("length", "stride"), [(3, 7), (7, 7), (8, 7), (23, 7), (23, 3), (1, 1)])
def test_every_token_of_a_text_is_predicted_once_with_as_much_before_it_as_fits(length, stride, always):
    text, window = tuple(range(length)), 7
    passages = list(rolling(text, START, window, stride, always))
    assert sum((passage.completion for passage in passages), ()) == text
    for passage in passages:
        begin = passage.completion[0]
        own = text_of(passage.prompt, START, window)
        assert own == text[begin - len(own) : begin]
        assert len(passage.prompt) + len(passage.completion) <= window + 1
        whole = begin == len(own)
        assert whole or len(passage.prompt) + len(passage.completion) == window + 1
        assert (passage.prompt[0] == START) == (always or begin == 0)


def test_the_energy_reads_the_text_alone():
    assert text_of((START, 1, 2), START, 5) == (1, 2)
    assert text_of((START, START, 2), START, 5) == (START, 2)  # the second is the text's own
    assert text_of((1, 2, 3), START, 2) == (2, 3)
    assert text_of((1, 2, 3), START, 0) == ()


def test_answers_end_where_they_should():
    assert before_end((1, 2, START, 3), START) == (1, 2)
    assert before_end((1, 2), START) == (1, 2)
    assert before_stops("one two three", ["three", "two", ""]) == "one "
    assert before_stops("one", []) == "one"
    assert [room_for(asked, prompt, 9) for asked, prompt in ((3, 2), (20, 2), (20, 8), (3, 8))] == [3, 8, 5, 3]
