import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import schemas
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer
from training.energy.inputs import PlainReader, RetokenisingReader, Sequences, completed


def table(rows: list[tuple[list[int], str, int, list[list[int]]]]) -> pa.Table:
    tokens, directions, contexts, negatives = zip(*rows, strict=True)
    return pa.table(
        {
            "tokens": pa.array(tokens, schemas.TOKENS),
            "direction": pa.array(directions),
            "context_length": pa.array(contexts, pa.int32()),
            "negatives": pa.array(negatives, schemas.NEGATIVES.field("negatives").type),
        }
    )


def random_rows(count: int, negatives: int, seed: int) -> list[tuple[list[int], str, int, list[list[int]]]]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        context = int(rng.choice([0, 3, 7, 10]))
        completions = rng.integers(0, 14, (negatives, 10 - context)).tolist()
        direction = str(rng.choice(["left_to_right", "right_to_left"]))
        rows.append((rng.integers(0, 14, 10).tolist(), direction, context, completions))
    return rows


def by_hand(row) -> list[list[int]]:
    tokens, direction, context, negatives = row
    if direction == "right_to_left":
        return [tokens, *(completion + tokens[len(tokens) - context :] for completion in negatives)]
    return [tokens, *(tokens[:context] + completion for completion in negatives)]


@pytest.mark.parametrize("start", [0, 17])
def test_windows_are_the_context_and_a_completion_in_the_order_of_the_text(start):
    rows = random_rows(60, 3, seed=0)
    found = completed(table(rows).slice(start), 3, np.arange(60 - start))
    assert found.ids.tolist() == [by_hand(row) for row in rows[start:]]
    assert found.padded == 0


def test_texts_of_any_length_are_padded_at_their_end():
    rows = [*random_rows(5, 2, seed=1), ([1, 2, 3], "left_to_right", 0, [[4, 5, 6, 7, 8], [9]])]
    rows.append(([1, 2, 3, 4], "right_to_left", 2, [[7, 7, 7], [8]]))
    found = completed(table(rows), 2, np.arange(7))
    for row, ids, lengths in zip(rows, found.ids, found.lengths, strict=True):
        assert [window[:length].tolist() for window, length in zip(ids, lengths, strict=True)] == by_hand(row)
    assert found.padded == sum(10 - len(window) for row in rows for window in by_hand(row))


def test_of_many_negatives_other_ones_are_taken_in_other_epochs_and_all_of_them_in_the_end():
    rows = random_rows(4, 5, seed=2)
    seen: list[set[tuple[int, ...]]] = [set() for _ in rows]
    for epoch in range(40):
        found = completed(table(rows), 2, epoch * 4 + np.arange(4)).ids
        again = completed(table(rows[2:]), 2, epoch * 4 + np.arange(2, 4)).ids  # another rank's share
        assert (again == found[2:]).all()
        for row, windows, there in zip(rows, found.tolist(), seen, strict=True):
            assert windows[0] == row[0]
            assert all(window in by_hand(row)[1:] for window in windows[1:])
            there.update(map(tuple, windows[1:]))
    assert [len(there) for there in seen] == [len(set(map(tuple, by_hand(row)[1:]))) for row in rows]


@pytest.fixture
def words() -> Tokenizer:
    """A tokenizer of whole numbers, with a piece before and one after, as BERT's."""
    pieces = ["[CLS]", "[SEP]", "[UNK]", "+", "=", *map(str, range(2000)), *(f"{n:03d}" for n in range(100))]
    backend = Tokenizer(models.WordLevel({piece: id for id, piece in enumerate(pieces)}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace()])
    backend.add_special_tokens(["[SEP]"])
    backend.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 0), ("[SEP]", 1)])
    backend.enable_truncation(4)  # as published tokenizers often come: windows must be whole all the same
    return backend


def test_an_encoder_of_its_own_tokens_reads_the_text(words):
    encoder = character_tokenizer(ALPHABET)
    texts = ["12+3=15", "7+9=0016", "1+1=2<|endoftext|>3"]
    ids = [encoder.encode([text.split("<")[0]])[0] for text in texts]
    ids[2] += [encoder.eos_token_id, *encoder.encode(["3"])[0]]
    width = max(map(len, ids))
    windows = Sequences(np.array([row + [0] * (width - len(row)) for row in ids]), np.array([len(row) for row in ids]))
    reader = RetokenisingReader(encoder, words, "[SEP]", longest=None)
    found = reader.read(windows)
    expected = [words.encode(text).ids for text in ("12+3=15", "7+9=0016", "1+1=2[SEP]3")]
    assert [row[:length].tolist() for row, length in zip(found.ids, found.lengths, strict=True)] == expected
    assert reader.cut == 0


def test_what_was_read_is_remembered_and_what_is_too_long_is_cut_and_counted(words):
    encoder = character_tokenizer(ALPHABET)
    windows = Sequences(np.array([encoder.encode(["1+2=3"])[0]] * 2), np.array([5, 5]))
    reader = RetokenisingReader(encoder, words, "[SEP]", longest=4)
    first = reader.read(windows)
    assert first.ids.shape == (2, 4)
    assert reader.cut == 1
    reader.own = None  # nothing is left to encode
    assert (reader.read(windows).ids == first.ids).all()


def test_ids_of_the_stores_own_vocabulary_are_read_as_they_are():
    windows = Sequences(np.arange(6).reshape(2, 3), np.array([3, 3]))
    assert PlainReader().read(windows) is windows
