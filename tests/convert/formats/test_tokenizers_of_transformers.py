"""Every tokenizer that transformers writes is read with the ids that AutoTokenizer gives there."""

import base64
import functools
import json
import unicodedata

import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import ByteLevelBPETokenizer

from tests.helpers import released, small_xlmr
from xlingjax.convert.formats.hugging_face import vocabulary_of
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.convert.formats.tokenizer_json import tokenizer_files
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer import TokenizerVocabulary
from xlingjax.data.vocabulary.tokenizer_files import BERT
from xlingjax.errors import UserError
from xlingjax.preprocessors.finetuning import joined, pair_rows

transformers = pytest.importorskip("transformers")

TEXTS = (
    *small_xlmr.ODD,
    "q\u0301 e\u0301\u0302 ê\u0301 ①\u0301 Ａ\u0301 ¼\ufe0f ㏄\u0301",
    *{unicodedata.normalize(form, text) for text in SENTENCES for form in ("NFC", "NFD", "NFKC")},
)
SPECIAL = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
TO_MARKERS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}
LOWER, NFKC = {"type": "Lowercase"}, {"type": "NFKC"}
METASPACE = {"type": "Metaspace", "replacement": "▁"}
ALWAYS = {**METASPACE, "prepend_scheme": "always", "split": True}
SPLIT = {"type": "WhitespaceSplit"}
TABLE = "the table of the SentencePiece model"
# (normalizers, pre-tokenizers): what transformers 4 and 5 write for XLM-R, mBART, ALBERT, DeBERTa
# and continued ones.
SHAPES = {
    "e5": ([TABLE, SPACES], [{**METASPACE, "add_prefix_space": True}]),
    "transformers 4": ([TABLE], [SPLIT, {**METASPACE, "add_prefix_space": True}]),
    "transformers 5": ([TABLE], [SPLIT, ALWAYS]),
    "bge": ([TABLE, STRIP, TO_MARKERS], [ALWAYS]),
    "first": ([TABLE, SPACES], [{**ALWAYS, "prepend_scheme": "first"}]),
    "never": ([NFKC, SPACES], [{**ALWAYS, "prepend_scheme": "never"}]),
    "whole": ([LOWER, TABLE, SPACES], [{**ALWAYS, "split": False}]),
    "lower case last": ([NFKC, STRIP, LOWER], [SPLIT, ALWAYS]),
}


@functools.cache
def sentencepiece_proto():
    return ModelProto.FromString(small_xlmr.sentencepiece_model(size=420))


def unigram_file(normalizers, pre_tokenizers):
    """The content of a tokenizer.json as released ones are: `<mask>` last, the template of
    XLM-R."""
    proto = sentencepiece_proto()
    table = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    steps = [
        {"type": "Precompiled", "precompiled_charsmap": table} if step is TABLE else step
        for step in normalizers
    ]
    pieces = (piece.piece for piece in proto.pieces[3:])
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"]
    scores = [0.0] * 4 + [piece.score for piece in proto.pieces[3:]] + [0.0]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    flags["special"] = True
    special = [*range(4), len(names) - 1]
    token = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in ("<s>", "</s>")}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": names[i], **flags} for i in special],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token["<s>"], first, token["</s>"]],
            "pair": [token["<s>"], first, token["</s>"], token["</s>"], second, token["</s>"]],
            "special_tokens": {
                name: {"id": name, "ids": [names.index(name)], "tokens": [name]}
                for name in ("<s>", "</s>")
            },
        },
        "decoder": pre_tokenizers[-1],
        "model": {
            "type": "Unigram",
            "unk_id": 3,
            "vocab": [list(pair) for pair in zip(names, scores, strict=True)],
        },
    }


def folder_of(path, told, kind):
    (path / "tokenizer.json").write_text(json.dumps(told), encoding="utf-8")
    config = {f"{role}_token": token for role, token in SPECIAL.items()}
    config["tokenizer_class"] = kind
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def assert_ids_are(vocabulary, theirs, texts=TEXTS):
    """Without and with what stands around one text and a pair."""
    ids, lengths = vocabulary.encode_lines(texts)
    wanted = [
        theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        for text in texts
    ]
    ends = lengths.cumsum()
    found = [ids[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]
    assert [text for text, a, b in zip(texts, found, wanted, strict=True) if a != b] == []
    pair = theirs("Das Wasser", "des Sees")["input_ids"]
    texts = (joined([vocabulary.encode(text)]) for text in ("Das Wasser", "des Sees"))
    assert pair_rows(*texts, vocabulary, len(pair))["input_ids"].tolist() == [pair]
    # transformers finds those that are pieces of a Unigram model.
    of_text = {*vocabulary.encode("<mask> hello </s><s> <pad>")}
    assert of_text and not of_text & (vocabulary.special_ids - {vocabulary.unk_id})
    for role in ("pad", "unk", "mask"):
        assert getattr(vocabulary, f"{role}_id") == getattr(theirs, f"{role}_token_id")


@pytest.mark.parametrize("shape", SHAPES)
def test_unigram_of_every_shape(shape, tmp_path):
    kind = "XLMRobertaTokenizer" if shape == "e5" else "PreTrainedTokenizerFast"
    folder = folder_of(tmp_path, unigram_file(*SHAPES[shape]), kind)
    vocabulary = vocabulary_of(folder)
    assert isinstance(vocabulary, TokenizerVocabulary)
    assert_ids_are(vocabulary, transformers.AutoTokenizer.from_pretrained(folder))


def test_tokens_that_were_added_to_the_pieces(tmp_path):
    """Beside sentencepiece.bpe.model, which cannot say them: they are one id, and the model's own
    stays for others."""
    proto = sentencepiece_proto()
    (tmp_path / "sentencepiece.bpe.model").write_bytes(proto.SerializeToString())
    told = unigram_file(*SHAPES["transformers 5"])
    folder = folder_of(tmp_path, told, "XLMRobertaTokenizer")
    assert type(vocabulary_of(folder)) is Vocabulary
    url = {"id": len(told["model"]["vocab"]), "content": "<url>", "special": False}
    told["added_tokens"].append({**told["added_tokens"][0], **url})
    vocabulary = vocabulary_of(folder_of(tmp_path, told, "XLMRobertaTokenizer"))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    text = "Das <url> Wasser"
    assert vocabulary.size == len(theirs) and vocabulary.size - 1 in vocabulary.encode(text)
    assert_ids_are(vocabulary, theirs, (*TEXTS, text))


def test_words_that_a_slow_tokenizer_saved_beside_its_pieces(tmp_path, byte_level):
    """XLM-R's, BERT's and RoBERTa's: one id each, as transformers reads them."""
    words = ("ferrofluid", "ICD-10")
    folders = [tmp_path / name for name in ("xlm-roberta", "bert", "roberta")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "sentencepiece.bpe.model").write_bytes(sentencepiece_proto().SerializeToString())
    pieces = [*BERT.values(), *"abcdefimrultoy", "##lu", "new", "is"]
    (folders[1] / "vocab.txt").write_text("\n".join(pieces))
    byte_level.save_model(str(folders[2]))
    kinds = ("XLMRobertaTokenizer", "BertTokenizer", "RobertaTokenizer")
    for folder, kind in zip(folders, kinds, strict=True):
        config = {"tokenizer_class": kind, "do_lower_case": False}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        (folder / "config.json").write_text(json.dumps({"model_type": folder.name}))
        size = vocabulary_of(folder, folder.name).size
        added = {word: size + i for i, word in enumerate(words)}
        (folder / "added_tokens.json").write_text(json.dumps(added))
        vocabulary = vocabulary_of(folder, folder.name)
        text = "The ferrofluid is new ICD-10 too"
        found = vocabulary.encode(text)
        assert {*added.values()} <= {*found} and vocabulary.size == size + 2
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        assert theirs(text, add_special_tokens=False)["input_ids"] == found
        # An export of it is the same tokenizer.
        files = tokenizer_files(vocabulary, 512)
        assert "ferrofluid" in files["tokenizer.json"].decode()
    (folders[0] / "added_tokens.json").write_text(json.dumps({"ferrofluid": 7}))
    with pytest.raises(UserError, match="the word 'ferrofluid' was added under another id"):
        vocabulary_of(folders[0])


@pytest.fixture(scope="module")
def byte_level():
    made = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator(
        SENTENCES * 4, vocab_size=600, special_tokens=special, show_progress=False
    )
    return made


@pytest.mark.parametrize(
    "kind, model_type", [("RobertaTokenizer", "roberta"), ("BartTokenizer", "bart")]
)
def test_byte_level_bpe_of_vocab_and_merges(kind, model_type, byte_level, tmp_path):
    byte_level.save_model(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = vocabulary_of(tmp_path, model_type)
    assert_ids_are(vocabulary, theirs)
    ids = vocabulary.encode("The water 水")
    assert vocabulary.decode(ids) == "The water 水"
    # The first word has no space before it.
    assert [vocabulary.begins_word()[i] for i in ids].count(True) == 2
    saved = tmp_path / "saved"
    theirs.save_pretrained(saved)
    assert not (saved / "merges.txt").is_file()
    assert_ids_are(vocabulary_of(saved, model_type), theirs)


@pytest.mark.parametrize("shape", ["e5", "whole"])
def test_exported_and_moved_it_is_the_same(shape, tmp_path):
    (tmp_path / "theirs").mkdir(), (tmp_path / "moved").mkdir()
    vocabulary = vocabulary_of(
        folder_of(tmp_path / "theirs", unigram_file(*SHAPES[shape]), "XLMRobertaTokenizer")
    )
    for name, content in vocabulary.files().items():
        (tmp_path / "moved" / name).write_bytes(content)
    assert Vocabulary.load(tmp_path / "moved") == vocabulary
    for name, content in tokenizer_files(vocabulary, 100).items():
        (tmp_path / name).write_bytes(content)
    assert_ids_are(vocabulary, transformers.AutoTokenizer.from_pretrained(tmp_path))


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda told: told.update(pre_tokenizer=None, decoder=None), "where words begin"),
        (lambda told: told.pop("model"), "cannot be read"),
    ],
)
def test_what_is_not_understood_is_refused(change, words, tmp_path):
    told = unigram_file(*SHAPES["e5"])
    change(told)
    with pytest.raises(UserError, match=words) as caught:
        vocabulary_of(folder_of(tmp_path, told, "PreTrainedTokenizerFast"))
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.long
@released.needs_released
@released.needs_data
def test_a_released_tokenizer_on_real_sentences():
    """XLM-R's 250,002 pieces, from multilingual-e5-small's tokenizer.json; 15 languages, 10 scripts
    and more in TEXTS."""
    vocabulary = vocabulary_of(released.FOLDER)
    theirs = transformers.AutoTokenizer.from_pretrained(released.FOLDER)
    texts = [*released.sentences(700), *TEXTS]
    assert len(texts) > 10_000 and vocabulary.size == 250_002
    wanted = theirs(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    ids, lengths = vocabulary.encode_lines(texts)
    assert ids.tolist() == [i for row in wanted for i in row]
    assert lengths.tolist() == [len(row) for row in wanted]
