"""More pieces for tokenizer.json, counted by hand; old text is cut as before."""

import json
from collections import Counter

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from xlingjax.data.vocabulary.tokenizer import TokenizerVocabulary
from xlingjax.data.vocabulary.tokenizer_files import BERT
from xlingjax.data.vocabulary.tokenizer_surgery import extend, spellings
from xlingjax.errors import UserError

ENGLISH = ["the men sit in the sun", "the dog and the man run", "in the end", "sun and sand"] * 3
GERMAN = [
    "der hund und der mann",
    "der hund rennt",
    "die hunde und die männer",
    "ein größerer hund",
]


def tokenizer(kind):
    if kind == "WordPiece":
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        made.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=60, special_tokens=[*BERT.values()], show_progress=False
        )
    else:
        made = Tokenizer(models.BPE(unk_token="[UNK]", byte_fallback=False))
        alphabet = []
        if kind == "bytes":  # ModernBERT
            made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            made.decoder = decoders.ByteLevel()
            alphabet = pre_tokenizers.ByteLevel.alphabet()
        else:  # Gemma, mmBERT: no step cuts words
            made.normalizer = normalizers.Replace(" ", "▁")
            made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
            alphabet = ["ä", "ö", "ß"]
        trainer = trainers.BpeTrainer(
            vocab_size=60 + len(alphabet), initial_alphabet=alphabet, show_progress=False,
            special_tokens=[*BERT.values()], max_token_length=4,
        )  # fmt: skip
    made.train_from_iterator(ENGLISH, trainer)
    made.add_special_tokens(["[unused0]"])  # behind the pieces, as ModernBERT's
    return TokenizerVocabulary(made.to_str().encode(), BERT)


def cut(vocabulary, lines):
    return [vocabulary.pieces(ids) for ids in map(vocabulary.encode, lines)]


@pytest.mark.parametrize("kind", ["WordPiece", "bytes", "spaces"])
def test_the_commonest_neighbours_become_pieces_and_old_text_stays(kind):
    old = tokenizer(kind)
    more = 14 if kind == "WordPiece" else 7
    new = extend(old, GERMAN, more, old_lines=ENGLISH, character_coverage=1.0)
    added = new.pieces(range(old.size, new.size))
    assert new.size == old.size + more and len({*added} - {*old.pieces(range(old.size))}) == more
    assert new.pieces(range(old.size)) == old.pieces(range(old.size))
    assert cut(new, ENGLISH) == cut(old, ENGLISH)
    lengths = [sum(map(len, cut(one, GERMAN))) for one in (old, new)]
    assert lengths[1] < lengths[0]
    assert not any(new.unk_id in new.encode(line) for line in GERMAN)
    assert [new.decode(new.encode(line)) for line in GERMAN[:2]] == GERMAN[:2]
    characters = [piece for piece in added if len(piece.removeprefix("##")) == 1]
    if kind == "WordPiece":
        assert {"ä", "##ä", "ö", "##ö", "ß", "##ß"} <= {*characters}
    # The first merge is of the pair that stands most often in words, old text's left out.
    words = Counter(word for line in GERMAN for word in f"{line}".split())
    seen = {pair for line in cut(old, ENGLISH) for pair in zip(line, line[1:], strict=False)}
    counts = Counter()
    for word, count in words.items():
        opened = {"WordPiece": word, "bytes": f" {word}", "spaces": f" {word}"}[kind]
        (pieces,) = cut(extend(old, GERMAN, len(characters)) if characters else old, [opened])
        for pair in zip(pieces, pieces[1:], strict=False):
            if pair not in seen:
                counts[pair] += count
    best = {a + b.removeprefix("##") for (a, b), n in counts.items() if n == max(counts.values())}
    assert added[len(characters)] in best
    for ids, piece in zip(spellings(old, added), added, strict=True):
        spelt = "".join(name.removeprefix("##") for name in old.pieces(ids))
        assert spelt in ("", piece.removeprefix("##"))
        assert ids or kind == "WordPiece"


def test_characters_spelt_as_bytes_become_pieces_and_bytes_are_never_joined():
    made = Tokenizer(models.BPE(unk_token="[UNK]", byte_fallback=True))  # Gemma, mmBERT
    made.normalizer = normalizers.Replace(" ", "▁")
    steps = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()
    made.decoder = decoders.Sequence([*steps])
    special = [*BERT.values(), *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, special_tokens=special)
    made.train_from_iterator(ENGLISH, trainer)
    # Bytes are pieces, but not tokens that are looked for in a text.
    config = json.loads(made.to_str())
    config["added_tokens"] = config["added_tokens"][: len(BERT)]
    old = TokenizerVocabulary(json.dumps(config).encode(), BERT)
    text = ["የሰው ሰው", "ሰው ሰዎች ሠ"] * 4
    assert "<0xE1>" in cut(old, text)[0]
    # A share of 0.9 leaves the rarest out, which stays bytes.
    new = extend(old, text, 6, character_coverage=0.9)
    added = new.pieces(range(old.size, new.size))
    assert added == [*"ሰውየዎች", "ሰው"]
    assert [new.decode(new.encode(line)) for line in text] == text


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match="--pieces 500: the text gives [0-9]+ pieces that"):
        extend(tokenizer("bytes"), GERMAN, 500)
    with pytest.raises(UserError, match="--pieces 3: the text has [0-9]+ characters"):
        extend(tokenizer("WordPiece"), GERMAN, 3, character_coverage=1.0)
    unigram = Tokenizer(
        models.Unigram([(piece, -1.0) for piece in [*BERT.values(), "▁a"]], unk_id=3)
    )
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.add_special_tokens([*BERT.values()])
    with pytest.raises(UserError, match=r"tokenizer\.json of Unigram; pieces are added to BPE"):
        extend(TokenizerVocabulary(unigram.to_str().encode(), BERT), GERMAN, 3)
    assert np.array(spellings(tokenizer("bytes"), ["ab"])).shape == (1, 2)


def test_two_hashes_are_a_mark_in_wordpiece_alone():
    """In a tokenizer of bytes "##" is text: a heading."""
    old = tokenizer("bytes")
    new = extend(old, ["####"] * 4, 2)
    assert new.pieces(range(old.size, new.size)) == ["##", "####"]
    assert cut(new, ["####"]) == [["####"]] and new.decode(new.encode("####")) == "####"
