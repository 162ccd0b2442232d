import json
from dataclasses import replace

import numpy as np
import pytest

from tests.helpers import own_files, toy
from tests.preprocessors.test_span_qa import (  # noqa: F401 - pieces is a fixture
    SCRIPTS,
    XLM,
    Characters,
    pieces,
    question,
    squad,
)
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.evaluation import span_qa
from xlingjax.evaluation.span_qa import best_answers, n_best, predict, predict_answers
from xlingjax.evaluation.submissions import write_predictions
from xlingjax.model.partition import MeshConfig, make_mesh
from xlingjax.preprocessors.span_qa import Window, span_rows
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.tasks import task_named

SIZES = dict(length=14, stride=4, max_question=3)


def window_of(count, column=3, question=0, maximal=None):
    spans = np.stack([np.arange(count), np.arange(count) + 1], axis=1)
    return Window(
        question, column, spans, np.ones(count, bool) if maximal is None else np.array(maximal)
    )


@pytest.fixture(scope="module")
def model():
    return toy.model(num_labels=2, classifier="spans")


# --- the search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_best_span_is_that_of_a_search_through_all(seed):
    rng = np.random.default_rng(seed)
    logits, maximal = rng.normal(size=(20, 2)), rng.random(12) < 0.6
    logits[[0, 1, 2, 15, 16]] = 9  # no context
    window = window_of(12, maximal=maximal)
    found = n_best(logits, window, longest=4)
    wanted = [
        (logits[3 + i, 0] + logits[3 + j, 1], i, j)
        for i in np.flatnonzero(maximal)
        for j in range(i, min(i + 4, 12))
    ]
    assert [span[1:] for span in found] == [(i, j) for _, i, j in sorted(wanted, reverse=True)]
    np.testing.assert_allclose(
        [score for score, *_ in found], sorted((score for score, *_ in wanted), reverse=True)
    )


def test_only_the_likeliest_columns_are_combined():
    logits = np.zeros((8, 2))
    logits[3:8, 0], logits[3:8, 1] = [5, 4, 1, 2, 3], [3, 5, 1, 4, 2]
    window = window_of(5)
    found = [span[1:] for span in n_best(logits, window, candidates=2)]
    assert found == [(0, 1), (0, 3), (1, 1), (1, 3)]
    assert n_best(logits, window, candidates=1) == [(10.0, 0, 1)]
    logits[3:8, 0], logits[3:8, 1] = [0, 0, 0, 0, 9], [9, 0, 0, 0, 0]
    assert n_best(logits, window, candidates=1) == []  # it would end before it begins
    assert best_answers(logits[None], [window], [question("abcde", "b")], candidates=1) == {"q": ""}


def test_the_best_of_all_windows_is_cut_out_of_the_context():
    questions = [question("ab  cdef", "cd", id="1"), question("x yz", "yz", id="2")]
    windows = [window_of(6), window_of(6), window_of(4, question=1)]
    windows[1] = replace(windows[1], spans=windows[1].spans + 2)  # "  cdef"
    logits = np.full((3, 12, 2), -5.0)
    logits[0, 3, 0], logits[0, 4, 1] = 3, 3  # ab: 6
    logits[1, 4, 0], logits[1, 6, 1] = 3, 4  # " cd": 7
    logits[2, 4, 0], logits[2, 4, 1] = 9, 9  # a blank is no answer
    logits[2, 5, 0], logits[2, 6, 1] = 1, 2
    assert best_answers(logits, windows, questions) == {"1": "cd", "2": "yz"}
    # Another window shows more around it.
    hidden = [windows[0], replace(windows[1], maximal=np.arange(6) > 1), windows[2]]
    assert best_answers(logits, hidden, questions)["1"] == "ab"


def golden(rows, windows, questions, columns):
    """Logits that are high at the gold answer in every window that holds it."""
    logits = np.zeros((*rows["input_ids"].shape, 2), np.float32)
    at = np.arange(len(windows))
    logits[at, columns["start_positions"], 0] = logits[at, columns["end_positions"], 1] = 9
    return logits


def answered(questions, vocabulary, **sizes):
    """{id: text} of a model that is always right."""
    rows, windows = span_rows(questions, vocabulary, sizes.pop("length"), 0, **sizes)
    return best_answers(golden(rows, windows, questions, rows), windows, questions, longest=100)


def test_the_right_columns_give_the_gold_text_in_every_script(pieces):  # noqa: F811
    questions = [question(context, answer, id=answer) for context, answer in SCRIPTS]
    found = answered(questions, pieces, length=36, stride=12, max_question=3)
    assert found == {q.id: q.answers[0] for q in questions}  # as it was written, never normalised


def test_the_right_columns_give_the_gold_text_of_xlms_own_pieces(tmp_path):
    """Lower-cased, without accents, cut by Moses's rules."""
    from tests.helpers import small_fastbpe

    questions = [question(context, answer, id=answer) for context, answer in SCRIPTS]
    questions.append(
        question("“Él comió 3,50 €…” Straße in İstanbul, Ångström", "Ångström", id="Å")
    )
    small_fastbpe.write(tmp_path, [q.context for q in questions], merges=15)
    found = answered(questions, Vocabulary.load(tmp_path), length=64, stride=20, max_question=3)
    assert found == {q.id: q.answers[0] for q in questions}


# --- the model ------------------------------------------------------------------------------------


def test_the_last_batch_is_filled_up_and_meshes_change_nothing(model):
    questions = [question("cdefghijklmnop"[i:], "kl", id=str(i)) for i in range(5)]
    rows, _ = span_rows(questions, XLM, 14, 1, stride=4, max_question=3)
    whole = predict(*model, rows, batch_size=64)
    assert whole.shape == (*rows["input_ids"].shape, 2) and len(whole) > 8
    np.testing.assert_allclose(predict(*model, rows, batch_size=3), whole, atol=1e-5)
    on_mesh = predict(*model, rows, batch_size=4, mesh=make_mesh(MeshConfig(2, 2, 2)))
    np.testing.assert_allclose(on_mesh, whole, atol=1e-5)
    assert (whole[rows["answer_columns"] == 0] < -1e30).all()
    assert (np.abs(whole[rows["answer_columns"] == 1]) < 1e3).all()


def test_answers_are_those_of_the_logits(model, tmp_path):
    questions = [question("cdefghijklmnop"[i:], "kl", id=str(i)) for i in range(4)]
    rows, windows = span_rows(questions, XLM, 14, 2, stride=4, max_question=3)
    logits = predict(*model, rows)
    run, reading = toy.run(model, XLM), Reading(**SIZES, longest=3)
    found = predict_answers(run, questions, "fr", reading)
    for index, q in enumerate(questions):
        scored = []
        for row, w in enumerate(windows):
            for i in np.flatnonzero(w.maximal) if w.question == index else ():
                for j in range(i, min(i + 3, len(w.spans))):
                    score = logits[row, w.column + i, 0] + logits[row, w.column + j, 1]
                    scored.append((score, q.context[w.spans[i, 0] : w.spans[j, 1]]))
        assert found[q.id] == max(scored)[1]
    unlabelled = [replace(q, answers=(), starts=()) for q in questions]
    assert predict_answers(run, unlabelled, "fr", reading) == found
    path = write_predictions(task_named("xtreme/xquad"), tmp_path, "de", found)
    assert json.loads(path.read_text()) == found
    with pytest.raises(UserError, match="rows of 65 tokens use 65 positions and model tiny has 64"):
        predict_answers(run, questions, "fr", Reading(length=65))
    with pytest.raises(UserError, match="question 0 stands twice"):
        predict_answers(run, [questions[0], questions[0]], "de", reading)


def answers(files, metric="squad", *, length, limit=0):
    return own_files.score(
        "span_qa",
        files,
        metrics=(f"{metric}_f1", f"{metric}_em"),
        vocabulary=XLM,
        reading=dict(length=length, max_question=3),
        metric=metric,
        limit=limit,
    )


def test_f1_and_exact_match_by_language(model, tmp_path, monkeypatch):
    contexts = {"de": "dc bb cc", "en": "the bb cc", "fr": "cc dd the"}
    files = {}
    for code, text in contexts.items():
        # The ids are the same, as in TyDiQA's files.
        asked = question(text, text[:2] if code == "fr" else text[3:], id="same")
        files[code] = squad(tmp_path / f"{code}.json", [asked] * 2)

    def all_but_three(model, params, rows, **options):
        """The whole context but its first three characters."""
        logits = np.zeros((*rows["input_ids"].shape, 2), np.float32)
        column = rows["answer_columns"][:, 1:].argmax(1) + 1
        logits[np.arange(2), column + 3, 0] = 9
        logits[np.arange(2), column + rows["answer_columns"].sum(1) - 2, 1] = 9
        return logits

    monkeypatch.setattr(span_qa, "predict", all_but_three)
    values = answers(files, length=32)(*model, 0)
    # fr: "dd the" for "cc"; de and en: right.
    right = {"de": 1.0, "en": 1.0, "fr": 0.0}
    assert values["by_language"] == values["exact_match_by_language"] == right
    assert (values["en"], values["mean_other"]) == (1, 0.5)
    assert (values["en_exact_match"], values["mean_other_exact_match"]) == (1, 0.5)
    with pytest.raises(UserError, match="no rules for the language 'fr', only for ar, de, en"):
        answers(files, "mlqa", length=32)
