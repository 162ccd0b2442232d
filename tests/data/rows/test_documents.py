"""Rows of documents against rows written out by hand."""

import numpy as np
import pytest

from tests.helpers.plans import BOS, EOS, PAD, read, side
from xlingjax.data.rows.documents import documents, segment_rows, switched_rows
from xlingjax.data.store.tokenise import Records


@pytest.fixture
def aligned():
    """Two documents of three and two sentences; the line between them is blank. Source ids below
    50, target above."""
    source = side([10, 11], [12], [13, 14], [], [20], [21, 22])
    target = side([60], [61, 62, 63], [64], [], [70, 71], [72])
    return Records(("de", "en"), (source, target))


def examples(got):
    """{(input ids), ...} of the examples in rows, with their languages and positions."""
    found = []
    for row in range(len(got["pack_ids"])):
        packs = np.array(got["pack_ids"][row])
        for pack in range(1, packs.max() + 1):
            found.append(
                tuple(tuple(np.array(got[name][row])[packs == pack].tolist()) for name in FIELDS)
            )
    return found


FIELDS = ("input_ids", "language_ids", "position_ids", "sides")


def test_documents_end_at_lines_blank_on_all_sides():
    one = side([10], [], [11], [12], [])
    assert [a.tolist() for a in documents([one])] == [[0, 2, 3], [0, 1, 1]]
    # Blank on one side only: left out, and no end of a document.
    other = side([60], [61], [62], [], [])
    assert [a.tolist() for a in documents([one, other])] == [[0, 2], [0, 0]]


def test_every_other_sentence_is_the_translation(aligned):
    even = switched_rows(aligned, 16, parity="even", packing=False)
    got = examples(read(aligned, even, 16, range(even.count), bos=BOS))
    want = [
        ([BOS, 60, EOS, 12, EOS, 64, EOS], [1, 1, 1, 0, 0, 1, 1]),
        ([BOS, 70, 71, EOS, 21, 22, EOS], [1, 1, 1, 1, 0, 0, 0]),
    ]
    assert sorted(got) == sorted(
        (tuple(ids), tuple(codes), tuple(range(len(ids))), (0,) * len(ids)) for ids, codes in want
    )
    odd = switched_rows(aligned, 16, parity="odd", packing=False)
    assert {ids for ids, *_ in examples(read(aligned, odd, 16, range(odd.count), bos=BOS))} == {
        (BOS, 10, 11, EOS, 61, 62, 63, EOS, 13, 14, EOS),
        (BOS, 20, EOS, 72, EOS),
    }
    coin = switched_rows(aligned, 16, parity="coin")
    both = examples(read(aligned, coin, 16, range(coin.count), bos=BOS))
    halves = [examples(read(aligned, rows, 16, range(rows.count), bos=BOS)) for rows in (even, odd)]
    assert sorted(both) == sorted(halves[0] + halves[1])
    assert (
        coin.passes == 2
        and coin.sizes["sentences"] == 5
        and coin.sizes["tokens"] == coin.slices["lengths"].sum() / 2
    )


WORDS = (
    ((10, 11), (60,)),
    ((12,), (61, 62, 63)),
    ((13, 14), (64,)),
    ((20,), (70, 71)),
    ((21, 22), (72,)),
)
"""Of each pair of sentences the words of either side."""


def counted(rows):
    left_out = rows.left_out
    return left_out.left, left_out.pairs


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("length", range(4, 17))
def test_rows_never_part_languages_from_tokens_and_hold_both(aligned, length, truncate):
    """Ids below 50 are the source's, whatever was cut where; sentences alternate inside an
    example."""
    rows = switched_rows(aligned, length, parity="coin", truncate=truncate)
    got = read(aligned, rows, length, range(rows.count), bos=BOS)
    words = set()
    for ids, codes, positions, _ in examples(got):
        assert list(positions) == list(range(len(ids))) and ids[0] == BOS and len(ids) <= length
        assert all((i >= 50) == code for i, code in zip(ids, codes, strict=True) if i >= 10)
        assert codes[0] == codes[1]
        ends = [i for i, piece in enumerate(ids) if piece == EOS]
        sentences = [codes[end] for end in ends]
        assert all(a != b for a, b in zip(sentences, sentences[1:], strict=False))
        assert {*codes} == {0, 1}
        words |= {i for i in ids if i >= 10}
    # What is left out is counted: sentences of which no example has a word.
    lost = sum(not words & {*first, *second} for first, second in WORDS)
    assert counted(rows) == (lost, 5) and rows.sentences == 5 - lost
    if length >= 11:
        assert words == {word for both in WORDS for of_side in both for word in of_side}
    if not truncate and length >= 7:
        assert not lost


def test_a_truncated_document_is_one_example_of_its_first_tokens(aligned):
    def ids(length, **given):
        given = {"truncate": True, "packing": False, **given}
        rows = switched_rows(aligned, length, **given)
        found = examples(read(aligned, rows, length, range(rows.count), bos=BOS))
        assert [positions for *_, positions, _ in found] == [
            tuple(range(len(one))) for one, *_ in found
        ]
        return {(one, codes) for one, codes, *_ in found}, counted(rows)

    assert ids(6, parity="even") == (
        {
            ((BOS, 60, EOS, 12, EOS, 64), (1, 1, 1, 0, 0, 1)),
            ((BOS, 70, 71, EOS, 21, 22), (1, 1, 1, 1, 0, 0)),
        },
        (0, 5),
    )
    # Of the first the third sentence is behind the end.
    assert ids(6, parity="odd") == (
        {
            ((BOS, 10, 11, EOS, 61, 62), (0, 0, 0, 0, 1, 1)),
            ((BOS, 20, EOS, 72, EOS), (0, 0, 0, 1, 1)),
        },
        (1, 5),
    )
    # Of the first the first sentence fills the row: one language, and no example.
    assert ids(4, parity="odd") == ({((BOS, 20, EOS, 72), (0, 0, 0, 1))}, (3, 5))
    # Of the other parity the first two of these are.
    assert ids(4, parity="coin")[1] == (1, 5)
    # Its tokens in both languages, ends included.
    rows = switched_rows(aligned, 4, parity="coin", truncate=True)
    sizes = [len(first) + len(second) + 2 for first, second in WORDS]
    assert (rows.left_out.left_tokens, rows.left_out.tokens) == (sizes[2], sum(sizes))


def test_a_document_that_goes_on_leaves_out_a_rest_of_one_language(aligned):
    """The third sentence of the first document would stand alone in a second row of one parity."""
    odd = switched_rows(aligned, 8, parity="odd", packing=False)
    got = {ids for ids, *_ in examples(read(aligned, odd, 8, range(odd.count), bos=BOS))}
    assert got == {(BOS, 10, 11, EOS, 61, 62, 63, EOS), (BOS, 20, EOS, 72, EOS)}
    assert counted(odd) == (1, 5) and odd.sentences == 4
    # Read with the other parity, where the document is shorter.
    coin = switched_rows(aligned, 8, parity="coin", packing=False)
    assert counted(coin) == (0, 5) and coin.count == 4


def test_sentences_alone_are_examples_where_asked(aligned):
    rows = switched_rows(aligned, 8, parity="odd", packing=False, alone=True)
    got = {ids for ids, *_ in examples(read(aligned, rows, 8, range(rows.count), bos=BOS))}
    assert got == {(BOS, 10, 11, EOS, 61, 62, 63, EOS), (BOS, 13, 14, EOS), (BOS, 20, EOS, 72, EOS)}
    assert counted(rows) == (0, 5) and rows.sentences == 5
    # Of a truncated one what is behind the end is still left out.
    rows = switched_rows(aligned, 4, parity="odd", packing=False, truncate=True, alone=True)
    got = {ids for ids, *_ in examples(read(aligned, rows, 4, range(rows.count), bos=BOS))}
    assert got == {(BOS, 10, 11, EOS), (BOS, 20, EOS, 72)}
    assert counted(rows) == (2, 5)


@pytest.mark.parametrize("truncate", [True, False])
def test_documents_of_one_sentence_are_no_examples(truncate):
    long = Records(("de", "en"), (side(list(range(10, 30))), side(list(range(60, 80)))))
    short = Records(("de", "en"), (side([10], [], [11]), side([60], [], [61])))
    for text, lines in ((long, 1), (short, 2)):
        rows = switched_rows(text, 8, truncate=truncate)
        assert rows.count == 0 and counted(rows) == (lines, lines)


def test_a_sentence_longer_than_a_row_is_cut():
    """Where another one stands beside it."""
    sides = (side([9], list(range(10, 30))), side([59], list(range(60, 80))))
    rows = switched_rows(Records(("de", "en"), sides), 8, parity="odd", truncate=True)
    got = examples(read(Records(("de", "en"), sides), rows, 8, [0], bos=BOS))
    assert got == [((BOS, 9, EOS, *range(60, 65)), (0,) * 3 + (1,) * 5, tuple(range(8)), (0,) * 8)]


def test_text_without_documents_of_both_sides_gives_no_rows():
    empty = Records(("de", "en"), (side([10], []), side([], [60])))
    assert switched_rows(empty, 8).count == 0
    assert segment_rows(Records(("de",), (side([], []),)), 8).count == 0


def test_segments_are_the_halves_of_documents():
    text = Records(("de",), (side([10, 11], [12], [13, 14, 15], [], [20], [], [30], [31]),))
    rows = segment_rows(text, 16, packing=False)
    got = read(text, rows, 16, range(rows.count), bos=BOS)
    # The document of one sentence has no second segment.
    assert sorted(examples(got)) == [
        (
            (BOS, 10, 11, EOS, 12, EOS, BOS, 13, 14, 15, EOS),
            (0,) * 11,
            (0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4),
            (0,) * 6 + (1,) * 5,
        ),
        ((BOS, 30, EOS, BOS, 31, EOS), (0,) * 6, (0, 1, 2, 0, 1, 2), (0,) * 3 + (1,) * 3),
    ]


def test_long_documents_give_several_pairs_of_segments_and_short_ones_share_a_row():
    sentences = [[10 + i] * 3 for i in range(12)]
    text = Records(("de",), (side(*sentences),))
    rows = segment_rows(text, 16)
    got = examples(read(text, rows, 16, range(rows.count), bos=BOS))
    assert len(got) == 4
    for ids, _, positions, sides in got:
        first, second = (
            tuple(i for i, s in zip(ids, sides, strict=True) if s == side) for side in (0, 1)
        )
        assert len(first) <= 8 and len(second) <= 8 and first[0] == second[0] == BOS
        assert positions.count(0) == 2
        assert max(first[1:]) + 1 == min(i for i in second if i >= 10)  # neighbours
    short = Records(("de",), (side([10], [11], [], [12], [13], [], [14], [15]),))
    packed = segment_rows(short, 16)
    got = read(short, packed, 16, range(packed.count), bos=BOS)
    assert (
        packed.count == 2 and max(got["pack_ids"][0]) == 2 and got["input_ids"][0][12:] == [PAD] * 4
    )


def test_overlong_sentences_are_cut_and_keep_their_neighbours():
    text = Records(("de",), (side(list(range(10, 40)), list(range(50, 60))),))
    rows = segment_rows(text, 16)
    assert [ids for ids, *_ in examples(read(text, rows, 16, range(rows.count), bos=BOS))] == [
        (BOS, *range(10, 17), BOS, *range(50, 57))
    ]
