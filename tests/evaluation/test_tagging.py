import numpy as np
import pytest

from tests.evaluation.test_alignment import Characters
from tests.helpers import own_files, toy
from xlingjax.data.labelled.records import Tagged
from xlingjax.data.labelled.words import read_tagged
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.errors import UserError
from xlingjax.evaluation import tagging
from xlingjax.inference.run import TrainedRun
from xlingjax.preprocessors.finetuning import tagged_parts, tagged_rows
from xlingjax.preprocessors.task_rows import Reading, task_rows
from xlingjax.tasks import task_named
from xlingjax.workflows.tasks import request

TAGS = ("O", "B-PER", "I-PER", "B-LOC")
RUN = TrainedRun(None, None, Characters(), ("de", "zh"))


def test_a_tag_stands_at_the_first_piece_of_its_word():
    sentence = Tagged(("cab", "d", "abab"), ("B-PER", "O", "B-LOC"))
    rows, _ = tagged_rows([sentence], Characters(), 9, TAGS, "de", 1)
    _, owners = pieces_of_words(sentence.words, "de", Characters(), apart=True)
    assert owners == [0, 0, 1, 2, 2]
    assert rows["tag_weights"][0].tolist() == [0, 1, 0, 1, 1, 0, 0, 0, 0]
    assert rows["tag_labels"][0].tolist() == [0, 1, 0, 0, 3, 0, 0, 0, 0]
    assert rows["pack_ids"][0].sum() == 7 and rows["language_ids"][0].tolist() == [1] * 7 + [0] * 2
    with pytest.raises(UserError, match="'X' is not one of O, B-PER"):
        tagged_rows([Tagged(("a",), ("X",))], Characters(), 9, TAGS, "de", 1)


def test_words_of_languages_without_spaces_are_tokenised_one_by_one(monkeypatch):
    """As XTREME's and XGLUE's scripts: no word shares a piece with the one before, so each learns
    and gets a tag."""
    task = task_named("xtreme/udpos")
    reading = request.reading_of({"LENGTH": 9, "WORDS_APART": True})
    sentence = Tagged(("ca", "b", "d"), ("NOUN", "VERB", "ADJ"))
    joined, apart = (
        task_rows(task, [sentence], Characters(), one, "zh", 0)[0]["tag_weights"][0].tolist()
        for one in (Reading(length=9, apart=False), reading)
    )
    assert joined == [0, 1, 0, 1, 0, 0, 0, 0, 0]  # c ab d
    assert apart == [0, 1, 0, 1, 1, 0, 0, 0, 0]  # c a b d
    untagged = Tagged(sentence.words, ())
    columns = lambda model, params, rows, **how: np.arange(9)[None]  # noqa: E731
    monkeypatch.setattr(tagging, "predict", columns)
    # Read joined, the second word shares its piece with the first.
    given = (RUN, [untagged], list("abcdefghi"), "zh")
    for apart, tags in ((True, ["b", "d", "e"]), (False, ["b", "b", "d"])):
        assert tagging.predict_tags(*given, Reading(length=9, apart=apart)) == [tags]


def test_all_pieces_of_a_word_have_its_tag():
    """ERNIE-M's: a piece that goes on is inside the entity, and tags without B- are the same at
    every piece."""
    sentence = Tagged(("cab", "d", "abab", "cab"), ("B-PER", "O", "I-PER", "O"))
    rows, _ = tagged_rows([sentence], Characters(), 12, TAGS, "de", 1, pieces="all")
    _, owners = pieces_of_words(sentence.words, "de", Characters(), apart=True)
    assert owners == [0, 0, 1, 2, 2, 3, 3]
    assert rows["tag_weights"][0].tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    assert rows["tag_labels"][0].tolist() == [0, 1, 2, 0, 2, 2, 0, 0, 0, 0, 0, 0]
    with pytest.raises(UserError, match="'I-LOC' is not one of O, B-PER"):
        tagged_rows([Tagged(("cab",), ("B-LOC",))], Characters(), 9, TAGS, "de", 1, pieces="all")


def test_a_sentence_goes_on_in_the_next_row_and_no_word_stands_in_two():
    words = ("cab", "d", "cab", "d", "abcdabcd")
    sentences = [Tagged(words, ("B-PER", "O", "B-LOC", "I-PER", "O")), Tagged(("d",), ("B-PER",))]
    whole, owners = pieces_of_words(words, "de", Characters(), apart=True)
    assert [owners.count(word) for word in range(5)] == [2, 1, 2, 1, 6]
    parts = tagged_parts(sentences, Characters(), 5, "de")
    owned = [(number, of) for number, _, of in parts]
    assert owned == [(0, [0, 0, 1]), (0, [2, 2, 3]), (0, [4, 4, 4]), (1, [0])]
    # The last word does not fit.
    assert [piece for number, ids, _ in parts if number == 0 for piece in ids] == whole[:9]
    rows, _ = tagged_rows(sentences, Characters(), 5, TAGS, "de", 1)
    labels = [[0, 1, 0, 0, 0], [0, 3, 0, 2, 0], [0] * 5, [0, 1, 0, 0, 0]]
    assert rows["tag_labels"].tolist() == labels
    assert rows["tag_weights"].tolist() == [[0, 1, 0, 1, 0]] * 2 + [[0, 1, 0, 0, 0]] * 2
    assert rows["position_ids"][1].tolist() == [0, 1, 2, 3, 4]
    assert rows["pack_ids"][3].tolist() == [1, 1, 1, 0, 0]
    with pytest.raises(UserError, match="length 2 leaves no room for a piece"):
        tagged_rows(sentences, Characters(), 2, TAGS, "de", 1)


def test_the_predictions_of_a_sentences_rows_are_joined(monkeypatch):
    """Every word of a sentence longer than a row has a prediction, from its own row and column."""
    words = ("cab", "d", "cab", "d", "abcd")
    sentences = [
        Tagged(("d",), ("B-PER",)),
        Tagged(words, ("B-PER", "I-PER", "B-LOC", "I-PER", "B-LOC")),
    ]

    def predicted(sentences):
        return tagging.predict_tags(RUN, sentences, TAGS, "de", Reading(length=5))

    monkeypatch.setattr(tagging, "predict", lambda model, params, rows, **_: rows["tag_labels"])
    assert predicted(sentences) == [list(sentence.tags) for sentence in sentences]
    monkeypatch.setattr(tagging, "predict", lambda *_, **__: np.full((4, 5), 3))
    untagged = [Tagged(sentence.words, ()) for sentence in sentences]  # an official test set
    assert predicted(untagged) == [["B-LOC"], ["B-LOC"] * 5]


@pytest.mark.parametrize(
    "tags, expected", [(("NOUN", "VERB"), ["VERB", "VERB", "NOUN"]), (TAGS, ["B-PER", "O", "O"])]
)
def test_a_word_that_shares_its_piece_has_a_tag_of_the_task(tags, expected, monkeypatch):
    """Where Chinese words are read joined. "O" is none of the tags of parts of speech: it could not
    be submitted."""

    class InTwos(Characters):
        def encode_with_spans(self, text):
            spans = [(at, min(at + 2, len(text))) for at in range(0, len(text), 2)]
            return [14] * len(spans), spans

    monkeypatch.setattr(tagging, "predict", lambda *_, **__: np.array([[0, 1, 0, 0, 0]]))
    sentence = Tagged(("a", "b", "c"), ())
    run = TrainedRun(None, None, InTwos(), ("zh",))
    made = tagging.predict_tags(run, [sentence], tags, "zh", Reading(length=5, apart=False))
    assert made == [expected]


def test_words_are_scored_in_their_order(tmp_path, monkeypatch):
    path = tmp_path / "de.tsv"
    path.write_text("cab\tB-PER\nd\tO\n\nabab\tB-LOC\n")
    assert [s.words for s in read_tagged(path)] == [("cab", "d"), ("abab",)]
    files = {"de": path, "en": path}
    given = {"vocabulary": Characters(), "reading": dict(length=9), "metric": "accuracy"}
    probe = own_files.score("tagging", files, TAGS, ("token_accuracy",), **given)

    def right(model, params, rows, **options):
        return rows["tag_labels"]

    monkeypatch.setattr(tagging, "predict", right)
    model = toy.model(num_labels=4, classifier="tagging")
    perfect = {"by_language": {"de": 1.0, "en": 1.0}, "en": 1.0, "mean_other": 1.0}
    assert probe(*model, 0) == perfect | {"kind": "tagging", "metric": "accuracy"}
    monkeypatch.setattr(tagging, "predict", lambda *_, **__: np.zeros((2, 9), int))
    assert probe(*model, 0)["en"] == pytest.approx(1 / 3)
