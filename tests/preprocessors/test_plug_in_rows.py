"""Rows of plug-in fine-tuning of questions and tags: windows and parts beside those that stand at
the same place of the translation."""

import numpy as np

from tests.helpers import toy
from tests.helpers.batches import check_batch
from tests.preprocessors.test_span_qa import XLM, question
from xlingjax.data.labelled.records import Tagged
from xlingjax.objectives.plug_in import PlugInSpans, PlugInTagging
from xlingjax.preprocessors.finetuning import places_of_parts, tagged_rows
from xlingjax.preprocessors.span_qa import Window, places_of_windows, span_rows
from xlingjax.preprocessors.task_rows import side_by_side

LENGTH = 12
SIZES = {"stride": 4, "max_question": 2}
GERMAN = [question("abcdefghijklmnop", "op", id="long"), question("abc", "b", id="short")]
ENGLISH = [question("tuvwxyzabcd", "cd", id="long"), question("pqrstuvwxyzc", "z", id="short")]


def test_a_window_stands_beside_the_window_whose_middle_is_nearest():
    one, own = span_rows(GERMAN, XLM, LENGTH, 0, **SIZES)
    two, others = span_rows(ENGLISH, XLM, LENGTH, 1, **SIZES)
    places = places_of_windows(own, GERMAN)
    rows = side_by_side(one, places, two, places_of_windows(others, ENGLISH))
    check_batch(rows, PlugInSpans().reads)
    assert [window.question for window in own] == [0, 0, 0, 1]
    for name in ("input_ids", "position_ids", "language_ids", "pack_ids", "answer_columns"):
        np.testing.assert_array_equal(rows[name][:, :LENGTH], one[name])
    # Seven pieces a window, four apart; "ab" is one. Of 16 letters the middles stand at .25, .53,
    # .78, beside .32 and .68 of 11; of 3 letters at .5, beside .29, .63 and .83 of 12.
    middles = [(window.spans[0, 0] + window.spans[-1, 1]) / 2 for window in (*own, *others)]
    assert middles == [4, 8.5, 12.5, 1.5, 3.5, 7.5, 3.5, 7.5, 10]
    beside = [0, 1, 1, 3]
    for name in ("input_ids", "position_ids", "language_ids", "pack_ids", "answer_columns"):
        np.testing.assert_array_equal(rows[name][:, LENGTH:], two[name][beside])
    np.testing.assert_array_equal(rows["sides"][:, :LENGTH], 0)
    np.testing.assert_array_equal(rows["sides"][:, LENGTH:], two["pack_ids"][beside])
    np.testing.assert_array_equal(rows["start_positions"], one["start_positions"])
    starts = rows["beside_start_positions"]
    np.testing.assert_array_equal(starts, two["start_positions"][beside] + LENGTH)
    # An answer that the window does not hold stands at the first token of its side.
    assert (starts == LENGTH).tolist() == [True, False, False, False]
    # The answers' first letters on either side.
    ids = rows["input_ids"]
    first = {letter: XLM.encode_with_spans(letter)[0][0] for letter in "co"}
    assert ids[2, starts[2]] == first["c"] != ids[2, rows["start_positions"][2]] == first["o"]


def test_tags_of_both_sides_and_none_of_an_untagged_one():
    german = [
        Tagged(("a", "b", "c", "d", "e", "f", "g"), ()),
        Tagged(("a", "b"), ("NOUN", "VERB")),
        Tagged((), ()),
    ]
    english = [
        Tagged(("p", "q", "r"), ("NOUN", "VERB", "NOUN")),
        Tagged(("t", "u", "v", "w"), ("VERB", "NOUN", "VERB", "NOUN")),
        Tagged(("x",), ("NOUN",)),
    ]
    tags = ("NOUN", "VERB")
    vocabulary = toy.ToyVocabulary()
    own, parts = tagged_rows(german, vocabulary, 5, tags, "de", 0)
    two, others = tagged_rows(english, vocabulary, 5, tags, "en", 1)
    rows = side_by_side(own, places_of_parts(parts), two, places_of_parts(others))
    check_batch(rows, PlugInTagging(2).reads)
    # Three pieces a row: seven words take three rows, and four words two.
    assert rows["input_ids"].shape == (5, 10)
    np.testing.assert_array_equal(rows["input_ids"][:, :5], own["input_ids"])
    # English rows: "p q r", "t u v", "w", "x". Of the second sentence the middle, at a half, is
    # nearer to that of "t u v" (3/8) than to that of "w" (7/8).
    beside = [0, 0, 0, 1, 3]
    for name in ("input_ids", "tag_labels", "tag_weights", "language_ids"):
        np.testing.assert_array_equal(rows[name][:, 5:], two[name][beside])
    weights = rows["tag_weights"].reshape(5, 2, 5).sum(-1)
    assert weights.tolist() == [[0, 3], [0, 3], [0, 3], [2, 3], [0, 1]]


def test_the_place_of_a_row_is_its_middle_in_the_whole():
    asked = [question("abcdefgh", "a"), question("abcd", "a")]

    def window(index, *spans):
        return Window(index, 3, np.array(spans), np.ones(len(spans), bool))

    windows = [window(0, (0, 1), (1, 2), (2, 6)), window(0, (6, 8)), window(1, (1, 3), (3, 4))]
    assert places_of_windows(windows, asked) == [(0, 3 / 8), (0, 7 / 8), (1, 2.5 / 4)]
    parts = [(0, [1, 2, 3], []), (0, [4], []), (1, [], []), (2, [5, 6], [])]
    assert places_of_parts(parts) == [(0, 1.5 / 4), (0, 3.5 / 4), (1, 0.0), (2, 0.5)]


def test_of_two_rows_as_near_the_first_is_taken_and_none_of_another_example():
    places = [(0, 0.0), (0, 0.5), (0, 0.51), (1, 0.6), (1, 1.0)]
    others = [(1, 0.5), (0, 0.25), (0, 0.75), (1, 0.9)]
    one = {"pack_ids": np.ones((5, 1), np.int32)}
    two = {"pack_ids": np.arange(4, dtype=np.int32)[:, None]}
    rows = side_by_side(one, places, two, others)
    assert rows["pack_ids"][:, 1].tolist() == [1, 1, 2, 0, 3]
