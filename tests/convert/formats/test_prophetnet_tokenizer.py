"""ProphetNet's vocabularies: XLM-ProphetNet's is a SentencePiece model, the English one
WordPiece."""

import json

import jax
import numpy as np
import pytest

from tests.helpers.foreign_params import params_of
from xlingjax.cli.main import main
from xlingjax.convert.formats.hugging_face import vocabulary_of
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.convert.formats.prophetnet import CROSS_LINGUAL
from xlingjax.convert.formats.tokenizer_json import tokenizer_json
from xlingjax.data.vocabulary.tokenizer_files import PROPHETNET

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import imported_folders, small_xlmr  # noqa: E402

BEGIN = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *(f"[unused{i}]" for i in range(10))]


@pytest.fixture
def short(monkeypatch):
    """Their decoder takes a piece at a time."""
    monkeypatch.setattr("xlingjax.convert.formats.parity.SENTENCES", SENTENCES[9:11])


def model(path, rows, **changes):
    sizes = dict(hidden_size=24, max_position_embeddings=100, ngram=2)
    for side in ("encoder", "decoder"):
        sizes |= {f"num_{side}_layers": 1, f"num_{side}_attention_heads": 4, f"{side}_ffn_dim": 40}
    config = transformers.ProphetNetConfig(vocab_size=rows, **sizes, **changes)
    made = foreign.randomised(transformers.ProphetNetForConditionalGeneration(config))
    made.save_pretrained(path)


@pytest.fixture(scope="module")
def cross_lingual(tmp_path_factory):
    path = tmp_path_factory.mktemp("xprophetnet")
    pieces = small_xlmr.tokenizer_model(path)
    (path / "sentencepiece.bpe.model").rename(path / PROPHETNET)
    model(path, pieces + 12)
    foreign.changed(
        model_type=CROSS_LINGUAL, architectures=["XLMProphetNetForConditionalGeneration"]
    )(path)
    return path


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    path = tmp_path_factory.mktemp("english") / "hf"
    imported_folders.prophetnet(path)
    return path


def test_ids_of_xlm_prophetnet_are_those_of_its_tokenizer(cross_lingual):
    """XLMProphetNetTokenizer of transformers 4: `PieceToId(piece) + 12`, [UNK] for what has no
    piece."""
    import sentencepiece

    vocabulary = vocabulary_of(cross_lingual, CROSS_LINGUAL)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(cross_lingual / PROPHETNET))
    unknown = 0
    odd = ("a\tb\u00a0c\u3000d", "ｆｕｌｌ", "a snowman ☃ here", "[SEP] <s>")
    for text in (*SENTENCES, "  two  spaces ", "", " ", *odd):
        found = processor.encode(text)
        unknown += 0 in found
        assert vocabulary.encode(text) == [i + 12 if i else 3 for i in found]
        ids, lengths = vocabulary.encode_lines([text])
        assert ids.tolist() == vocabulary.encode(text) and lengths.tolist() == [len(ids)]
    assert unknown and vocabulary.pieces(range(15)) == BEGIN
    roles = ("pad", "bos", "eos", "unk", "mask")
    assert [getattr(vocabulary, f"{role}_id") for role in roles] == [0, 1, 2, 3, 4]
    assert vocabulary.size == len(processor) + 12 and vocabulary.special_ids == {*range(15)}
    assert vocabulary.pieces([15, vocabulary.size - 1]) == processor.id_to_piece(
        [3, len(processor) - 1]
    )
    text = "The water of the lake"
    assert vocabulary.decode([1, *vocabulary.encode(text), 2, 0]) == text


def test_xlm_prophetnet_is_imported_and_keeps_its_layout(short, cross_lingual, tmp_path, capsys):
    """Transformers 5 has its model, under another name, and not its tokenizer."""
    from xlingjax.inference.run import open_run

    assert main(["import", str(cross_lingual), "--to", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "logits of the next piece: largest difference" in told
    assert "no tokenizer of transformers" in told
    opened = open_run(tmp_path / "run")
    jax.tree.map(np.testing.assert_array_equal, opened.params, params_of(cross_lingual).params)
    wanted = vocabulary_of(cross_lingual, CROSS_LINGUAL)
    assert opened.vocabulary == wanted and opened.vocabulary.layout == "xprophetnet"
    assert opened.vocabulary.encode(SENTENCES[2]) == wanted.encode(SENTENCES[2])


def test_its_tokenizer_json_has_the_same_ids(cross_lingual):
    from tokenizers import Tokenizer

    vocabulary = vocabulary_of(cross_lingual, CROSS_LINGUAL)
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(vocabulary)))
    for sentence in SENTENCES:
        assert tokenizer.encode(sentence).ids == [1, *vocabulary.encode(sentence), 2]


def test_english_prophetnet_is_word_piece(short, english, tmp_path, capsys):
    tokenizer = transformers.ProphetNetTokenizer.from_pretrained(english)
    vocabulary = vocabulary_of(english, "prophetnet")
    for text in (*SENTENCES, " The  WATER,\tof thé lake\u3000"):
        assert vocabulary.encode(text) == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert main(["import", str(english), "--to", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "logits of the next piece: largest difference" in told and "no tokenizer" not in told
