"""Tokenizers with words added at random, in every form they are saved: each is one id, and no text
makes a special one."""

import json
import random
import time

import pytest

from tests.data.test_fuzz_readers import SECONDS, SEED, damaged, outcome
from xlingjax.convert.formats.hugging_face import vocabulary_of
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer_files import BERT
from xlingjax.errors import UserError

CHARACTERS = "aä水ж- 10<>/_▁#[]\u0301\U0001f600'\"\\"
PLAIN = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
SPECIAL = ("<s>", "</s>", "<pad>", "<mask>", "<special1>", "[CLS]", "[SEP]", "[PAD]", "[MASK]")


def words(rng):
    made = {"".join(rng.choices(CHARACTERS, k=rng.randrange(2, 9))).strip() for _ in range(5)}
    return [f"new{word}" for word in sorted(made)]


def folder_of(folder, kind, pieces, vocabulary):
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    if kind == "sentencepiece":
        # A model with the ids of XLM-R's.
        (folder / "sentencepiece.bpe.model").write_bytes(vocabulary.model_bytes)
    else:
        (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    return folder


def test_added_words_are_one_id_and_no_text_a_special_one(tmp_path, capsys, xlmr_model):
    rng = random.Random(SEED)
    of_xlmr = Vocabulary.load(xlmr_model, "xlmr")
    characters = sorted({*CHARACTERS, *"new"} - {" "})
    pieces = [*BERT.values(), *characters, *(f"##{one}" for one in characters)]
    end = time.process_time() + SECONDS
    count = 0
    while time.process_time() < end or count < 4:
        kind = ("sentencepiece", "wordpiece")[count % 2]
        folder = folder_of(tmp_path / "hf", kind, pieces, of_xlmr)
        before = vocabulary_of(folder)
        added = {word: before.size + i for i, word in enumerate(words(rng))}
        if rng.random() < 0.5:
            (folder / "added_tokens.json").write_text(json.dumps(added))
        else:
            tokens = {i: {**PLAIN, "content": word} for word, i in added.items()}
            config = {"do_lower_case": False, "added_tokens_decoder": tokens}
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
        vocabulary = vocabulary_of(folder)
        assert vocabulary.size == before.size + len(added)
        for word, i in added.items():
            # No other word goes on with what stands behind it: the longest would be found.
            assert i in vocabulary.encode(f"a {word} Q"), (kind, word)
        text = " ".join(rng.choices([*SPECIAL, *added, "水<mask>", "</s"], k=6))
        found = {*vocabulary.encode(text)} & (vocabulary.special_ids - {vocabulary.unk_id})
        assert not found, (kind, text, vocabulary.pieces(found))
        # Damaged, it is read or refused.
        path = rng.choice(sorted(folder.iterdir()))
        if path.suffix != ".model":
            path.write_bytes(damaged(path.read_bytes(), rng))
            assert outcome(lambda path: vocabulary_of(path.parent), path) in ("read", "refused")
        count += 1
    with capsys.disabled():
        print(f"\ntokenizers: {count:,}")


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("added_tokens.json", '{"new": Infinity}'),
        ("added_tokens.json", '{"new": 1e999}'),
        ("added_tokens.json", '{"new": []}'),
        (
            "tokenizer_config.json",
            '{"do_lower_case": false, "added_tokens_decoder": {"300": {"content": 0.5}}}',
        ),
        (
            "tokenizer_config.json",
            '{"do_lower_case": false, "added_tokens_decoder": {"300": {"content": []}}}',
        ),
    ],
)
def test_a_word_that_is_no_text_and_an_id_that_is_no_number(
    kind, name, content, tmp_path, xlmr_model
):
    of_xlmr = Vocabulary.load(xlmr_model, "xlmr")
    folder = folder_of(tmp_path / "hf", kind, [*BERT.values(), "a"], of_xlmr)
    (folder / name).write_text(content)
    with pytest.raises(UserError, match="cannot be read"):
        vocabulary_of(folder)


def test_an_added_word_of_no_letter(tmp_path):
    folder = folder_of(tmp_path / "hf", "wordpiece", [*BERT.values(), "a"], None)
    (folder / "added_tokens.json").write_text('{"": 9999}')
    with pytest.raises(UserError, match="the word '' was added under another id"):
        vocabulary_of(folder)
