"""tokenizer.json gives the ids of SentencePiece, and a SentencePiece model those of
tokenizer.json."""

import functools
import io
import json
import random
import unicodedata
from pathlib import Path

import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from xlingjax.convert.formats import charsmap
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.convert.formats.tokenizer_json import (
    sentencepiece_model,
    tokenizer_files,
    tokenizer_json,
)
from xlingjax.data.vocabulary.sentencepiece import XLM_SPECIAL_PIECES, Vocabulary
from xlingjax.errors import UserError

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

GOLDEN = Path(__file__).parents[2] / "golden" / "tokenizers.json"
LAYOUTS = {
    "xlmr": dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1),
    "xlm": dict(
        bos_id=0, eos_id=1, pad_id=2, unk_id=3, control_symbols=list(XLM_SPECIAL_PIECES[4:])
    ),
}
RAW = dict(remove_extra_whitespaces=False, add_dummy_prefix=False)
KINDS = {
    "unigram": {},
    "bpe": dict(model_type="bpe", vocab_size=620),
    "unigram bytes": dict(byte_fallback=True, vocab_size=600),
    "bpe bytes": dict(model_type="bpe", byte_fallback=True, vocab_size=700),
    "unigram rare": dict(character_coverage=0.98),
    "bpe rare": dict(model_type="bpe", character_coverage=0.98),
    "identity": dict(normalization_rule_name="identity"),
    "raw": dict(normalization_rule_name="identity", **RAW),
    "spaces kept": dict(model_type="bpe", remove_extra_whitespaces=False),
    "no prefix": dict(add_dummy_prefix=False),
    "phrases": dict(split_by_whitespace=False, max_sentencepiece_length=30),
    "folded": dict(normalization_rule_name="nmt_nfkc_cf"),
    "user defined": dict(user_defined_symbols=["§§", "xyz"]),
    "bpe user defined": dict(model_type="bpe", user_defined_symbols=["§§", "xyz"], **RAW),
    "control": dict(control_symbols=[*XLM_SPECIAL_PIECES[4:], "<x1>"]),
}
ODD = (
    "",
    " ",
    " \t\u3000a  b ▁ ",
    "▁ a",
    "a▁▁b ▁▁",
    "\x01",
    "  leading",
    "trailing  ",
    "dou  ble",
    "tab\tnew\nline\r\nx",
    "no\u00a0break",
    "\u200bzero\u200dwidth\ufeff\u200c",
    "\u202eabc",
    "haaaaaaaah .......",
    "x" * 50,
    "👨\u200d👩\u200d👧 👩🏽\u200d💻 🇩🇪🇫🇷 1️⃣ 🦄🦄 ꙮ ꙮ",
    "ﬁ ﬂ Ａｂｃ ①② ½ ㎞ ｶﾞ ﷺ 𝕳𝖊𝖑𝖑𝖔",
    "q\u0301 e\u0301\u0302 ê\u0301",
    "\u0301a",
    "a\u0327\u0301 a\u0301\u0327",
    "\u00a8x \u00b4",
    "①\u0301 Ａ\u0301 ¼\ufe0f ㏄\u0301",
    "क\u093c न\u093c\u094d न\u094d\u093c ো",
    "\u1112\u1161\u11ab\u11ab",
    "xyz§§ a xyz",
)
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def random_texts(count):
    rng = random.Random(1)
    letters = list("".join(SENTENCES)) + [" "] * 40 + [chr(code) for code in range(1, 0x500)]
    letters += list("\u0301\u0302\u0323\u3099\u1161\u11a8\u200d\ufe0f▁") * 6
    return ["".join(rng.choices(letters, k=rng.randint(1, 40))) for _ in range(count)]


TEXTS = (
    *ODD,
    *{unicodedata.normalize(form, text) for text in SENTENCES for form in FORMS},
    *random_texts(300),
)


@functools.cache
def trained(layout, kind="unigram"):
    model = io.BytesIO()
    options = {**dict(vocab_size=420, character_coverage=1.0), **LAYOUTS[layout], **KINDS[kind]}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 4),
        model_writer=model,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return Vocabulary(model.getvalue(), layout)


def ids_of(vocabulary, text):
    return [vocabulary.bos_id, *vocabulary.encode(text), vocabulary.eos_id]


def opened(vocabulary):
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(vocabulary)))


def written(vocabulary, path, only=None):
    for name, content in tokenizer_files(vocabulary, 100).items():
        if only in (None, name):
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


@pytest.mark.parametrize("kind, exceptions", [("unigram", 25), ("folded", 900)])
def test_every_rule_of_the_table(kind, exceptions):
    """Each of its 225,000 rules and each character alone; sentencepiece is asked what it does, not
    the table."""
    vocabulary = trained("xlmr", kind)
    table = ModelProto.FromString(vocabulary.model_bytes).normalizer_spec.precompiled_charsmap
    theirs, ours = (
        sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model_bytes),
        opened(vocabulary),
    )
    rules = charsmap.rules(table)
    assert len(rules) > 220_000 and rules["ﬁ"] == "fi" and rules["\u1112\u1161\u11ab"] == "한"
    several = [text for text in rules if len(text) > 1]
    asked = [text for text in several if len(text) == 2 or text[0] < "\u3100"] + several[::20]
    differing = [
        text for text in asked if theirs.normalize(text) != ours.normalizer.normalize_str(text)
    ]
    assert {text[-1] for text in differing} <= charsmap.UNLIKE_NFC and 0 < len(
        differing
    ) < exceptions
    alone = [
        chr(code)
        for code in range(1, 0x110000)
        if unicodedata.category(chr(code)) not in ("Cs", "Co", "Cn")
    ]
    assert [
        c for c in alone if theirs.normalize(f"x{c}y") != ours.normalizer.normalize_str(f"x{c}y")
    ] == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_specials_pairs_and_text_again(layout, tmp_path):
    vocabulary = trained(layout)
    tokenizer = transformers.AutoTokenizer.from_pretrained(written(vocabulary, tmp_path))
    roles = ("bos", "cls", "eos", "sep", "pad", "unk", "mask")
    ids = [
        getattr(vocabulary, f"{role}_id")
        for role in ("bos", "bos", "eos", "eos", "pad", "unk", "mask")
    ]
    assert [getattr(tokenizer, f"{role}_token_id") for role in roles] == ids
    assert tokenizer.model_max_length == 100 and tokenizer.padding_side == "right"
    first, second = vocabulary.encode("Das Wasser"), vocabulary.encode("der See")
    bos, eos = vocabulary.bos_id, vocabulary.eos_id
    between = [eos, eos] if layout == "xlmr" else [eos]
    pair = tokenizer("Das Wasser", "der See")
    assert (
        pair["input_ids"] == [bos, *first, *between, *second, eos] and "token_type_ids" not in pair
    )
    text = "The water of the lake is cold."
    assert tokenizer.decode(
        tokenizer(text)["input_ids"], skip_special_tokens=True
    ) == vocabulary.decode(vocabulary.encode(text))
    assert tokenizer(["a", "Das Wasser"], padding=True)["input_ids"][0][-1] == vocabulary.pad_id


def test_bytes_are_text_again(tmp_path):
    vocabulary = trained("xlmr", "unigram bytes")
    tokenizer = transformers.AutoTokenizer.from_pretrained(written(vocabulary, tmp_path))
    assert (
        tokenizer.decode(tokenizer("der 🦄 See")["input_ids"], skip_special_tokens=True)
        == "der 🦄 See"
    )


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


def test_names_of_bytes_in_a_text():
    """The boundary: a Unigram model takes them for the byte where `<` is no piece; BPE never."""
    unigram, bpe = trained("xlmr", "unigram bytes"), trained("xlmr", "bpe bytes")
    assert opened(bpe).encode("<0x41>").ids == ids_of(bpe, "<0x41>")
    ids = opened(unigram).encode("<0x41>").ids
    assert unigram.pieces(ids[2:-1]) == ["<0x41>"] and len(unigram.encode("<0x41>")) == 7

    def known(proto):
        for character in "<>0x41":
            proto.pieces.add(piece=character, score=-9.0, type=1)

    unigram = changed(trained("xlmr", "unigram bytes"), known)
    assert opened(unigram).encode("<0x41>").ids == ids_of(unigram, "<0x41>")


def test_cuts_of_the_same_score():
    """The boundary: SentencePiece adds scores in single precision, tokenizers in double."""
    proto = ModelProto()
    for piece, score, kind in (
        ("<unk>", 0, 2),
        ("<s>", 0, 3),
        ("</s>", 0, 3),
        ("▁", -3.3, 1),
        ("x", -5.1, 1),
        (".", -4.7, 1),
        ("...", -6.13, 1),
    ):
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.unk_id, proto.trainer_spec.bos_id, proto.trainer_spec.eos_id = 0, 1, 2
    vocabulary = Vocabulary(proto.SerializeToString(), "xlmr")
    ours, differing = opened(vocabulary), 0
    for text in ("x" * n + "." * k for n in range(30) for k in range(8)):
        found, wanted = ours.encode(text).ids, ids_of(vocabulary, text)
        assert sorted(found) == sorted(wanted), "only the order of the pieces"
        differing += found != wanted
    assert 0 < differing < 100


def test_transformers_own_class_opens_the_files_and_loses_combining_characters(tmp_path):
    vocabulary = trained("xlmr")
    tokenizer = transformers.XLMRobertaTokenizer.from_pretrained(written(vocabulary, tmp_path))
    for text in SENTENCES:
        assert tokenizer(text)["input_ids"] == ids_of(vocabulary, text)
    assert (
        tokenizer("ａ\u030c")["input_ids"]
        == ids_of(vocabulary, "a")
        != ids_of(vocabulary, "ａ\u030c")
    )
    assert (tmp_path / "sentencepiece.bpe.model").read_bytes() == vocabulary.model_bytes
    assert "sentencepiece.bpe.model" not in tokenizer_files(trained("xlm"), 100)


def test_written_without_tokenizers_and_transformers(tmp_path):
    import subprocess
    import sys

    (tmp_path / "vocab.model").write_bytes(trained("xlm").model_bytes)
    code = (
        "import sys; from xlingjax.data.vocabulary.sentencepiece import Vocabulary; from"
        " xlingjax.convert.formats.tokenizer_json import tokenizer_files; files ="
        f" tokenizer_files(Vocabulary.load({str(tmp_path)!r}), 10); assert len(files) == 2 and not"
        " {'tokenizers', 'transformers', 'torch', 'jax', 'tensorflow'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_words_are_cut_one_by_one_only_where_no_piece_crosses_them():
    def crossing(proto):
        proto.pieces.add(piece="r▁S", score=-1.0, type=1)

    vocabulary, text = trained("xlmr"), "der See der See"
    assert tokenizer_json(vocabulary)["pre_tokenizer"]["split"] is True
    vocabulary = changed(vocabulary, crossing)
    assert vocabulary.pieces(vocabulary.encode(text)).count("r▁S") == 2
    assert opened(vocabulary).encode(text).ids == ids_of(vocabulary, text)


@pytest.mark.parametrize("score", [-2.0, -0.06, -0.04, 0.0, 1.0])
def test_user_defined_pieces_have_the_score_that_sentencepiece_gives_them(score):
    """-0.1, against which likely pieces win, where scores are logarithms; more where they are above
    0."""

    def with_piece(proto):
        for piece in ("ab", "c", "ä", "äa"):
            next((p for p in proto.pieces if p.piece == piece), None) or proto.pieces.add(
                piece=piece, type=1
            )
        for piece in proto.pieces:
            if piece.piece in ("ab", "c", "ä", "äa"):
                piece.score = score
        proto.pieces.add(piece="abc", score=-9.0, type=4)
        proto.pieces.add(piece="aä", score=-9.0, type=4)

    vocabulary = changed(trained("xlmr", "identity"), with_piece)
    found = opened(vocabulary)
    for text in ("abc", "äabc", "aä", "äaä", "aäabc", "abaäc"):
        assert found.encode(text).ids == ids_of(vocabulary, text), text
    assert ("abc" in vocabulary.pieces(vocabulary.encode("abc"))) == (score not in (-0.04, 0.0))


def set_type(kind):
    def change(proto):
        proto.pieces[-1].type = kind

    return change


def set_trainer(**values):
    def change(proto):
        for name, value in values.items():
            setattr(proto.trainer_spec, name, value)

    return change


def same_score(proto):
    long = [piece for piece in proto.pieces if len(piece.piece) > 1 and piece.type == 1]
    long[0].score = long[1].score


def named_mask(proto):
    proto.pieces[-1].piece = "<mask>"


def full_width(proto):
    proto.pieces.add(piece="Ａ", score=0, type=4)


@pytest.mark.parametrize(
    "kind, change, words",
    [
        ("unigram", set_trainer(model_type=4), "unigram or bpe"),
        ("unigram", set_trainer(treat_whitespace_as_suffix=True), "marks the ends of words"),
        ("unigram", set_type(5), "unused pieces"),
        ("unigram", named_mask, "'<mask>', which layout 'xlmr' adds"),
        ("unigram", full_width, "'Ａ' is text that the model's normalization rewrites"),
        ("bpe", set_type(4), "user-defined piece"),
        ("bpe", same_score, "pieces of the same score"),
    ],
)
def test_what_cannot_be_said_is_refused(kind, change, words):
    with pytest.raises(UserError, match=words) as caught:
        tokenizer_json(changed(trained("xlmr", kind), change))
    assert "\n" not in str(caught.value)


def test_a_rule_of_several_characters_of_ones_own_is_refused(tmp_path):
    (tmp_path / "own.tsv").write_text("63 68\t6B\n41\t61\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=300,
        hard_vocab_limit=False,
        minloglevel=2,
        normalization_rule_tsv=str(tmp_path / "own.tsv"),
        **LAYOUTS["xlmr"],
    )
    with pytest.raises(UserError, match="rewrites 'ch' as 'k', which is no composition"):
        tokenizer_json(Vocabulary(model.getvalue(), "xlmr"))


# The other way.
READ = [kind for kind in KINDS if kind not in ("user defined", "bpe user defined", "control")]


@pytest.mark.parametrize("kind", READ)
def test_what_we_wrote_is_the_model_again(kind, tmp_path):
    vocabulary = trained("xlmr", kind)
    again = Vocabulary(
        sentencepiece_model(written(vocabulary, tmp_path, "tokenizer.json") / "tokenizer.json"),
        "xlmr",
    )
    assert again.size == vocabulary.size and again.pieces(range(again.size)) == vocabulary.pieces(
        range(again.size)
    )
    assert [text for text in TEXTS if again.encode(text) != vocabulary.encode(text)] == []


def by_transformers(vocabulary, path):
    """tokenizer.json as transformers 5 writes it from sentencepiece.bpe.model."""
    source = path / "source"
    source.mkdir()
    written(vocabulary, source, "sentencepiece.bpe.model")
    transformers.XLMRobertaTokenizer.from_pretrained(source).save_pretrained(path)
    return path / "tokenizer.json"


def test_what_transformers_wrote_is_the_model_again(tmp_path):
    vocabulary = trained("xlmr")
    again = Vocabulary(sentencepiece_model(by_transformers(vocabulary, tmp_path)), "xlmr")
    assert [text for text in TEXTS if again.encode(text) != vocabulary.encode(text)] == []


def test_the_forms_of_older_files(tmp_path):
    """As transformers 4 wrote XLM-R's: `<mask>` among the pieces, no types, the prefix as a
    switch."""
    vocabulary, path = trained("xlmr"), tmp_path / "tokenizer.json"
    told = json.loads(by_transformers(vocabulary, tmp_path).read_text())
    del told["model"]["type"], told["model"]["byte_fallback"]
    table = next(step for step in [told["normalizer"]] if step["type"] == "Precompiled")
    old = {"type": "Metaspace", "replacement": "▁", "str_rep": "▁", "add_prefix_space": True}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    for before, steps in (
        ({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, old]}, []),
        (old, [strip, charsmap.replace(" {2,}", "▁")]),
    ):
        told["pre_tokenizer"], told["normalizer"] = (
            before,
            {"type": "Sequence", "normalizers": [table, *steps]},
        )
        path.write_text(json.dumps(told))
        again = Vocabulary(sentencepiece_model(path), "xlmr")
        assert [text for text in TEXTS if again.encode(text) != vocabulary.encode(text)] == []
        theirs = tokenizers.Tokenizer.from_file(str(path))
        assert all(
            theirs.encode(text).ids == ids_of(again, text)
            for text in ("  a  b ", "\tx\n", *SENTENCES)
        )


def at(*keys, to):
    def change(told):
        for key in keys[:-1]:
            told = told[key]
        told[keys[-1]] = to

    return change


def added_word(told):
    told["added_tokens"].append({**told["added_tokens"][0], "content": "Wasser", "id": 999})


def one_pair_less(told):
    merges = told["model"]["merges"]
    pieces = ["".join(pair) for pair in merges]
    merges.pop(next(i for i, piece in enumerate(pieces) if pieces.count(piece) > 1))


@pytest.mark.parametrize(
    "kind, change, words",
    [
        ("unigram", at("model", "type", to="WordPiece"), "a WordPiece model"),
        ("unigram", at("model", to=None), "no whole tokenizer.json"),
        ("unigram", at("model", "unk_id", to=0), "first pieces"),
        ("unigram", added_word, "added token 'Wasser'"),
        ("unigram", at("added_tokens", 0, "id", to=7), "added tokens are"),
        ("unigram", at("normalizer", to={"type": "Lowercase"}), "normalizer"),
        ("unigram", at("normalizer", "normalizers", 0, to={"type": "NFC"}), "normalizer"),
        ("unigram", at("pre_tokenizer", to={"type": "Whitespace"}), "pre-tokenizer|normalizer"),
        ("bpe", one_pair_less, "merges are not those"),
        ("bpe", at("model", "end_of_word_suffix", to="</w>"), "suffixes"),
        ("bpe", at("model", "fuse_unk", to=False), "fuse_unk"),
    ],
)
def test_what_sentencepiece_cannot_do_is_refused(kind, change, words, tmp_path):
    told = tokenizer_json(trained("xlmr", kind))
    change(told)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(told))
    with pytest.raises(UserError, match=words) as caught:
        sentencepiece_model(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_white_space_that_only_one_of_them_splits_at_is_refused(tmp_path):
    """The identity has no rule for tab and U+00A0; WhitespaceSplit splits at them."""
    path = by_transformers(trained("xlmr", "identity"), tmp_path)
    with pytest.raises(UserError, match="leaves white space"):
        sentencepiece_model(path)


def test_import_reads_what_we_wrote_without_the_sentencepiece_model(tmp_path):
    pytest.importorskip("torch")
    from tests.helpers import small_xlmr
    from xlingjax.convert.formats.hugging_face import read

    small_xlmr.save(tmp_path)
    model = tmp_path / "sentencepiece.bpe.model"
    vocabulary = Vocabulary.load(model, "xlmr")
    written(vocabulary, tmp_path)
    model.unlink()
    again = read(tmp_path).vocabulary
    assert [text for text in TEXTS if again.encode(text) != vocabulary.encode(text)] == []


@pytest.mark.parametrize("kind", ["unigram", "bpe", "unigram bytes"])
def test_golden_ids(kind):
    """A change of a library's or of ours that moves ids is seen. To write them anew: python
    tests/convert/THIS FILE."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[kind]
    vocabulary = trained("xlmr", kind)
    ours = opened(vocabulary)
    for text, ids in golden.items():
        assert ids_of(vocabulary, text) == ids == ours.encode(text).ids
    assert len(golden) == len(SENTENCES)


def test_xlm_r_itself():
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache("FacebookAI/xlm-roberta-base", "sentencepiece.bpe.model")
    if not path:
        pytest.skip("FacebookAI/xlm-roberta-base is not in the hub's cache")
    vocabulary = Vocabulary.load(path, "xlmr")
    assert (
        ids_of(vocabulary, "Hello world!")
        == [0, 35378, 8999, 38, 2]
        == opened(vocabulary).encode("Hello world!").ids
    )


if __name__ == "__main__":
    told = {
        kind: {text: ids_of(trained("xlmr", kind), text) for text in SENTENCES} for kind in KINDS
    }
    kept = {kind: told[kind] for kind in ("unigram", "bpe", "unigram bytes")}
    GOLDEN.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
