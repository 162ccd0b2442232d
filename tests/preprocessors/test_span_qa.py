import io
import json
import unicodedata

import numpy as np
import pytest
import sentencepiece

from tests.evaluation.test_alignment import Characters
from tests.helpers import toy
from xlingjax.data.labelled.records import Question
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.objectives.finetuning import SpanQA
from xlingjax.preprocessors.span_qa import (
    answer_pieces,
    checked_separators,
    maximal_context,
    span_rows,
    window_bounds,
)


class Letters(Characters):
    """Of a question words are pieces, and no spaces."""

    def encode(self, text):
        return toy.ToyVocabulary.encode(self, text)


XLM = Letters()
XLMR = Letters("xlmr")


def question(context, answer, start=None, id="q", asked="a b"):
    return Question(
        id, asked, context, (answer,), (context.index(answer) if start is None else start,)
    )


SCRIPTS = (
    ("北京大学在北京市海淀区。它成立于1898年，是第一所国立大学。", "海淀区"),
    ("กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "เมืองหลวง"),
    ("Der Preis stieg um ½ Prozent, nicht um ２５ Prozent.", "２５"),
    ("Ein ﬁnales Wort，ｎｏｃｈ eins", "ﬁnales"),
    ("Cafe\u0301  au \u00a0 lait, 3,50\u00a0€", "lait"),
    ("वह दिल्ली में रहता है।", "दिल्ली"),
    ("من عام ١٩٤٥ حتى ٢٠٠١", "١٩٤٥"),
    ("naïve 😀 smile 👩‍👩‍👧 here", "smile"),
)
"""Contexts that the normaliser rewrites, or that have no spaces, and an answer in each."""


@pytest.fixture(scope="module")
def pieces():
    """A SentencePiece vocabulary with XLM-R's normalisation (NFKC)."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([context for context, _ in SCRIPTS] * 9),
        model_writer=model,
        vocab_size=220,
        character_coverage=1.0,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
        normalization_rule_name="nmt_nfkc",
    )
    return Vocabulary(model.getvalue(), "xlmr")


# --- windows --------------------------------------------------------------------------------------


def test_windows_begin_every_stride_until_one_reaches_the_end():
    assert window_bounds(10, 10, 3) == [(0, 10)]
    assert window_bounds(11, 10, 3) == [(0, 10), (3, 11)]
    assert window_bounds(17, 10, 3) == [(0, 10), (3, 13), (6, 16), (9, 17)]
    assert window_bounds(25, 10, 99) == [(0, 10), (10, 20), (20, 25)]  # no gap


def published_max_context(bounds, position):
    """`_check_is_max_context` of BERT's run_squad.py, in its own words: which span is best for a
    position."""
    best_score, best = None, None
    for index, (begin, end) in enumerate(bounds):
        if position < begin or position > end - 1:
            continue
        score = min(position - begin, end - 1 - position) + 0.01 * (end - begin)
        if best_score is None or score > best_score:
            best_score, best = score, index
    return best


@pytest.mark.parametrize("pieces_, room, stride", [(40, 12, 5), (23, 7, 7), (31, 10, 1), (9, 4, 3)])
def test_maximal_context_is_berts_and_every_piece_has_one_window(pieces_, room, stride):
    bounds = window_bounds(pieces_, room, stride)
    assert maximal_context(bounds, pieces_).tolist() == [
        published_max_context(bounds, i) for i in range(pieces_)
    ]


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocabulary, between", [(XLM, 1), (XLMR, 2)])
def test_a_row_is_a_question_and_its_context_with_the_answers_pieces(vocabulary, between):
    asked = question("cdefghij", "fgh")
    rows, (window,) = span_rows([asked], vocabulary, 16, 2, max_question=4)
    context, _ = vocabulary.encode_with_spans(asked.context)
    ends = [vocabulary.eos_id]
    ids = [vocabulary.bos_id, *vocabulary.encode("a b"), *ends * between, *context, *ends]
    assert rows["input_ids"][0].tolist() == ids + [vocabulary.pad_id] * (16 - len(ids))
    column = 3 + between
    assert window.column == column and window.question == 0 and window.maximal.all()
    assert window.spans.tolist() == [[i, i + 1] for i in range(8)]
    # No question, separator, padding.
    wanted = [int(i == 0 or column <= i < column + 8) for i in range(16)]
    assert rows["answer_columns"][0].tolist() == wanted
    assert rows["start_positions"].tolist() == [column + 3] and rows["end_positions"].tolist() == [
        column + 5
    ]
    assert rows["language_ids"][0].tolist() == [2] * len(ids) + [0] * (16 - len(ids))
    assert rows["position_ids"][0, : len(ids)].tolist() == list(range(len(ids)))
    again, (window,) = span_rows([asked], vocabulary, 17, 2, max_question=4, reset_positions=True)
    assert window.column == 5 and again["position_ids"][0, 3:6].tolist() == [3, 0, 1]
    assert again["input_ids"][0, again["start_positions"][0]] == context[3]


def test_a_window_without_the_whole_answer_points_at_the_first_token():
    context = "cdefghijklmnop"
    asked = [question(context, "ghi", id="1"), question(context, "p", id="2", asked="a b c d e f")]
    # Room for 6: 0-6, 3-9, 6-12, 9-14.
    rows, windows = span_rows(asked, XLM, 11, 0, stride=3, max_question=2)
    assert [window.question for window in windows] == [0] * 4 + [1] * 4
    # Ghi: 4-6, of 0-5 only g, h.
    assert rows["start_positions"].tolist() == [0, 4 + 1, 0, 0] + [0, 0, 0, 4 + 4]
    assert rows["end_positions"].tolist() == [0, 4 + 3, 0, 0] + [0, 0, 0, 4 + 4]
    assert (rows["input_ids"][4:, 1:3] == XLM.encode("a b")).all()  # the question is cut
    text = ["".join(context[b:e] for b, e in window.spans) for window in windows[:4]]
    assert text == ["cdefgh", "fghijk", "ijklmn", "lmnop"]
    assert [window.maximal.sum() for window in windows[:4]] == [5, 3, 3, 3]
    unlabelled, _ = span_rows(
        [Question("x", "a", context, (), ())], XLM, 11, 0, max_question=2, answers=False
    )
    assert set(rows) == set(SpanQA().reads)
    assert set(unlabelled) == set(rows) - {"start_positions", "end_positions"}


def test_an_answer_is_the_pieces_that_it_touches():
    context = "xabyab z"  # x | ab | y | ab | " " | z
    _, spans = XLM.encode_with_spans(context)
    spans = np.array(spans)
    assert answer_pieces(question(context, "ab", 1), spans) == (1, 1)
    # Begins and ends inside a piece.
    assert answer_pieces(question(context, "bya", 2), spans) == (1, 3)
    assert answer_pieces(question(context, "ab", 4), spans) == (3, 3)  # the second of two
    assert answer_pieces(question(context, "ab ", 4), spans) == (3, 3)
    # Blanks around it are not the answer's.
    assert answer_pieces(question(context, " z", 6), spans) == (5, 5)


@pytest.mark.parametrize("context, answer", SCRIPTS)
def test_characters_and_pieces_agree_in_every_script(pieces, context, answer):
    """The pieces of an answer stand for it and for no more, whatever the normaliser does."""
    ids, spans = pieces.encode_with_spans(context)
    spans = np.array(spans)
    first, last = answer_pieces(question(context, answer), spans)
    assert context[spans[first, 0] : spans[last, 1]].strip() == answer
    assert last > first and len(ids) == len(spans) and pieces.unk_id not in ids
    assert any(unicodedata.normalize("NFKC", context) != context for context, _ in SCRIPTS)


@pytest.mark.parametrize(
    "asked, message",
    [
        (question("cdef", "ef", 1, id="n-7"), "question n-7: its answer 'ef' does not .* 1 of its"),
        (question("cdef", "f", -1, id="n-7"), "question n-7: .*at character -1"),
        (question("cdef", "", 1, id="n-7"), "question n-7: its answer ''"),
        (Question("n-7", "a", "cdef", (), ()), "question n-7: no answer with its start"),
        (question("", "", 0, id="n-7"), "question n-7: its context is empty"),
    ],
)
def test_a_question_that_cannot_be_learnt_is_refused_by_its_id(asked, message):
    with pytest.raises(UserError, match=message):
        span_rows([asked], XLM, 16, 0, max_question=4)


def test_an_answer_without_a_piece_is_refused():
    with pytest.raises(UserError, match="question q: its answer 'c' .* has no piece there"):
        answer_pieces(question("cd", "c"), np.array([[0, 0], [1, 2]]))


@pytest.mark.parametrize(
    "sizes", [dict(length=7), dict(length=16, stride=0), dict(length=16, max_question=0)]
)
def test_sizes_without_room_are_refused(sizes):
    sizes = {"max_question": 4, **sizes}
    with pytest.raises(UserError, match="LENGTH must be above MAX_QUESTION [+] 3"):
        span_rows([question("cdef", "d")], XLM, sizes.pop("length"), 0, **sizes)
    with pytest.raises(UserError, match="no questions"):
        span_rows([], XLM, 16, 0, max_question=4)


# --- batches --------------------------------------------------------------------------------------


def squad(path, questions):
    """A SQuAD json, every question in a paragraph of its own."""
    paragraphs = [
        {
            "context": q.context,
            "qas": [
                {
                    "id": q.id,
                    "question": q.question,
                    "answers": [
                        {"text": t, "answer_start": s}
                        for t, s in zip(q.answers, q.starts, strict=True)
                    ],
                }
            ],
        }
        for q in questions
    ]
    path.write_text(
        json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})
    )
    return path


@pytest.mark.parametrize(
    ("layout", "reset_positions", "separators"),
    [("xlm", False, 3), ("xlmr", False, 4), ("xlm", True, 4), ("xlmr", True, 4)],
)
def test_rows_hold_a_token_of_each_text_beside_the_separators(layout, reset_positions, separators):
    vocabulary = toy.ToyVocabulary(layout)
    least = {"length": separators + 2, "stride": 1, "max_question": 1}
    for wrong in ({}, {"length": separators + 1}, {"stride": 0}, {"max_question": 0}):
        sizes = {**least, **wrong, "reset_positions": reset_positions}
        if not wrong:
            assert checked_separators(vocabulary, **sizes) == separators
            continue
        with pytest.raises(UserError, match=rf"must be above MAX_QUESTION \+ {separators}"):
            checked_separators(vocabulary, **sizes)
