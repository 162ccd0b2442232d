import json

import numpy as np
import pytest
import sentencepiece

from xlingjax.data.seqio.vocabulary import SeqioVocabulary
from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary.sentencepiece import XLM_SPECIAL_PIECES, Vocabulary
from xlingjax.data.vocabulary.training import (
    _sample,
    format_report,
    sentences_of,
    train_vocabulary,
    vocabulary_report,
)
from xlingjax.errors import UserError

SENTENCES = [
    "The dog sleeps in the house.",
    "Die Katze trinkt Milch.",
    "Дети играют в саду.",
    "狗在房子里睡觉。",
]


def test_xlm_layout_has_xlms_special_ids(vocabulary):
    assert vocabulary.layout == "xlm" and vocabulary.size == 220
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id) == (1, 1, 2)
    assert (vocabulary.unk_id, vocabulary.mask_id) == (3, 5)
    assert vocabulary.special_ids == frozenset(range(14))
    wanted = [*XLM_SPECIAL_PIECES]
    wanted[5] = "<mask>"
    assert vocabulary.pieces(range(14)) == wanted


def test_sentinels_are_special_tokens_behind_xlms(corpus, tmp_path):
    """SentencePiece's own control symbols: in a text they are cut up like other words."""
    train_vocabulary(tmp_path, mono=str(corpus / "mono/*/*.txt"), size=260, sentinels=40)
    vocabulary = Vocabulary.load(tmp_path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "vocab.model"))
    assert vocabulary.size == 260 and vocabulary.special_ids == frozenset(range(54))
    assert vocabulary.pieces([13, 14, 53]) == ["<special9>", "<special10>", "<special49>"]
    assert all(processor.is_control(i) for i in range(14, 54)) and not processor.is_control(54)
    assert min(vocabulary.encode("<special10> the dog")) > 2
    assert not {*vocabulary.encode("<special10> the dog")} & {*range(4, 54)}
    dog = processor.encode("dog")
    assert vocabulary.decode([14, *dog, 53]) == processor.decode(dog)


def test_xlmr_ids_are_sentencepiece_ids_plus_one(xlmr_model):
    # Another program's.
    xlmr_model.with_name("vocab.json").write_text('{"layout": 39786, "the": 5}')
    vocabulary = Vocabulary.load(xlmr_model)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(xlmr_model))
    assert vocabulary.layout == "xlmr" and vocabulary.size == 202
    roles = vocabulary.bos_id, vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id
    assert roles == (0, 1, 2, 3)
    assert vocabulary.mask_id == 201 and vocabulary.special_ids == {0, 1, 2, 3, 201}
    assert vocabulary.pieces([0, 1, 2, 3, 201]) == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    for sentence in SENTENCES:
        assert vocabulary.encode(sentence) == [i + 1 for i in processor.encode(sentence)]
    # spm 3 is the first true piece and becomes 4; an unknown character (spm 0) becomes 3, not 1.
    assert vocabulary.pieces([4]) == [processor.id_to_piece(3)]
    assert vocabulary.encode("Ω")[-1] == 3
    assert vocabulary.pieces([200]) == [processor.id_to_piece(199)]


@pytest.mark.parametrize("which", ["xlm", "xlmr"])
def test_round_trips(which, vocabulary, xlmr_model):
    chosen = vocabulary if which == "xlm" else Vocabulary.load(xlmr_model)
    for sentence in SENTENCES:
        ids = chosen.encode(sentence)
        wrapped = [chosen.bos_id, *ids, chosen.eos_id, chosen.pad_id, chosen.mask_id]
        # SentencePiece normalises full-width punctuation: what it says of its own encoding.
        theirs = chosen._processor
        assert chosen.decode(wrapped) == theirs.decode(theirs.encode(sentence))
        assert "".join(chosen.pieces(ids)).replace("▁", " ").strip() == chosen.decode(ids)
    flat, lengths = chosen.encode_lines([*SENTENCES, ""])
    wanted = [chosen.encode(sentence) for sentence in SENTENCES]
    assert flat.dtype == np.int32 and lengths.tolist() == [*map(len, wanted), 0]
    assert flat.tolist() == sum(wanted, [])
    assert chosen.encode("") == []


def test_special_names_in_text_are_ordinary_text(vocabulary):
    assert not set(vocabulary.encode("</s> <special1> <pad>")) & (
        vocabulary.special_ids - {vocabulary.unk_id}
    )


def test_seqio_adapter_gives_the_same_ids_inside_tensorflow(vocabulary, xlmr_model):
    import tensorflow as tf

    for chosen in (vocabulary, Vocabulary.load(xlmr_model)):
        adapter, texts = SeqioVocabulary(chosen), [*SENTENCES, "Ω x"]
        assert adapter.vocab_size == chosen.size
        assert (adapter.pad_id, adapter.eos_id) == (chosen.pad_id, chosen.eos_id)
        data = tf.data.Dataset.from_tensor_slices(texts).map(adapter.encode_tf)
        wanted = [chosen.encode(text) for text in texts]
        assert [ids.tolist() for ids in data.as_numpy_iterator()] == wanted
        assert adapter.encode(texts[0]) == wanted[0] and adapter == SeqioVocabulary(chosen)
        assert adapter.decode_tf(tf.constant(wanted[0])).numpy().decode() == texts[0]
    assert SeqioVocabulary(vocabulary) != SeqioVocabulary(Vocabulary.load(xlmr_model))


def test_training_is_deterministic_and_the_seed_matters(corpus, tmp_path):
    def make(name, **options):
        pattern = str(corpus / "mono/*/*.txt")
        return train_vocabulary(
            tmp_path / name, mono=pattern, size=200, sentences=60, threads=1, **options
        ).sha256

    assert make("a") == make("b")
    assert make("a") != make("c", seed=1)


def test_smoothed_sample_shares(corpus, vocabulary_folder):
    report = json.loads((vocabulary_folder / "vocab.json").read_text())
    sentences = {"de": 96, "en": 96, "ru": 60, "zh": 36}
    assert {code: row["sentences"] for code, row in report["languages"].items()} == sentences
    weights = {code: (n / 288) ** 0.5 for code, n in sentences.items()}
    for code, wanted in report["sampled_sentences"].items():
        assert wanted == round(288 * weights[code] / sum(weights.values()))
    assert report["sampled_sentences"]["zh"] > 36  # repeats


def test_a_sample_takes_every_sentence_equally_often_give_or_take_one():
    class Lines:
        path = "x.txt"

        def lines(self):
            return iter(["a", "", "b", "c"])

    for wanted, times in ((2, {0, 1}), (3, {1}), (7, {2, 3})):
        drawn = list(_sample([Lines()], 3, wanted, np.random.default_rng(0)))
        assert len(drawn) == wanted and drawn == sorted(drawn)
        assert {drawn.count(x) for x in "abc"} == times


def test_report_figures(vocabulary, tmp_path):
    path = tmp_path / "en.txt"
    path.write_text("The dog Ω sleeps.\n\nThe cat.\n", encoding="utf-8")
    from xlingjax.data.text.sources import find_text

    row = vocabulary_report(vocabulary, {"en": find_text(str(path))})["en"]
    ids = vocabulary.encode("The dog Ω sleeps.") + vocabulary.encode("The cat.")
    assert row["sentences"] == 2 and row["pieces"] == len(set(ids))
    assert row["unknown_rate"] == pytest.approx(1 / len(ids), abs=1e-6)
    assert row["fertility"] == pytest.approx(len(ids) / 6, abs=1e-4)
    assert row["pieces_per_character"] == pytest.approx(len(ids) / 21, abs=1e-4)
    assert "en" in format_report({"en": row}).splitlines()[1]


def test_byte_fallback_leaves_nothing_unknown(corpus, tmp_path):
    english = str(corpus / "mono/en/*.txt")
    vocabulary = train_vocabulary(tmp_path, mono=english, size=340, byte_fallback=True, threads=1)
    assert vocabulary.unk_id not in vocabulary.encode("Ωß狗")
    assert vocabulary.decode(vocabulary.encode("Ω狗")) == "Ω狗"


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_text_too_small_for_the_size_gives_the_largest_that_it_has(
    model_type, corpus, tmp_path, capsys
):
    """One piece more is what SentencePiece refuses, and the largest is what that size gives."""
    from xlingjax.cli.main import main

    given = ["--mono", str(corpus / "mono/en/*.txt"), "--model-type", model_type]
    assert main(["vocab", *given, "--size", "5000", "--to", str(tmp_path / "most")]) == 0
    size = Vocabulary.load(tmp_path / "most").size
    assert 50 < size < 5000
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith(f"most: {size} pieces of at most 5000")
    assert main(["vocab", *given, "--size", str(size), "--to", str(tmp_path / "same")]) == 0
    assert "as many as" not in capsys.readouterr().out
    most, same = ((tmp_path / name / "vocab.model").read_bytes() for name in ("most", "same"))
    assert most == same
    lines = [line for path in (corpus / "mono/en").glob("*.txt") for line in path.open()]
    with pytest.raises(RuntimeError, match=f"<= {size}"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(tmp_path / "x"), vocab_size=size + 1,
            model_type=model_type, bos_id=0, eos_id=1, pad_id=2, unk_id=3, minloglevel=2,
            control_symbols=XLM_SPECIAL_PIECES[4:],
        )  # fmt: skip


def test_clear_errors(corpus, vocabulary_folder, xlmr_model, tmp_path):
    def train(mono=str(corpus / "mono/en/*.txt"), **options):
        return train_vocabulary(tmp_path, mono=mono, **options)

    empty = tmp_path / "de.txt"
    empty.write_text("\n\n")
    for call, message in (
        (lambda: train(size=20), "20 pieces cannot hold the characters"),
        (lambda: train(model_type="word"), "model_type 'word'"),
        (lambda: train(str(empty)), "empty corpus.*'de'.*de.txt"),
        (lambda: Vocabulary.load(tmp_path / "none.model"), "cannot read the vocabulary .*none.mod"),
        (lambda: Vocabulary.load(empty), "de.txt is not a SentencePiece model"),
        (lambda: Vocabulary.load(xlmr_model, "xlm"), "does not begin with the pieces of layout"),
        (
            lambda: Vocabulary.load(vocabulary_folder / "vocab.model", "xlmr"),
            "needs a SentencePiece model with unk",
        ),
        (lambda: Vocabulary.load(xlmr_model, "bert"), "layout 'bert'"),
        (lambda: Vocabulary.load(vocabulary_folder).pieces([220]), "id 220 is outside the vocab"),
    ):
        with pytest.raises(UserError, match=message):
            call()


def test_lines_that_are_too_long_for_sentencepiece_are_cut(tmp_path):
    text = "他在河边看书。火车明天早上到南京。" * 1200
    (tmp_path / "a.zh.txt").write_text(f"{text}\n" + "ab " * 6000 + "\n")
    parts = list(sentences_of([Text(tmp_path / "a.zh.txt", "zh")]))
    chinese = [part for part in parts if "a" not in part]
    assert "".join(chinese) == text and max(map(len, parts)) <= 2048
    assert {*" ".join(parts[len(chinese) :]).split()} == {"ab"}
    vocabulary = train_vocabulary(tmp_path / "v", mono=f"zh={tmp_path}/a.zh.txt", size=50)
    assert any("南京" in piece for piece in vocabulary.pieces(range(vocabulary.size)))


def test_pairs_of_unequal_lengths_teach_no_vocabulary(tmp_path):
    (tmp_path / "de-en.de").write_text("ja\n" * 3)
    (tmp_path / "de-en.en").write_text("yes\n")
    with pytest.raises(UserError, match="parallel files differ in length: .* has 3 lines, .* 1"):
        train_vocabulary(tmp_path / "v", parallel=str(tmp_path), size=40)


def test_a_piece_that_is_not_utf8_is_no_model(vocabulary_folder, tmp_path):
    content = (vocabulary_folder / "vocab.model").read_bytes()
    (tmp_path / "vocab.model").write_bytes(content.replace("▁".encode(), b"\xe2\x96\x00"))
    with pytest.raises(UserError, match="vocab.model is not a SentencePiece model"):
        Vocabulary.load(tmp_path)
