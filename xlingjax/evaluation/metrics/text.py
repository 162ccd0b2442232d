"""Metrics of generated text: sacreBLEU, chrF, multi-bleu.perl's BLEU, ROUGE-L, and the share in the
wrong language.

Every number has its own name: the two kinds of BLEU differ by points on the same outputs and are
never averaged. Each function takes one reference per hypothesis, in the same order, and raises
UserError where their numbers differ or there are none. A language is a code, with or without a
region or script: "de", "zh", "zh_TW".
"""

import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from xlingjax.data.scripts import letters_in, main_script, script_of_language
from xlingjax.data.vocabulary.word_pieces import UNSPACED, base_language
from xlingjax.errors import UserError

# Python splits at more characters than Perl does in bytes, such as the no-break space: they are
# hidden from it.
_HIDDEN = {
    i: 0xF0000 + i
    for i in range(0x3001)
    if chr(i).isspace() and chr(i) not in string.whitespace
}


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: give one of each per"
            " line, in order"
        )
    if not len(hypotheses):
        raise UserError("0 hypotheses and 0 references: there is nothing to score")


# --- BLEU and chrF --------------------------------------------------------------------------------


def _corpus_score(
    metric, hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[float, str]:
    _check(hypotheses, references)
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return value, str(metric.get_signature())


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    lowercase: bool = False,
) -> tuple[float, str]:
    """(sacreBLEU in 0..100, its signature) of running text, not tokenised (Post 2018).

    Tokens: "zh" for Chinese, "char" for the other languages without spaces (Japanese, Thai, ...),
    "13a" otherwise;
    none needs a further package. XGLUE's QG and NTG are `lowercase`, divided by 100
    (`xglue_evaluate.py`).
    """
    tokenizer = (
        "zh"
        if base_language(language) == "zh"
        else "char"
        if base_language(language) in UNSPACED
        else "13a"
    )
    return _corpus_score(
        BLEU(lowercase=lowercase, tokenize=tokenizer), hypotheses, references
    )


def chrf(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> tuple[float, str]:
    """(chrF2 in 0..100, sacreBLEU's signature): character 1- to 6-grams without spaces (Popović
    2015)."""
    return _corpus_score(CHRF(lowercase=lowercase), hypotheses, references)


def tokenised_bleu(
    hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[float, str]:
    """(BLEU in 0..100 as multi-bleu.perl computes it, sacreBLEU's signature): the caller has
    tokenised the texts.

    Tokens stand between ASCII whitespace; case counts; no smoothing: without one common 4-gram it
    is 0. `<unk>` in a reference matches nothing (XLM, `create_reference_files`).
    """
    references = [
        line.replace("<unk>", "<<unk>>").translate(_HIDDEN) for line in references
    ]
    metric = BLEU(
        tokenize="none", smooth_method="none", force=True
    )  # force: no warning that the text is tokenised
    return _corpus_score(
        metric, [line.translate(_HIDDEN) for line in hypotheses], references
    )


# --- ROUGE-L --------------------------------------------------------------------------------------


class _Tokens:
    """The `tokenizer` of rouge_score for any script; its own keeps a-z and 0-9 alone."""

    def __init__(self, characters: bool):
        self.characters = characters

    def tokenize(self, text: str) -> list[str]:
        kept: list[str] = []
        for c in unicodedata.normalize("NFC", text).lower():
            kind = unicodedata.category(c)
            if kind != "Cf":  # joiners and soft hyphens stand inside words
                # A mark continues what it is written on, letter or punctuation (an emoji's
                # variation selector).
                inside = kind[0] in "LN" or (
                    kind[0] == "M" and kept and kept[-1] != " "
                )
                kept.append(c if inside else " ")
        words = "".join(kept).split()
        return list("".join(words)) if self.characters else words


def rouge_l(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> float:
    """Mean over the lines of ROUGE-L's F1 (beta 1, a line as one sentence), in 0..100 (Lin 2004,
    §3), by rouge_score.

    Tokens are lower-cased words, unstemmed, or single characters where a language has no spaces
    (zh, ja, th, ...); punctuation is none. In ASCII text the words are those of rouge_score's own
    tokenizer.
    """
    from rouge_score.rouge_scorer import RougeScorer  # imports nltk: seconds

    _check(hypotheses, references)
    scorer = RougeScorer(
        ["rougeL"], tokenizer=_Tokens(base_language(language) in UNSPACED)
    )
    pairs = zip(references, hypotheses, strict=True)
    return 100 * float(
        np.mean(
            [
                scorer.score(reference, made)["rougeL"].fmeasure
                for reference, made in pairs
            ]
        )
    )


# --- Wrong language -------------------------------------------------------------------------------


def _grams(text: str) -> list[str]:
    text = f" {' '.join(text.lower().split())} "
    return [text[i : i + n] for n in (1, 2, 3) for i in range(len(text) - n + 1)]


def _likeliest(
    language: str, texts: Mapping[str, Sequence[str]]
) -> Callable[[str], bool]:
    """Whether no other language of `texts` is likelier: naive Bayes on character 1- to 3-grams,
    add-one smoothing, uniform prior, n-grams that no text has left out."""
    joined = {code: " ".join(" ".join(lines).split()) for code, lines in texts.items()}
    if empty := [code for code, text in joined.items() if not text]:
        raise UserError(
            f"no text of {', '.join(empty)} to tell languages by: give its lines, or leave the"
            " code out"
        )
    size = min(
        map(len, joined.values())
    )  # as much of each: add-one smoothing favours whichever has more
    counts = [Counter(_grams(text[:size])) for text in joined.values()]
    columns = {gram: column for column, gram in enumerate(sorted(set().union(*counts)))}
    table = np.array([[1.0 + count[gram] for gram in columns] for count in counts])
    table = np.log(table / table.sum(1, keepdims=True))
    row = list(joined).index(language)

    def test(text: str) -> bool:
        scores = table[
            :, [columns[gram] for gram in _grams(text) if gram in columns]
        ].sum(1)
        return bool(scores[row] >= scores.max())

    return test


def wrong_language_rate(
    hypotheses: Sequence[str],
    language: str,
    references_by_language: Mapping[str, Sequence[str]] | None = None,
) -> float:
    """Share of the outputs, in 0..1, that are not in `language`; those without letters, empty ones
    too, are not.

    An output whose letters are mostly of another script is wrong (Chinese and Japanese count as one
    script). Languages of one script are told apart by `references_by_language`: texts of each,
    `language` among them, {code: lines}, on which a classifier of character n-grams is fitted; as
    much of each as the shortest has is read. Without it, every output in the right script counts as
    right. Raises UserError where the code's script is unknown (or several) and there are no texts
    of two languages, where `language` is not among the texts, or where one of them is empty.
    """
    if not len(hypotheses):
        raise UserError("0 hypotheses: there is nothing to tell the language of")
    script, texts = script_of_language(language), references_by_language or {}
    if texts and language not in texts:
        raise UserError(
            f"no texts of {language} among those to tell languages by ({', '.join(texts)}): add"
            " some"
        )
    # Only rivals that the script leaves open.
    texts = {
        code: lines
        for code, lines in texts.items()
        if not script or script_of_language(code) in (script, None)
    }
    if not script and len(texts) < 2:
        raise UserError(
            f"the script of {language!r} is unknown, or it has several: name it as in"
            f" {language}_Latn, or give texts of this and another language as"
            " references_by_language"
        )
    likeliest = _likeliest(language, texts) if len(texts) > 1 else None

    def right(text: str) -> bool:
        main = main_script(text)
        if script:
            written = main is not None and letters_in(script, text) >= letters_in(
                main, text
            )
        else:
            written = any(c.isalpha() for c in text)
        return written and (likeliest is None or likeliest(text))

    return float(np.mean([not right(text) for text in hypotheses]))


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    lowercase: bool = False,
    references_by_language: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """{"bleu", "chrf", "tokenised_bleu", "rouge_l": 0..100, "wrong_language_rate": 0..1,
    "signatures": {name: string}}.

    `lowercase` holds for `bleu` and `chrf`, as their signatures say; `tokenised_bleu` keeps case
    and reads the texts as they are, `rouge_l` never keeps it. Raises UserError as the functions do.
    """
    _check(hypotheses, references)
    wrong = wrong_language_rate(
        hypotheses, language, references_by_language
    )  # before the slow ones: it may refuse
    signed = {
        "bleu": bleu(hypotheses, references, language, lowercase),
        "chrf": chrf(hypotheses, references, lowercase),
        "tokenised_bleu": tokenised_bleu(hypotheses, references),
    }
    return {name: value for name, (value, _) in signed.items()} | {
        "rouge_l": rouge_l(hypotheses, references, language),
        "wrong_language_rate": wrong,
        "signatures": {name: signature for name, (_, signature) in signed.items()},
    }
