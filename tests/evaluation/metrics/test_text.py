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
    assert (
        score == pytest.approx(geometric_mean(5 / 6, 4 / 5, 3 / 4, 2 / 3))
        and "|case:lc|" in signature
    )
    smoothed, _ = generation.bleu(
        ["a b c x d"], ["a b c y d"], "en"
    )  # no 4-gram of two: 1 / (2 * 2)
    assert smoothed == pytest.approx(geometric_mean(4 / 5, 2 / 4, 1 / 3, 1 / 4))
    corpus, _ = generation.bleu(
        ["a b c d", "e f"], ["a b c d", "e f g h"], "en"
    )  # counted over lines, not their mean
    assert corpus == pytest.approx(100 * math.exp(1 - 8 / 6))


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("zh", "zh"),
        ("zh_TW", "zh"),
        ("zh-Hans", "zh"),
        ("ja", "char"),
        ("th", "char"),
        ("km", "char"),
    ]
    + [("ko", "13a"), ("de", "13a"), ("hi", "13a")],
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
        assert (
            signature
            == f"nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:{sacrebleu_version}"
        )
    assert generation.tokenised_bleu(["a b c x d"], ["a b c y d"])[0] == 0  # no smoothing
    assert (
        generation.tokenised_bleu(["a b c d x\u00a0y"], ["a b c d x\u2009y"])[0] < 90
    )  # they stay what they are
    assert (
        generation.tokenised_bleu([""], ["a"])[0] == generation.tokenised_bleu(["a"], [""])[0] == 0
    )


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
    made = [
        "Собака спит.",
        "The dog sleeps.",
        "",
        " \n",
        "12 %",
        "Это новый iPhone",
        "iPhone 7 Plus: обзор",
        "ཨོཾ",
    ]
    right = [True, False, False, False, False, True, False, False]
    assert [generation.wrong_language_rate([text], "ru") == 0 for text in made] == right
    assert generation.wrong_language_rate(made, "ru") == 6 / 8
    assert generation.wrong_language_rate(["ab где", "ab привет"], "ru") == 0
    assert (
        generation.wrong_language_rate(["ab аб", "abc аб"], "ru") == 1 / 2
    )  # as many letters: the target's
    assert (
        generation.wrong_language_rate(["abc"], "sr_Latn")
        == 0
        == generation.wrong_language_rate(["犬"], "zh_TW")
    )
    assert (
        generation.wrong_language_rate(NEW["nl"], "de") == 0
    )  # one script: not told without texts


@pytest.mark.parametrize("language", NEW)
def test_texts_tell_languages_of_one_script(language):
    for other, lines in NEW.items():
        assert generation.wrong_language_rate(lines, language, TEXTS) == (other != language)
    assert (
        generation.wrong_language_rate(
            ["", NEW[language][0], "123", "собака спит"], language, TEXTS
        )
        == 3 / 4
    )


def test_how_much_text_a_language_has_does_not_decide():
    r, letters = random.Random(0), "".join(TEXTS["de"]).lower()
    more = [" ".join("".join(r.choices(letters, k=6)) for _ in range(8)) for _ in range(100)]
    for texts in (
        {**TEXTS, "de": TEXTS["de"] + more},
        {**TEXTS, "nl": TEXTS["nl"] * 300, "en": TEXTS["en"] * 300},
    ):
        assert generation.wrong_language_rate(NEW["de"], "de", texts) == 0
        assert generation.wrong_language_rate(NEW["nl"] + NEW["en"], "de", texts) == 1


@pytest.mark.parametrize(
    ("x", "y", "text", "is_x"),
    [
        ("aab", "abb", "a", True),  # each order decides where the lower ones do not
        ("aab", "abb", "b", False),
        ("a b c a", "a c b a", "qbq", True),
        ("abacada", "acabada", "bac", True),
        ("acabada", "abacada", "bac", False),
        ("A" * 12, "b" * 12, "aaa", True),  # case is no evidence
        (
            "a" * 20,
            "aaaacefghijklmno",
            "aaaaaaaaac",
            True,
        ),  # add-one: n-grams not seen do not outweigh the rest
        ("abc", "abd", "zzz", True),  # nothing to go by: not shown wrong
    ],
)
def test_naive_bayes_by_hand(x, y, text, is_x):
    texts = {"de": [x], "nl": [y]}
    assert generation.wrong_language_rate([text], "de", texts) == (not is_x)
    likely = generation._likeliest("nl", texts, [text])
    assert likely.tolist() == [not is_x or text in ("qbq", "zzz")]


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
    digits = {"sr": ["a b c 12 %..."], "en": ["abcdefghijklm"]}
    assert generation._likeliest("sr", digits, ["..."]).all()
    assert (
        generation.wrong_language_rate(["", "...", "12 %"], "sr", digits) == 1
    )  # likely, but no letters
    assert (
        generation.wrong_language_rate(["the cat", "mačka na"], "en", texts) == 1 / 2
    )  # a rival in any script
    for given in (None, {}, {"sr": ["Мачка"]}):
        with pytest.raises(UserError, match="script of 'sr' is unknown.*sr_Latn"):
            generation.wrong_language_rate(["a"], "sr", given)
    with pytest.raises(UserError, match=r"no texts of de .*\(sr, en\)"):
        generation.wrong_language_rate(["a"], "de", texts)
    with pytest.raises(UserError, match="no text of nl "):
        generation.wrong_language_rate(["a"], "de", {"de": ["ein"], "nl": [" ", ""]})
    with pytest.raises(UserError, match="0 hypotheses"):
        generation.wrong_language_rate([], "de")


def test_score_names_every_number():
    made, wanted = ["The Cat sat on a mat.", "the dog ."], ["The cat sat on a mat.", "Der Hund ."]
    scores = generation.score(made, wanted, "de", True, {"de": TEXTS["de"], "en": TEXTS["en"]})
    bleu, chrf = generation.bleu(made, wanted, "de", True), generation.chrf(made, wanted, True)
    tokenised = generation.tokenised_bleu(made, wanted)
    assert scores == {
        "bleu": bleu[0],
        "chrf": chrf[0],
        "tokenised_bleu": tokenised[0],
        "rouge_l": 50.0,
        "wrong_language_rate": 1.0,
        "signatures": {"bleu": bleu[1], "chrf": chrf[1], "tokenised_bleu": tokenised[1]},
    }
    assert len({scores["bleu"], scores["chrf"], scores["tokenised_bleu"]}) == 3
    mixed = generation.score(made, wanted, "de")
    assert (
        mixed["bleu"] < scores["bleu"]
        and mixed["chrf"] < scores["chrf"]
        and mixed["wrong_language_rate"] == 0
    )
    assert (
        mixed["tokenised_bleu"] == scores["tokenised_bleu"]
        and "case:mixed" in mixed["signatures"]["bleu"]
    )
