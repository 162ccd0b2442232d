import math
import random
import re
import unicodedata
from collections import Counter
from itertools import product

import pytest
from sacrebleu import __version__ as sacrebleu_version

from xlingjax.errors import UserError
from xlingjax.evaluation.metrics import text as generation

TEXTS = {
    "de": [
        "Der Hund schläft unter dem Tisch.",
        "Wir gehen heute nicht in die Schule.",
        "Ich habe das Buch gelesen.",
        "Die Kinder spielen im Garten.",
        "Morgen wird es regnen.",
        "Wo ist der Schlüssel für das Haus?",
    ],
    "nl": [
        "De hond slaapt onder de tafel.",
        "Wij gaan vandaag niet naar school.",
        "Ik heb het boek gelezen.",
        "De kinderen spelen in de tuin.",
        "Morgen gaat het regenen.",
        "Waar is de sleutel van het huis?",
    ],
    "en": [
        "The dog sleeps under the table.",
        "We are not going to school today.",
        "I have read the book.",
        "The children are playing in the garden.",
        "It will rain tomorrow.",
        "Where is the key to the house?",
    ],
    "ru": ["Собака спит под столом.", "Сегодня мы не идём в школу.", "Я прочитал книгу."],
}
NEW = {
    "de": ["Das Haus ist sehr schön.", "Die Schule liegt nicht weit von hier."],
    "nl": ["Het huis is heel mooi.", "De school is niet ver van hier."],
    "en": ["The house is very nice.", "The school is not far from here."],
}


def geometric_mean(*precisions):
    return 100 * math.prod(precisions) ** (1 / len(precisions))


def multi_bleu(hypotheses, references):
    """Moses' multi-bleu.perl with one reference: the formula, with bytes for characters."""
    right, made, lengths = [0] * 4, [0] * 4, [0, 0]
    for texts in zip(hypotheses, references, strict=True):
        words = [re.findall(rb"[^ \t\n\r\f\v]+", text.encode()) for text in texts]
        lengths = [total + len(side) for total, side in zip(lengths, words, strict=True)]
        for n in range(4):
            h, r = (
                Counter(tuple(side[i : i + n + 1]) for i in range(len(side) - n)) for side in words
            )
            right[n], made[n] = right[n] + sum((h & r).values()), made[n] + sum(h.values())
    if not all(right):
        return 0.0
    return min(1, math.exp(1 - lengths[1] / lengths[0])) * geometric_mean(
        *(a / b for a, b in zip(right, made, strict=True))
    )


def test_bleu_by_hand():
    made, wanted = ["A b, c d e"], ["a b, c d x"]  # 13a: six tokens, the comma one of them
    score, signature = generation.bleu(made, wanted, "de")
    assert score == pytest.approx(geometric_mean(4 / 6, 3 / 5, 2 / 4, 1 / 3))
    assert signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu_version}"
    score, signature = generation.bleu(made, wanted, "de", lowercase=True)
    assert score == pytest.approx(geometric_mean(5 / 6, 4 / 5, 3 / 4, 2 / 3))
    assert "|case:lc|" in signature
    # No 4-gram of two: 1 / (2 * 2).
    smoothed, _ = generation.bleu(["a b c x d"], ["a b c y d"], "en")
    assert smoothed == pytest.approx(geometric_mean(4 / 5, 2 / 4, 1 / 3, 1 / 4))
    # Counted over lines, not their mean.
    corpus, _ = generation.bleu(["a b c d", "e f"], ["a b c d", "e f g h"], "en")
    assert corpus == pytest.approx(100 * math.exp(1 - 8 / 6))


@pytest.mark.parametrize(
    ("language", "tokenizer"), [("zh_TW", "zh"), ("ja", "char"), ("th", "char"), ("ko", "13a")]
)
def test_the_tokenizer_is_the_languages(language, tokenizer):
    score, signature = generation.bleu(["我喜欢吃 GPT"], ["我喜欢吃 GPU"], language)
    assert f"|tok:{tokenizer}|" in signature
    if tokenizer != "13a":
        total, right = (5, 4) if tokenizer == "zh" else (7, 6)  # zh keeps GPT whole
        assert score == pytest.approx(
            geometric_mean(*((right - n) / (total - n) for n in range(4)))
        )


def test_chrf_by_hand():
    # 1-grams 2 of 2 and of 3, 2-grams 1 of 1 and of 2, no 3-gram made: precision 1, recall 7/12; F2
    # weighs recall.
    score, signature = generation.chrf(["a B"], ["a bC"], lowercase=True)
    assert score == pytest.approx(100 * 5 * (7 / 12) / (4 + 7 / 12))
    assert signature == f"nrefs:1|case:lc|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu_version}"
    mixed, signature = generation.chrf(["a B"], ["a bC"])
    assert mixed < score and "|case:mixed|" in signature


def test_tokenised_bleu_is_multi_bleus():
    words = ["der", "Der", "Hund", ".", "x\u00a0y", "中\u3000文", "\u2009", "don't", "é,"]
    for seed in range(8):
        r = random.Random(seed)
        wanted = [[r.choice(words) for _ in range(r.randint(0, 14))] for _ in range(30)]
        made = [
            [w if r.random() > 0.1 else r.choice(words) for w in line if r.random() > 0.1]
            for line in wanted
        ]
        made[seed] += (
            ["Hund"] * 30 * (seed % 2)
        )  # as often as it likes; and now longer than the references
        made, wanted = [" \t".join(line) for line in made], [" ".join(line) for line in wanted]
        score, signature = generation.tokenised_bleu(made, wanted)
        assert 5 < score == pytest.approx(multi_bleu(made, wanted))
        assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:")
    assert generation.tokenised_bleu(["a b c x d"], ["a b c y d"])[0] == 0  # no smoothing


def test_an_unknown_word_matches_nothing():
    line = "a b c d <unk> e"
    score, _ = generation.tokenised_bleu([line], [line])
    assert score == pytest.approx(geometric_mean(5 / 6, 3 / 5, 2 / 4, 1 / 3))
    assert generation.tokenised_bleu(["a b c d<unk>"], ["a b c d<unk>"])[0] == 0


def test_rouge_l_by_hand():
    gunman = ["police kill the gunman", "the gunman kill police"]  # Lin 2004, §3.1: 3/4 and 2/4
    assert generation.rouge_l(gunman, ["Police killed the gunman."] * 2, "en") == pytest.approx(
        100 * (3 / 4 + 2 / 4) / 2
    )
    longer = generation.rouge_l(["a b c d e f"], ["a c x"], "en")  # precision 2/6, recall 2/3
    assert longer == pytest.approx(100 * 2 * 2 / (6 + 3))
    assert generation.rouge_l(["", "a"], ["a", ""], "en") == 0


@pytest.mark.parametrize(
    ("language", "made", "wanted", "f1"),
    [
        ("ru", "Кошка сидит дома.", "кошка спит — дома", 2 / 3),
        ("ru", unicodedata.normalize("NFD", "Мой ёж"), "мой ёж", 1),
        ("hi", "हिन्दी किताब", "हिन्दू किताब", 1 / 2),  # the first words differ in their last mark
        ("hi", "क\u093cलम", "\u0958लम", 1),
        ("ar", "كِتاب جديد", "كِتاب قديم", 1 / 2),
        ("fa", "می\u200cخواهم بروم", "می خواهم بروم", 2 / 5),  # the joiner stands inside one word
        ("de", "a ❤\ufe0f 👍 b", "a b", 1),
        ("zh", "我喜欢苹果。", "我喜欢香蕉！", 3 / 5),
        ("zh_TW", "我 喜歡", "我喜歡狗", 6 / 7),
        ("ja", "猫が好き", "犬が好き", 3 / 4),
        ("th", "ที่นี่", "ที่นั้น", 8 / 13),  # marks count: 4 of 6 and of 7
        ("ko", "나는 간다", "나는 온다", 1 / 2),
    ],
)
def test_rouge_l_reads_every_script(language, made, wanted, f1):
    assert generation.rouge_l([made], [wanted], language) == pytest.approx(100 * f1)


def test_the_wrong_script_is_wrong():
    rate = generation.wrong_language_rate
    right = ["Собака спит.", "Это новый iPhone"]
    wrong = ["The dog sleeps.", "", " \n", "12 %", "iPhone 7 Plus: обзор", "ཨོཾ"]
    assert [rate([text], "ru") for text in right + wrong] == [0] * 2 + [1] * 6
    assert rate(right + wrong, "ru") == 6 / 8
    # As many letters: the target's.
    assert rate(["ab аб", "abc аб"], "ru") == 1 / 2
    assert rate(["abc"], "sr_Latn") == 0 == rate(["犬"], "zh_TW")
    # One script: not told without texts.
    assert rate(NEW["nl"], "de") == 0


@pytest.mark.parametrize("language", NEW)
def test_texts_tell_languages_of_one_script(language):
    for other, lines in NEW.items():
        assert generation.wrong_language_rate(lines, language, TEXTS) == (other != language)
    mixed = ["", NEW[language][0], "123", "собака спит"]
    assert generation.wrong_language_rate(mixed, language, TEXTS) == 3 / 4


def test_how_much_text_a_language_has_does_not_decide():
    r, letters = random.Random(0), "".join(TEXTS["de"]).lower()
    more = [" ".join("".join(r.choices(letters, k=6)) for _ in range(8)) for _ in range(100)]
    for texts in (
        {**TEXTS, "de": TEXTS["de"] + more},
        {**TEXTS, "nl": TEXTS["nl"] * 300, "en": TEXTS["en"] * 300},
    ):
        assert generation.wrong_language_rate(NEW["de"], "de", texts) == 0
        assert generation.wrong_language_rate(NEW["nl"] + NEW["en"], "de", texts) == 1


def test_naive_bayes_by_the_formula():
    texts = {"de": ["ab a bba"], "nl": ["bb a aaa"]}

    def grams(text):
        text = f" {text} "
        return [text[i : i + n] for n in (1, 2, 3) for i in range(len(text) - n + 1)]

    count = {code: Counter(grams(lines[0])) for code, lines in texts.items()}
    every = set(count["de"]) | set(count["nl"])

    def log_likelihood(code, text):
        total = sum(count[code].values()) + len(every)
        known = [gram for gram in grams(" ".join(text.split())) if gram in every]
        return sum(math.log((count[code][gram] + 1) / total) for gram in known)

    outputs = ["".join(letters) for n in range(1, 7) for letters in product("ab ", repeat=n)]
    for text, likely in zip(outputs, generation._likeliest("de", texts, outputs), strict=True):
        of_de, of_nl = log_likelihood("de", text), log_likelihood("nl", text)
        if abs(of_de - of_nl) > 1e-6:
            assert likely == (of_de > of_nl)


def test_a_language_whose_script_is_open_needs_texts():
    texts = {"sr": ["Мачка спава", "Mačka spava na krovu"], "en": ["The cat sleeps on the roof"]}
    assert generation.wrong_language_rate(["мачка", "mačka na", "the cat"], "sr", texts) == 1 / 3
    # Likely, but no letters; a rival in any script.
    digits = {"sr": ["a b c 12 %..."], "en": ["abcdefghijklm"]}
    assert generation.wrong_language_rate(["", "...", "12 %"], "sr", digits) == 1
    assert generation.wrong_language_rate(["the cat", "mačka na"], "en", texts) == 1 / 2
    with pytest.raises(UserError, match="script of 'sr' is unknown.*sr_Latn"):
        generation.wrong_language_rate(["a"], "sr", {"sr": ["Мачка"]})
    with pytest.raises(UserError, match=r"no texts of de .*\(sr, en\)"):
        generation.wrong_language_rate(["a"], "de", texts)


def test_score_names_every_number():
    made, wanted = ["The Cat sat on a mat.", "the dog ."], ["The cat sat on a mat.", "Der Hund ."]
    scores = generation.score(made, wanted, "de", True, {"de": TEXTS["de"], "en": TEXTS["en"]})
    signed = {
        "bleu": generation.bleu(made, wanted, "de", True),
        "chrf": generation.chrf(made, wanted, True),
        "tokenised_bleu": generation.tokenised_bleu(made, wanted),
    }
    assert scores.pop("signatures") == {name: told for name, (_, told) in signed.items()}
    plain = {"rouge_l": 50.0, "wrong_language_rate": 1.0}
    assert scores == {name: value for name, (value, _) in signed.items()} | plain
    assert generation.score(made, wanted, "de")["bleu"] < scores["bleu"]
