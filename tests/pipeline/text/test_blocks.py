import random

import numpy as np
import pytest

from pipeline.text.blocks import Block, TextEnd, cut_texts, one_spaced
from pipeline.text.documents import UnusableDocument
from pipeline.text.tokenizer import character_tokenizer, load_tokenizer
from tests.helpers.commands import words

LETTERS = character_tokenizer("abcdefghij ")


def cut(texts: list[str], block: int = 160, encoder=LETTERS) -> tuple[list[list[list[int]]], list[TextEnd]]:
    """Every text's blocks, and their ends."""
    blocks: list[list[list[int]]] = [[] for _ in texts]
    ends = []
    for found in cut_texts(([text] for text in texts), encoder, block):
        if isinstance(found, Block):
            blocks[found.text].append(found.tokens.tolist())
        else:
            ends.append(found)
    return blocks, ends


@pytest.mark.parametrize(
    ("tokens", "lengths"),
    [
        (0, []),
        (1, [1]),
        (79, [79]),
        (159, [159]),
        (160, [160]),
        (161, [160]),
        (239, [160]),
        (240, [160, 80]),
        (319, [160, 159]),
        (320, [160, 160]),
        (321, [160, 160]),
    ],
)
def test_blocks_do_not_overlap_and_a_short_rest_is_left_out(tokens, lengths):
    text = "".join(random.Random(tokens).choices("abcdefghij", k=tokens))
    (blocks,), (end,) = cut([text])
    assert [len(block) for block in blocks] == lengths
    ids = LETTERS.encode([text])[0]
    assert [id for block in blocks for id in block] == ids[: sum(lengths)]
    assert (end.tokens, end.problem) == (tokens, None if tokens else "no text")


def test_white_space_is_normalised_whatever_pieces_a_text_comes_in():
    rng = random.Random(0)
    for _ in range(300):
        text = "".join(rng.choices(["a", "bc", " ", "\n", "\t", "\u00a0", "\r\n", "\u2028", "é"], k=rng.randint(0, 30)))
        cuts = sorted(rng.choices(range(len(text) + 1), k=4))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert "".join(one_spaced(pieces)) == " ".join(text.split())


def test_blocks_are_those_of_the_whole_texts_tokens(tokenizer):
    """A text of many chunks, cut where the tokenizer does not care, among others."""
    encoder = load_tokenizer(tokenizer)
    texts = [words(count, count) for count in (1, 20_000, 40, 0, 7_000)]
    blocks, ends = cut(texts, 16, encoder)
    for text, found, end in zip(texts, blocks, ends, strict=True):
        ids = encoder.encode([" ".join(text.split())])[0]
        kept = len(ids) if len(ids) % 16 >= 8 or len(ids) < 16 else len(ids) // 16 * 16
        assert [id for block in found for id in block] == ids[:kept]
        assert end.tokens == len(ids)
    assert [end.text for end in ends] == [0, 1, 2, 3, 4]


def test_a_bad_text_harms_no_other_and_memory_is_not_of_the_whole_word(monkeypatch):
    def broken():
        yield "abc" * 100
        raise UnusableDocument("invalid UTF-8", 300)

    found = list(cut_texts([["ab"], broken(), ["\ud800"], ["   \n"], ["XYZ"], ["cd"]], LETTERS, 160))
    ends = [item for item in found if isinstance(item, TextEnd)]
    assert [end.problem for end in ends] == [
        None,
        "invalid UTF-8, at 300",
        "no text in UTF-8 (a lone surrogate), at 0",
        "no text",
        "no character that the tokenizer knows",
        None,
    ]
    assert [item.tokens.tolist() for item in found if isinstance(item, Block) and item.text in (0, 5)] == [
        [0, 1],
        [2, 3],
    ]
    assert sum(item.characters for item in found) == 2 + 3 + 2
    monkeypatch.setattr("pipeline.text.blocks.LONGEST", 50)
    (cuts,), _ = cut(["a" * 330])
    assert np.concatenate(cuts).tolist() == [0] * 320
