import numpy as np
import pytest
from evaluation import toy
from evaluation.test_alignment import Characters

from xlingjax.data.labelled import Tagged
from xlingjax.data.labelled_words import read_tagged
from xlingjax.data.words import pieces_of_words
from xlingjax.errors import UserError
from xlingjax.evaluation import tagging
from xlingjax.preprocessors.finetuning import tagged_rows

TAGS = ("O", "B-PER", "I-PER", "B-LOC")


def test_a_tag_stands_at_the_first_piece_of_its_word():
    sentence = Tagged(("cab", "d", "abab"), ("B-PER", "O", "B-LOC"))
    rows = tagged_rows([sentence], Characters(), 9, TAGS, "de", 1)
    _, owners = pieces_of_words(sentence.words, "de", Characters())
    assert owners == [0, 0, 1, 2, 2]
    assert rows["tag_weights"][0].tolist() == [0, 1, 0, 1, 1, 0, 0, 0, 0]
    assert rows["tag_labels"][0].tolist() == [0, 1, 0, 0, 3, 0, 0, 0, 0]
    assert rows["pack_ids"][0].sum() == 7 and rows["language_ids"][0].tolist() == [1] * 7 + [0] * 2
    short = tagged_rows([sentence], Characters(), 5, TAGS, "de", 1)
    assert short["tag_weights"][0].tolist() == [0, 1, 0, 1, 0]
    with pytest.raises(UserError, match="'X' is not one of O, B-PER"):
        tagged_rows([Tagged(("a",), ("X",))], Characters(), 9, TAGS, "de", 1)


def test_words_are_scored_in_their_order(tmp_path, monkeypatch):
    path = tmp_path / "de.tsv"
    path.write_text("cab\tB-PER\nd\tO\n\nabab\tB-LOC\n")
    assert [s.words for s in read_tagged(path)] == [("cab", "d"), ("abab",)]
    probe = tagging.ZeroShotTagging({"de": path, "en": path}, Characters(), toy.LANGUAGES, TAGS, length=9)

    def right(model, params, rows, **options):
        return rows["tag_labels"]

    monkeypatch.setattr(tagging, "predict", right)
    model = toy.model(num_labels=4, classifier="tagging")
    perfect = {"by_language": {"de": 1.0, "en": 1.0}, "en": 1.0, "mean_other": 1.0}
    assert probe(*model, 0) == perfect | {"kind": "tagging", "metric": "accuracy"}
    monkeypatch.setattr(tagging, "predict", lambda *_, **__: np.zeros((2, 9), int))
    assert probe(*model, 0)["en"] == pytest.approx(1 / 3)


def test_the_model_predicts_every_row():
    model, params = toy.model(num_labels=4, classifier="tagging")
    sentences = [Tagged(("cab", "d"), ("O", "O")), Tagged(("ab",), ("O",)), Tagged(("d",), ("O",))]
    rows = tagged_rows(sentences, Characters(), 9, TAGS, "de", 0)
    found = tagging.predict(model, params, rows, batch_size=2)
    alone = tagging.predict(model, params, {name: values[2:] for name, values in rows.items()}, batch_size=1)
    assert found.shape == (3, 9)
    np.testing.assert_array_equal(found[2, :3], alone[0, :3])


def test_faults_of_files_name_the_line(tmp_path):
    (tmp_path / "de.tsv").write_text("cab\tO\nd O\n")
    with pytest.raises(UserError, match="de.tsv, line 2: 'd O' is not a word, a tab and its tag"):
        read_tagged(tmp_path / "de.tsv")
    with pytest.raises(UserError, match="missing file"):
        read_tagged(tmp_path / "fr.tsv")
