"""A WordPiece vocabulary: ids of transformers' BertTokenizer, from vocab.txt and from
tokenizer.json; SeqIO's too."""

import json

import numpy as np
import pytest

from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.convert.formats.tokenizer_json import tokenizer_files
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer import TokenizerVocabulary
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.errors import UserError

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

SPECIAL = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ODD = ("", " ", "  Das  Wasser\t!", "[MASK] and [SEP]", "e\u0301 É", "👨\u200d👩 x", "Wassers" * 30)
TEXTS = (*SENTENCES, *ODD)
ROLES = {"bos": "cls", "eos": "sep", "pad": "pad", "unk": "unk", "mask": "mask"}


@pytest.fixture(
    scope="module", params=[{}, {"do_lower_case": True}, {"tokenize_chinese_chars": False}], ids=str
)
def folder(request, tmp_path_factory):
    """vocab.txt: every character alone and going on, but one, and a few words."""
    path = tmp_path_factory.mktemp("bert")
    letters = sorted(
        {c for text in SENTENCES for c in text.lower() + text if not c.isspace()} - {"ქ", "z"}
    )
    going_on = [f"##{letter}" for letter in letters]
    pieces = [*SPECIAL, *letters, *going_on, "Wasser", "wasser", "##ers", "the", "The"]
    (path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": False, **request.param}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_the_ids_are_those_of_bert(folder, tmp_path):
    theirs = transformers.BertTokenizer.from_pretrained(folder)
    ours = Vocabulary.load(folder)
    theirs.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file() and not (tmp_path / "vocab.txt").is_file()
    saved = Vocabulary.load(tmp_path)
    for vocabulary in (ours, saved):
        assert isinstance(vocabulary, TokenizerVocabulary) and vocabulary.size == len(theirs)
        for own, role in ROLES.items():
            assert getattr(vocabulary, f"{own}_id") == getattr(theirs, f"{role}_token_id")
        for text in TEXTS:
            wanted = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            assert vocabulary.encode(text) == wanted, text
        wanted = [vocabulary.encode(text) for text in TEXTS]
        ids, lengths = vocabulary.encode_lines(TEXTS)
        assert ids.dtype == lengths.dtype == np.int32
        assert lengths.tolist() == [*map(len, wanted)] and ids.tolist() == sum(wanted, [])


def test_words_alone_are_those_of_is_split_into_words(folder):
    words = [word for text in SENTENCES for word in text.split()] + ["\u200b", "[MASK]", "Wassers"]
    theirs = transformers.BertTokenizer.from_pretrained(folder)
    vocabulary = Vocabulary.load(folder)
    alone = dict(is_split_into_words=True, add_special_tokens=False, split_special_tokens=True)
    given = theirs(words, **alone)
    ids, owners = pieces_of_words(words, "de", vocabulary, apart=True)
    nothing = len(words) - 3  # no piece of theirs, <unk> here
    assert nothing not in given.word_ids() and ids[owners.index(nothing)] == vocabulary.unk_id
    kept = [n for n, word in enumerate(owners) if word != nothing]
    assert [ids[n] for n in kept] == given.input_ids
    assert [owners[n] for n in kept] == given.word_ids()


def test_words_spans_and_text_again(folder):
    vocabulary = Vocabulary.load(folder)
    ids, spans = vocabulary.encode_with_spans("das Wassers 水?")
    assert ["das Wassers 水?"[a:b].lower() for a, b in spans] == [
        piece.removeprefix("##").lower() for piece in vocabulary.pieces(ids)
    ]
    begins = [vocabulary.begins_word()[i] for i in ids]
    assert [spans[i][0] for i, begin in enumerate(begins) if begin] == [0, 4, 12, 13]
    assert pieces_of_words(["das", "Wassers"], "de", vocabulary)[1] == [0, 0, 0, 1, 1]
    assert not any(vocabulary.begins_word()[i] for i in vocabulary.special_ids)
    framed = [vocabulary.bos_id, *ids, vocabulary.eos_id, vocabulary.pad_id]
    assert vocabulary.decode(framed).lower() == "das wassers 水?"
    with pytest.raises(UserError, match="outside the vocabulary"):
        vocabulary.pieces([vocabulary.size])


def test_its_files_for_transformers(folder, tmp_path):
    vocabulary = Vocabulary.load(folder)
    for name, content in tokenizer_files(vocabulary, 100).items():
        (tmp_path / name).write_bytes(content)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    bos, eos = vocabulary.bos_id, vocabulary.eos_id
    first, second = vocabulary.encode("Das Wasser"), vocabulary.encode("des Sees")
    assert theirs("Das Wasser", "des Sees")["input_ids"] == [bos, *first, eos, *second, eos]
    assert theirs.mask_token_id == vocabulary.mask_id and theirs.pad_token_id == vocabulary.pad_id


def test_a_moved_vocabulary_is_the_same(folder, tmp_path):
    vocabulary = Vocabulary.load(folder)
    for name, content in vocabulary.files().items():
        (tmp_path / name).write_bytes(content)
    again = Vocabulary.load(tmp_path)
    assert again == vocabulary and again.sha256 == vocabulary.sha256 and again.layout == "tokenizer"
    assert again.special_ids == vocabulary.special_ids and again.mask_id in again.special_ids
    told = json.loads((tmp_path / "vocab.json").read_text())
    told["special"]["mask"] = "[unused1]"
    (tmp_path / "vocab.json").write_text(json.dumps(told))
    other = Vocabulary.load(tmp_path)
    assert other.mask_id == 1 and other != vocabulary


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda told: told["model"].update(type="WordLevel"), "holds a WordLevel model"),
        (lambda told: told["model"].pop("vocab"), "cannot be read"),
        (lambda told: told["model"]["vocab"].pop("the"), "have gaps or stand twice"),
    ],
)
def test_what_is_no_wordpiece_is_refused(change, words, folder, tmp_path):
    told = json.loads(Vocabulary.load(folder).content)
    change(told)
    (tmp_path / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match=words):
        Vocabulary.load(tmp_path)


def test_special_pieces_and_the_folding_of_case_are_said_by_the_folder(folder, tmp_path):
    text = (folder / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(text)
    with pytest.raises(UserError, match="do_lower_case"):
        Vocabulary.load(tmp_path)
    (tmp_path / "vocab.txt").write_text(text.replace("[MASK]\n", "mask\n"))
    with pytest.raises(UserError, match=r"no piece '\[MASK\]'"):
        Vocabulary.load(tmp_path)
