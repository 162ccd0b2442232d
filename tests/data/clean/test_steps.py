"""Each step on one line."""

import unicodedata

import numpy as np
import pytest
import sacremoses

from xlingjax.data.clean.duplicates import (
    PERMUTATIONS,
    key_of,
    line_key,
    near_later,
    shingles,
    signature,
)
from xlingjax.data.clean.lines import (
    balanced,
    copied,
    in_script,
    normal_characters,
    normalizer,
    split_sentences,
    words_in,
)
from xlingjax.data.clean.models import PACKAGED, Identifier
from xlingjax.errors import UserError


def test_characters():
    pytest.importorskip("ftfy")
    decomposed = unicodedata.normalize("NFD", "Köln")
    assert normal_characters(f"\ufeff {decomposed}\u200b\u00ad\x07 \t\u00a0ist\u2028groß ") == (
        "Köln ist groß"
    )
    # NFKC would make of them "fi", "2", "A"; a joiner changes what Persian and Hindi words are.
    assert normal_characters("ﬁ² Ａ می\u200cخواهم क्\u200dष") == "ﬁ² Ａ می\u200cخواهم क्\u200dष"
    assert normal_characters("fÃ¼r “A” &amp; <b>&#252;ber") == "für “A” & <b>über"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "„Ja“, sagte er … 1\u00a0000"),
        ("fr", "«\u00a0Bonjour\u00a0»\u00a0!"),
        ("en", "It’s “fine” – really"),
        ("zh", "北京（首都）"),
    ],
)
def test_punctuation_is_that_of_sacremoses(language, text):
    moses = sacremoses.MosesPunctNormalizer(lang=language)
    assert normalizer(language)(text) == moses.normalize(text)
    assert normalizer("en")("It’s “fine”") == 'It\'s "fine"'


# Sentences of 14 scripts, apart as their readers set them apart.
SENTENCES = {
    "en": ["Dr. Smith arrived at 5 p.m. on Monday.", "Then he left."],
    "de": ["Am 3. Oktober 1990 kam Prof. Dr. Müller.", "Er lebt in Köln."],
    "ru": ["Л. Н. Толстой написал роман.", "Он жил в Ясной Поляне."],
    "el": ["Πήγες ποτέ;", "Ναι, πήγα."],
    "zh": ["北京是中国的首都。", "你去过吗？"],
    "ja": ["東京は日本の首都です。", "とても大きい。"],
    "ko": ["서울은 한국의 수도이다.", "매우 크다."],
    "hi": ["दिल्ली भारत की राजधानी है।", "यह बहुत बड़ा शहर है।"],
    "bn": ["ঢাকা বাংলাদেশের রাজধানী।", "এটি বড়।"],
    "ar": ["القاهرة عاصمة مصر.", "هل زرتها؟"],
    "ur": ["اسلام آباد پاکستان کا دارالحکومت ہے۔", "یہ خوبصورت ہے۔"],
    "am": ["አዲስ አበባ የኢትዮጵያ ዋና ከተማ ናት።", "ትልቅ ናት።"],
    "hy": ["Երևանը Հայաստանի մայրաքաղաքն է։", "Այն մեծ է։"],
    "my": ["ရန်ကုန်သည် မြို့ကြီးဖြစ်သည်။", "လှပသည်။"],
    "ka": ["თბილისი საქართველოს დედაქალაქია.", "ის დიდია."],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences(language):
    pytest.importorskip("sentencex")
    sentences = SENTENCES[language]
    between = "" if language in ("zh", "ja") else " "
    assert split_sentences(between.join(sentences), language) == sentences


def test_words_are_counted_where_there_are_no_spaces():
    assert words_in("The cat sleeps.") == 3
    assert words_in("猫は sleeps 24") == 4
    # Ten characters of Thai.
    assert words_in("กรุงเทพมหา") == 2


def test_the_script_of_a_line():
    assert in_script("Привет world", "ru", 0.5) and not in_script("Hi world д", "ru", 0.5)
    # As many letters as asked for are enough.
    assert in_script("дддд abcd", "ru", 0.5) and not in_script("ддд abcd", "ru", 0.5)
    assert not in_script("1234 :-)", "en", 0.5)
    assert in_script("whatever", "xx", 0.5)


def test_sides_of_pairs():
    assert copied("Copyright 2012 ACME", "copyright 2012 Acme") and not copied("Hund", "hound")
    assert balanced("one two", " ".join(["w"] * 18), 9) and not balanced("a", " ".join("w" * 10), 9)


def test_the_language_of_a_text_is_that_of_facebooks_model():
    pytest.importorskip("fasttext")
    model = Identifier(PACKAGED)
    german = "Die Katze trinkt jeden Morgen ihre Milch."
    assert model.probability(german, "de") > 0.9 and model.probability(german, "en") < 0.1
    assert model.probability("北京是中华人民共和国的首都，也是文化中心。", "zh_Hans") > 0.9
    assert len(model.languages()) == 176
    model.require("sw")
    with pytest.raises(UserError, match="does not know the language 'xx'"):
        model.require("xx")


# --- Repetitions ----------------------------------------------------------------------------------


def test_ccnet_takes_for_the_same():
    assert key_of("Café No. 12!") == key_of("cafe no 99")
    assert key_of("Café") != key_of("Cafés")
    # Vowel signs of Hindi are letters of the word, and no accents.
    assert key_of("कु") != key_of("क")
    # Without letters the text itself counts.
    assert key_of("!!") != key_of("??")
    assert line_key(("a", "b")) != line_key(("b", "a"))


def test_signatures_are_those_of_datasketch_and_estimate_similarity():
    datasketch = pytest.importorskip("datasketch")
    text = "The cat sat on the mat and looked at the birds in the garden all day."
    other = text.replace("birds", "bird")
    theirs = datasketch.MinHash(num_perm=PERMUTATIONS, scheme="affine32")
    for shingle in shingles(text):
        theirs.update(shingle)
    assert np.array_equal(signature(text), theirs.hashvalues)
    a, b = shingles(text), shingles(other)
    true = len(a & b) / len(a | b)
    assert abs((signature(text) == signature(other)).mean() - true) < 0.2


def test_the_earliest_of_near_texts_stays():
    base = np.arange(PERMUTATIONS, dtype=np.uint32)
    near = base.copy()
    near[:10] = 999
    far = base.copy()
    far[:40] = 999
    texts = {"base": base, "near": near, "far": far, "other": base + 5000}
    for order, repeats in (
        (("base", "near", "far", "other"), ["near"]),
        (("far", "other", "near", "base"), ["base"]),
        (("near", "far", "base"), ["base"]),
    ):
        later = near_later(np.stack([texts[name] for name in order]), 0.8)
        assert [name for name, is_later in zip(order, later, strict=True) if is_later] == repeats
    assert near_later(np.zeros((0, PERMUTATIONS), np.uint32), 0.8).size == 0


# --- Perplexity -----------------------------------------------------------------------------------
