"""The pieces of words: those of the tokenizer, of the text or of each word alone, and each
benchmark's own rule."""

import pytest

from tests.helpers import small_xlmr
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.evaluation.task.predictions import predict
from xlingjax.inference.run import TrainedRun
from xlingjax.preprocessors.finetuning import tagged_parts
from xlingjax.preprocessors.task_rows import Reading, task_rows
from xlingjax.tasks import task_named

TEXT = (
    "Der Fluss ist heute breit .",
    "Die Tür ist offen , sagt Lea .",
    "我 喜欢 你 。",
    "你喜欢我。",
    "Он любит .",
)
VANISHING = "\u200b"  # SentencePiece normalizes it away


@pytest.fixture(scope="module")
def vocabulary():
    """XLM-R's normalization, on few lines: words and marks that were not seen begin with a lone
    mark."""
    pieces = small_xlmr.sentencepiece_model(TEXT, 65)
    return Vocabulary(pieces, "xlmr")


def shown(vocabulary, words, language, **how):
    """The pieces of each word."""
    ids, owners = pieces_of_words(words, language, vocabulary, **how)
    assert owners == sorted(owners)
    names = vocabulary.pieces(ids)
    return [
        [name for name, owner in zip(names, owners, strict=True) if owner == word]
        for word in range(len(words))
    ]


def test_the_pieces_of_words_are_those_of_their_text(vocabulary):
    """A lone mark and what a ligature begins with belong to the word that they begin; fault 07 lost
    them."""
    words = ["Lea", ",", "7", "\ufb02uss", "½", "!"]
    for apart in (False, True):
        found = shown(vocabulary, words, "de", apart=apart)
        whole = ["".join(pieces).replace("<unk>", "*") for pieces in found]
        assert whole == ["▁Lea", "▁,", "▁*", "▁fluss", "▁*", "▁*"]
        assert [piece for pieces in found for piece in pieces] == vocabulary.pieces(
            vocabulary.encode(" ".join(words))
        )
        assert found[2] == found[5] == ["▁", "<unk>"]


def test_words_without_spaces_between_are_read_alone_or_as_they_stand(vocabulary):
    words = ["你", "喜欢", "我", "。"]
    joined = shown(vocabulary, words, "zh")
    assert [name for own in joined for name in own] == vocabulary.pieces(
        vocabulary.encode("你喜欢我。")
    )
    alone = shown(vocabulary, words, "zh", apart=True)
    assert alone == [vocabulary.pieces(vocabulary.encode(word)) for word in words]
    assert all(own[0].startswith("▁") for own in alone) and alone[1][0] == "▁"


def test_a_word_that_normalization_empties_is_unknown_and_takes_no_other_words_piece(vocabulary):
    """XTREME's script puts <unk>. As a text it has no piece, and the next word keeps its own."""
    words = ["Der", VANISHING, "Fluss"]
    assert vocabulary.encode(VANISHING) == []
    own = [vocabulary.pieces(vocabulary.encode(word)) for word in words]
    assert shown(vocabulary, words, "de", apart=True) == [own[0], ["<unk>"], own[2]]
    assert shown(vocabulary, words, "de") == [own[0], [], own[2]]
    assert shown(vocabulary, [VANISHING], "zh", apart=True, marks="xglue") == [["<unk>"]]
    assert shown(vocabulary, [], "de", apart=True) == []


def test_xglues_script_leaves_the_marks_of_chinese_and_thai_out(vocabulary):
    """microsoft/Unicoder, utils_ner.py: "▁" is taken out of every piece, those left empty go, the
    ids are of what is left; of th and zh alone."""
    words = ["你", "喜欢", "我", "。"]

    def theirs(word):
        bare = [name.replace("▁", "") for name in vocabulary.pieces(vocabulary.encode(word))]
        known = vocabulary.pieces(range(vocabulary.size))
        return [name if name in known else "<unk>" for name in bare if name]

    kept = shown(vocabulary, words, "zh", apart=True)
    found = shown(vocabulary, words, "zh", apart=True, marks="xglue")
    assert found == [theirs(word) for word in words] != kept
    assert found[1][0] != "▁" and not any("▁" in name for own in found for name in own)
    for language in ("de", "ja", "lo"):
        assert shown(vocabulary, words, language, apart=True, marks="xglue") == kept
    assert shown(vocabulary, words, "th", apart=True, marks="xglue") == found


@pytest.mark.parametrize(
    ("name", "marks", "unmarked"),
    [
        ("xglue/pos", None, True),
        ("xglue/pos", "kept", False),
        ("xtreme/udpos", None, False),
        ("xtreme/udpos", "xglue", True),
        ("applications/ud", None, False),
    ],
)
def test_each_benchmark_has_its_own_rule(name, marks, unmarked, vocabulary, monkeypatch):
    from xlingjax.data.labelled.records import Tagged
    from xlingjax.evaluation import tagging

    task, reading = task_named(name), Reading(length=9, marks=marks)
    sentence = Tagged(("喜欢", "。"), ("VERB", "PUNCT"))
    ids, owners = pieces_of_words(
        sentence.words, "zh", vocabulary, True, "xglue" if unmarked else "kept"
    )
    rows, _ = task_rows(task, [sentence], vocabulary, reading, "zh", 0)
    assert [piece for row in rows["input_ids"] for piece in row if piece not in (0, 1, 2)] == ids
    assert len(rows["input_ids"]) == 1
    firsts = [1.0 * (owners.index(word) == n) for n, word in enumerate(owners)]
    assert rows["tag_weights"][0, 1 : len(ids) + 1].tolist() == firsts
    read, predictions = [], "xlingjax.evaluation.task.predictions"

    def predicted(model, params, rows, **_):
        read.append(rows)
        return rows["tag_labels"]

    monkeypatch.setattr(tagging, "predict", predicted)
    monkeypatch.setattr(f"{predictions}.require_head", lambda *_: None)
    monkeypatch.setattr(f"{predictions}.language_index", lambda *_: 0)
    run = TrainedRun(None, {}, vocabulary, ("zh",))
    assert predict(run, task, [sentence], "zh", reading) == [["VERB", "PUNCT"]]
    # What was trained on is what is predicted.
    assert read[0]["input_ids"].tolist() == rows["input_ids"].tolist()
    assert len(tagged_parts([sentence], vocabulary, 9, "zh", marks="xglue")) == 1
