"""tokenizer.json gives the ids of SentencePiece."""

import functools
import json
import random
import unicodedata

import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tests.helpers import small_xlmr
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.convert.formats.tokenizer_json import tokenizer_files, tokenizer_json
from xlingjax.data.vocabulary.sentencepiece import XLM_SPECIAL_PIECES, Vocabulary
from xlingjax.errors import UserError

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

LAYOUTS = {
    "xlmr": {},
    "xlm": dict(bos_id=0, eos_id=1, pad_id=2, unk_id=3, control_symbols=[*XLM_SPECIAL_PIECES[4:]]),
}
RAW = dict(remove_extra_whitespaces=False, add_dummy_prefix=False)
KINDS = {
    "unigram": {},
    "bpe": dict(model_type="bpe", size=620),
    "unigram bytes": dict(byte_fallback=True, size=600),
    "bpe bytes": dict(model_type="bpe", byte_fallback=True, size=700),
    "unigram rare": dict(character_coverage=0.98),
    "bpe rare": dict(model_type="bpe", character_coverage=0.98),
    "identity": dict(normalization_rule_name="identity"),
    "raw": dict(normalization_rule_name="identity", **RAW),
    "spaces kept": dict(model_type="bpe", remove_extra_whitespaces=False),
    "no prefix": dict(add_dummy_prefix=False),
    "phrases": dict(split_by_whitespace=False, max_sentencepiece_length=30),
    "folded": dict(normalization_rule_name="nmt_nfkc_cf"),
    "control": dict(control_symbols=[*XLM_SPECIAL_PIECES[4:], "<x1>"]),
}
ODD = (
    *small_xlmr.ODD,
    "x" * 50,
    "\u00a8x \u00b4",
    "q\u0301 Ａ\u0301 ¼\ufe0f ㏄",
    # Marks in the order in which they are typed, which is not Unicode's.
    "بِسْمِ اللَّهِ شَدَّة أَسّ آدم",
    "בְּרֵאשִׁ֖ית בָּרָ֣א שּׁ",
    "Tiếng Việt",
    "ที่ น้ำ",
    "xyz§§ a xyz",
)
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def random_texts(count):
    """With a combining mark behind every sixth letter, never two."""
    rng = random.Random(1)
    letters = list("".join(SENTENCES)) + [" "] * 40 + [chr(code) for code in range(1, 0x300)]
    letters = [c for c in letters if unicodedata.normalize("NFKD", c) == c]
    marks = list("\u0301\u0302\u0323\u3099\u1161\u11a8\u200d\ufe0f▁")
    texts = []
    for _ in range(count):
        drawn = rng.choices(letters, k=rng.randint(1, 40))
        texts.append("".join(c + rng.choice(marks) * (rng.random() < 1 / 6) for c in drawn))
    return texts


TEXTS = (
    *ODD,
    *{unicodedata.normalize(form, text) for text in SENTENCES for form in FORMS},
    *random_texts(300),
)


@functools.cache
def trained(layout, kind="unigram"):
    options = {"size": 420, "num_threads": 1, **LAYOUTS[layout], **KINDS[kind]}
    return Vocabulary(small_xlmr.sentencepiece_model(**options), layout)


def ids_of(vocabulary, text):
    return [vocabulary.bos_id, *vocabulary.encode(text), vocabulary.eos_id]


def opened(vocabulary):
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(vocabulary)))


def written(vocabulary, path):
    for name, content in tokenizer_files(vocabulary, 100).items():
        (path / name).write_bytes(content)
    return path


def changed(vocabulary, change):
    """The vocabulary of the model that `change` made of its ModelProto."""
    proto = ModelProto.FromString(vocabulary.model_bytes)
    change(proto)
    return Vocabulary(proto.SerializeToString(), vocabulary.layout)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_ids_are_those_of_sentencepiece(layout, kind, tmp_path):
    vocabulary = trained(layout, kind)
    tokenizer = transformers.AutoTokenizer.from_pretrained(written(vocabulary, tmp_path))
    assert len(tokenizer) == vocabulary.size
    found = tokenizer(list(TEXTS))["input_ids"]
    differing = [
        text for text, ids in zip(TEXTS, found, strict=True) if ids != ids_of(vocabulary, text)
    ]
    assert differing == []


@pytest.mark.parametrize("kind", ["unigram", "folded"])
def test_every_character_composed_and_decomposed(kind):
    """sentencepiece is asked what it does, not the table. Scripts newer than the Unicode of either
    library differ, and, where case is folded, styled I with a dot and some decomposed Greek."""
    vocabulary = trained("xlmr", kind)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model_bytes)
    ours = opened(vocabulary).normalizer
    differing = set()
    for code in range(1, 0x110000):
        character = chr(code)
        if unicodedata.category(character) in ("Cs", "Co", "Cn"):
            continue
        for form in FORMS:
            text = f"x{unicodedata.normalize(form, character)}y"
            if theirs.normalize(text) != ours.normalize_str(text):
                differing.add(text)
    assert len(differing) < 20


@pytest.mark.parametrize("layout, kind", [("xlmr", "unigram bytes"), ("xlm", "unigram")])
def test_specials_pairs_and_text_again(layout, kind, tmp_path):
    vocabulary = trained(layout, kind)
    tokenizer = transformers.AutoTokenizer.from_pretrained(written(vocabulary, tmp_path))
    for ours, theirs in zip(
        ("bos", "bos", "eos", "eos", "pad", "unk", "mask"),
        ("bos", "cls", "eos", "sep", "pad", "unk", "mask"),
        strict=True,
    ):
        assert getattr(tokenizer, f"{theirs}_token_id") == getattr(vocabulary, f"{ours}_id")
    assert tokenizer.model_max_length == 100 and tokenizer.padding_side == "right"
    first, second = vocabulary.encode("Das Wasser"), vocabulary.encode("der See")
    bos, eos = vocabulary.bos_id, vocabulary.eos_id
    between = [eos, eos] if layout == "xlmr" else [eos]
    pair = tokenizer("Das Wasser", "der See")
    assert pair["input_ids"] == [bos, *first, *between, *second, eos]
    assert "token_type_ids" not in pair
    text = f"The water {'🦄 ' * ('bytes' in kind)}of the lake is cold."
    again = tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)
    assert again == text == vocabulary.decode(vocabulary.encode(text))
    assert tokenizer(["a", "Das Wasser"], padding=True)["input_ids"][0][-1] == vocabulary.pad_id


@pytest.mark.parametrize("layout, mask", [("xlmr", "<mask>"), ("xlm", "<special1>")])
def test_special_tokens_in_a_text_are_one_id(layout, mask, tmp_path):
    """The boundary: SentencePiece cuts them up."""
    vocabulary = trained(layout, "bpe")
    tokenizer = transformers.AutoTokenizer.from_pretrained(written(vocabulary, tmp_path))
    text = f"der {mask} See </s>"
    found = tokenizer(text)["input_ids"]
    assert tokenizer.mask_token == mask and found.count(vocabulary.mask_id) == 1
    words = [vocabulary.encode(word) for word in ("der", "See ")]
    assert found[: len(words[0]) + 2] == [vocabulary.bos_id, *words[0], vocabulary.mask_id]
    assert found[-2:] == [vocabulary.eos_id] * 2 and [*words[1]] == found[len(words[0]) + 2 : -2]
    assert vocabulary.mask_id not in vocabulary.encode(text)
    assert tokenizer(text, split_special_tokens=True)["input_ids"] == ids_of(vocabulary, text)


def test_words_are_cut_one_by_one_only_where_no_piece_crosses_them():
    def crossing(proto):
        proto.pieces.add(piece="r▁S", score=-1.0, type=1)

    vocabulary, text = trained("xlmr"), "der See der See"
    assert tokenizer_json(vocabulary)["pre_tokenizer"]["split"] is True
    vocabulary = changed(vocabulary, crossing)
    assert vocabulary.pieces(vocabulary.encode(text)).count("r▁S") == 2
    assert opened(vocabulary).encode(text).ids == ids_of(vocabulary, text)


def same_score(proto):
    long = [piece for piece in proto.pieces if len(piece.piece) > 1 and piece.type == 1]
    long[0].score = long[1].score


def last_piece(**values):
    def change(proto):
        for name, value in values.items():
            setattr(proto.pieces[-1], name, value)

    return change


@pytest.mark.parametrize(
    "kind, change, words",
    [
        ("unigram", lambda proto: setattr(proto.trainer_spec, "model_type", 4), "unigram or bpe"),
        (
            "unigram",
            lambda proto: setattr(proto.trainer_spec, "treat_whitespace_as_suffix", True),
            "marks the ends of words",
        ),
        ("unigram", last_piece(piece="<mask>"), "'<mask>', which layout 'xlmr' adds"),
        ("bpe", last_piece(type=4), "user-defined or unused pieces"),
        ("bpe", lambda proto: setattr(proto.normalizer_spec, "name", "user_defined"), "own"),
        ("bpe", same_score, "pieces of the same score"),
    ],
)
def test_what_cannot_be_said_is_refused(kind, change, words):
    with pytest.raises(UserError, match=words) as caught:
        tokenizer_json(changed(trained("xlmr", kind), change))
    assert "\n" not in str(caught.value)
