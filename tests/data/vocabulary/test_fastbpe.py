"""XLM's byte pair codes: the ids are those of transformers' XLMTokenizer, of the files of either
program."""

import json

import numpy as np
import pytest

from tests.helpers import small_fastbpe
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.data.vocabulary.fastbpe import FastBpeVocabulary, aligned
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.errors import UserError

transformers = pytest.importorskip("transformers")

SCRIPTS = (
    "Das Wasser — „kalt“!", "ВОДА в озере, не правда ли?", "Νερό ΛΊΜΝΗΣ", "ماء البحيرة",
    "المים באגם", "झील का पानी", "হ্রদের জল", "ஏரியின் நீர்", "น้ำในทะเลสาบ", "今天早上，湖里的水。很冷",
    "湖の水が", "호수의 물이", "ტბის წყალი", "լճի ջուրը", "የሐይቁ ውሃ",
    "  the\u00a0 lake \t is\u3000cold\u200b ", "lake\u0301 e\u0301 é Ｗａｔｅｒ ﬁn ①２ ½",
    "\U0001f468\u200d\U0001f469 it's…isn't", "Mr. U.S. lake... 3,000.5 5\u00a05 % <s> x@y.de",
)  # fmt: skip
TEXTS = (
    *SENTENCES, *SCRIPTS, "", " ", "\u00a0", "\u0301", ".", "..", "\u00e9",
    "\u1e9b\u0323 \u212b \uf900", "\ufb2a \u0958", "\u1f82", "Σίσυφος ΣΑΣ. ΟΔΟΣ",
    "İstanbul straße DŽ", "``quoted'' \",\". ,", "(a ) %5 %", "nº\u00a05 «\u00a0x\u00a0»",
    "a\tb\r\nc\u2028d\x85e", "\ufeffa\u00adb\u200cc", "🇩🇪 1️⃣ 👍🏽", "\U0001fae8",
    "가각 \u1100\u1161", "http://a.b/c_d @x #y", "e.g. p. 5 vs. No. 7", "l'eau d'oc 's",
    "日本語（全角）【】「」～…", "<special1> </s> </w>", "lakes" * 40,
)  # fmt: skip


@pytest.fixture(scope="module", params=[True, False], ids=["lower", "cased"])
def folder(request, tmp_path_factory):
    """Some pieces of the merges are not in the vocabulary: those with a q or a \u10da."""
    path = tmp_path_factory.mktemp("fastbpe")
    small_fastbpe.write(path, (*SENTENCES, *SCRIPTS), fold=request.param, without="q\u10da")
    return path


@pytest.fixture(scope="module")
def vocabulary(folder):
    return Vocabulary.load(folder)


def theirs_of(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer).__name__ == "XLMTokenizer"
    return tokenizer


def test_the_ids_are_those_of_xlm(folder, vocabulary):
    theirs = theirs_of(folder)
    assert vocabulary.size == len(theirs) and vocabulary.layout == "xlm"
    assert vocabulary.eos_id == vocabulary.bos_id == theirs.sep_token_id == theirs.cls_token_id == 1
    for role in ("pad", "unk", "mask"):
        assert getattr(vocabulary, f"{role}_id") == getattr(theirs, f"{role}_token_id")
    for text in TEXTS:
        wanted = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert vocabulary.encode(text) == wanted, text
    known = [i for text in TEXTS for i in vocabulary.encode(text)]
    assert known.count(vocabulary.unk_id) < len(known) / 4
    ids, lengths = vocabulary.encode_lines(TEXTS)
    assert ids.tolist() == known and ids.dtype == lengths.dtype == np.int32
    assert lengths.tolist() == [len(vocabulary.encode(text)) for text in TEXTS]


def test_text_again_is_theirs(folder, vocabulary):
    theirs = theirs_of(folder)
    for text in TEXTS:
        ids = vocabulary.encode(text)
        wanted = theirs.convert_tokens_to_string(theirs.convert_ids_to_tokens(ids))
        assert vocabulary.decode([1, *ids, 1, 2]) == wanted


def test_a_merge_is_made_everywhere_before_the_next():
    """fastBPE and transformers; the `tokenizers` library makes `abca bc d` of it."""
    merges = [("b", "c"), ("abc", "a"), ("a", "bc")]
    pieces = [*small_fastbpe.XLM_SPECIAL_PIECES, "abc", "d</w>", "abca", "bc"]
    vocabulary = FastBpeVocabulary({piece: i for i, piece in enumerate(pieces)}, merges, False)
    assert vocabulary.pieces(vocabulary.encode("abcabcd")) == ["abc", "abc", "d</w>"]


def test_the_files_of_xlms_own_code_give_the_same(folder, vocabulary, tmp_path):
    for name in ("codes", "vocab"):
        (tmp_path / f"{name}_xnli_15").write_bytes((folder / name).read_bytes())
    (tmp_path / "vocab.model").write_bytes(b"of another program")
    own = FastBpeVocabulary.of_xlm(tmp_path)
    assert own == vocabulary and own.lowercase == vocabulary.lowercase
    lines = (folder / "vocab").read_text().split("\n")
    # Lines that XLM's code passes over: of one cell, of three, of a piece seen before, with U+2028.
    more = [lines[0], "alone", "a b 3", lines[0], "\u2028x 5", *lines[1:]]
    (tmp_path / "vocab_xnli_15").write_text("\n".join(more))
    assert FastBpeVocabulary.of_xlm(tmp_path) == vocabulary
    words = [*small_fastbpe.XLM_SPECIAL_PIECES, *(line.split()[0] for line in lines if line)]
    (tmp_path / "vocab_xnli_15").unlink()
    assert FastBpeVocabulary.of_xlm(tmp_path, words) == vocabulary
    assert FastBpeVocabulary.of_xlm(tmp_path / "nothing") is None


def test_spans_are_of_the_text_as_it_was_written(vocabulary):
    text = "  Das “Wasser” … des\u00a0Sees,\tisn't “kalt”, "
    ids, spans = vocabulary.encode_with_spans(text)
    assert ids == vocabulary.encode(text)
    words, begins = [], True
    for i, (begin, end) in zip(ids, spans, strict=True):
        if begins:
            words.append((begin, end))
        words[-1] = words[-1][0], end
        begins = vocabulary.begins_word()[i]
    # `”,` becomes `,"`: the comma is where it was not, and stands for nothing.
    cut = [text[begin:end] for begin, end in words]
    assert cut == [
        *["Das", "“", "Wasser", "”", "…", "des", "Sees", ",", "isn", "'t", "“", "kalt", "", "”"]
    ]
    for text in TEXTS:
        ids, spans = vocabulary.encode_with_spans(text)
        assert ids == vocabulary.encode(text) and all(0 <= a <= b <= len(text) for a, b in spans)


def test_words_alone_are_those_of_is_split_into_words(vocabulary, tmp_path):
    """Moses's rules of a text cut "x .", but a full stop alone is one word; transformers reads word
    by word."""
    for name, content in vocabulary.files().items():
        (tmp_path / name).write_bytes(content)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    words = [word for word in " ".join(TEXTS).split() if "<" not in word]
    words += ["isn't", "``", "''", '"', "Herr.", "."]
    ids, owners = pieces_of_words(words, "de", vocabulary, apart=True)
    for n, word in enumerate(words):
        own = [i for i, owner in zip(ids, owners, strict=True) if owner == n]
        wanted = theirs([word], is_split_into_words=True, add_special_tokens=False).input_ids
        # A word that they make nothing of, an accent alone, is <unk> here.
        assert own == (wanted or [vocabulary.unk_id]), word
    assert ids != vocabulary.encode(" ".join(words))


def test_what_is_rewritten_is_aligned_by_what_is_not():
    alone = {"…": "...", " ": ""}
    assert aligned("a… b", "a...b", lambda c: alone.get(c, c)) == [(0, 1), *[(1, 2)] * 3, (3, 4)]
    assert aligned("a''b", 'a"b', lambda c: c) == [(0, 1), (1, 3), (3, 4)]
    assert aligned("a5 6", "a5,6", lambda c: alone.get(c, c)) == [(0, 1), (1, 2), (3, 3), (3, 4)]
    assert aligned("ab", "abc", lambda c: c)[-1] == (2, 2)


def test_a_moved_vocabulary_is_the_same(vocabulary, tmp_path):
    for name, content in vocabulary.files().items():
        (tmp_path / name).write_bytes(content)
    again = Vocabulary.load(tmp_path)
    assert again == vocabulary and again.special_ids == {*range(14)}
    assert [again.encode(text) for text in TEXTS] == [vocabulary.encode(text) for text in TEXTS]
    told = json.loads((tmp_path / "tokenizer_config.json").read_text())
    told["do_lowercase_and_remove_accent"] = not told["do_lowercase_and_remove_accent"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    assert Vocabulary.load(tmp_path) != vocabulary


def changed(change):
    def spoil(folder):
        told = json.loads((folder / "vocab.json").read_text())
        change(told)
        (folder / "vocab.json").write_text(json.dumps(told))

    return spoil


def halved_merges(folder):
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "merges.txt").write_text("".join(lines[: len(lines) // 2]), encoding="utf-8")


@pytest.mark.parametrize(
    "spoil, words",
    [
        (
            lambda folder: (folder / "vocab.json").unlink(),
            "cannot be read: .*vocab.json",
        ),
        (changed(lambda told: told.pop("d")), "have gaps or stand twice"),
        (changed(lambda told: told.update({"<pad>": 1, "</s>": 2})), "do not begin with <s>, </s>"),
        (halved_merges, "no merge makes .* fetch the merges that belong to it"),
    ],
)
def test_what_is_not_of_xlm_is_refused(spoil, words, folder, tmp_path):
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    spoil(tmp_path)
    with pytest.raises(UserError, match=words):
        Vocabulary.load(tmp_path)


def test_codes_without_their_vocabulary_or_with_two_are_refused(folder, tmp_path):
    (tmp_path / "codes").write_bytes((folder / "codes").read_bytes())
    with pytest.raises(UserError, match="the folder has codes and no vocab file"):
        FastBpeVocabulary.of_xlm(tmp_path)
    (tmp_path / "vocab").write_text("a b\n")
    (tmp_path / "vocab_xnli_15").write_text("a 1\n")
    with pytest.raises(UserError, match="has vocab and vocab_xnli_15; leave the one"):
        FastBpeVocabulary.of_xlm(tmp_path)
