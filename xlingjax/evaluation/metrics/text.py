"""Metrics of generated text: sacreBLEU, chrF, multi-bleu.perl, ROUGE-L, wrong languages.

Every number has its own name: the two kinds of BLEU differ by points on the same outputs and are
never averaged. Each function takes one reference per hypothesis, in the same order, and raises
UserError where their numbers differ or there are none. A language is a code, with or without a
region or script: "de", "zh", "zh_TW".
"""

import string
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from xlingjax.data.languages import base_language
from xlingjax.data.scripts import is_unspaced, letters_in, main_script, script_of_language
from xlingjax.errors import UserError

Texts = Sequence[str]
Signed = tuple[float, str]  # a score and its signature

# Python splits at more characters than Perl does in bytes (no-break space): they are hidden.
_HIDDEN = {
    code: 0xF0000 + code
    for code in range(0x3001)
    if chr(code).isspace() and chr(code) not in string.whitespace
}


def _check(hypotheses: Texts, references: Texts) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: give one of each per"
            " line, in order"
        )
    if not len(hypotheses):
        raise UserError("0 hypotheses and 0 references: there is nothing to score")


def _corpus_score(metric, hypotheses: Texts, references: Texts) -> Signed:
    _check(hypotheses, references)
    # A list of lists, since sacreBLEU takes several references of each line.
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return value, str(metric.get_signature())


def bleu(hypotheses: Texts, references: Texts, language: str, lowercase: bool = False) -> Signed:
    """(sacreBLEU in 0..100, its signature) of running text, not tokenised (Post 2018).

    Tokens: "zh" for Chinese, "char" for the other languages without spaces (Japanese, Thai, ...),
    "13a" otherwise, by what the code means (zho_Hans, yue, jpn_Jpan);
    none needs a further package. XGLUE's QG and NTG are `lowercase`, divided by 100
    (`xglue_evaluate.py`).
    """
    # 13a would take a sentence for one token; "zh" splits ideographs, and Latin words stay whole.
    tokenizer = "13a"
    if is_unspaced(language):
        is_chinese = script_of_language(language) == "Han" and base_language(language) != "ja"
        tokenizer = "zh" if is_chinese else "char"
    metric = BLEU(lowercase=lowercase, tokenize=tokenizer)
    return _corpus_score(metric, hypotheses, references)


def chrf(hypotheses: Texts, references: Texts, lowercase: bool = False) -> Signed:
    """(chrF2 in 0..100, sacreBLEU's signature): character 1- to 6-grams (Popović 2015)."""
    return _corpus_score(CHRF(lowercase=lowercase), hypotheses, references)


def tokenised_bleu(hypotheses: Texts, references: Texts) -> Signed:
    """(BLEU in 0..100 as by multi-bleu.perl, sacreBLEU's signature) of tokenised texts.

    Tokens stand between ASCII whitespace; case counts; no smoothing: without one common 4-gram it
    is 0. `<unk>` in a reference matches nothing (XLM, `create_reference_files`).
    """
    made = [line.translate(_HIDDEN) for line in hypotheses]
    wanted = []
    for line in references:
        # A model that writes <unk> must not be rewarded for one in the reference.
        wanted.append(line.replace("<unk>", "<<unk>>").translate(_HIDDEN))
    # force: no warning that the text is tokenised.
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return _corpus_score(metric, made, wanted)


class _Tokens:
    """The `tokenizer` of rouge_score for any script; its own keeps a-z and 0-9 alone."""

    def __init__(self, characters: bool):
        self.characters = characters

    def tokenize(self, text: str) -> list[str]:
        kept = []
        # Composed, so that a letter and its accent are one character in either text.
        for c in unicodedata.normalize("NFC", text).lower():
            kind = unicodedata.category(c)
            # Joiners and soft hyphens stand inside words.
            if kind == "Cf":
                continue
            # A mark continues what it is written on, letter or punctuation (an emoji's selector).
            continues = kind[0] == "M" and kept and kept[-1] != " "
            # By category and not by "\w": digits and letters of every script are words here.
            if kind[0] in "LN" or continues:
                kept.append(c)
            else:
                kept.append(" ")
        words = "".join(kept).split()
        if self.characters:
            # Spaces mean nothing there, and a line that has some is no other text.
            return list("".join(words))
        return words


def rouge_l(hypotheses: Texts, references: Texts, language: str) -> float:
    """Mean over the lines of ROUGE-L's F1 (beta 1, a line as one sentence), in 0..100 (Lin 2004,
    §3), by rouge_score.

    Tokens are lower-cased words, unstemmed, or single characters where a language has no spaces
    (zh, ja, th, ...); punctuation is none. In ASCII text the words are those of rouge_score's own
    tokenizer.
    """
    from rouge_score.rouge_scorer import RougeScorer  # imports nltk: seconds

    _check(hypotheses, references)
    tokens = _Tokens(characters=is_unspaced(language))
    scorer = RougeScorer(["rougeL"], tokenizer=tokens)
    values = [
        scorer.score(reference, made)["rougeL"].fmeasure
        for reference, made in zip(references, hypotheses, strict=True)
    ]
    return 100 * float(np.mean(values))


def _likeliest(language: str, texts: Mapping[str, Texts], outputs: Texts) -> np.ndarray:
    """Of each output, whether no other language of `texts` is likelier: naive Bayes on character 1-
    to 3-grams, add-one smoothing, uniform prior, n-grams that no text has left out."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB

    joined = {code: " ".join(" ".join(lines).split()) for code, lines in texts.items()}
    if empty := [code for code, text in joined.items() if not text]:
        raise UserError(
            f"no text of {', '.join(empty)} to tell languages by: give its lines, or leave the"
            " code out"
        )
    # As much of each: add-one smoothing favours whichever has more.
    size = min(map(len, joined.values()))
    # A space at either end, so that n-grams tell how words begin and end.
    counts = CountVectorizer(analyzer="char", ngram_range=(1, 3), preprocessor=_spaced)
    fitted = counts.fit_transform([text[:size] for text in joined.values()])
    model = MultinomialNB(fit_prior=False).fit(fitted, range(len(joined)))
    scores = model.predict_joint_log_proba(counts.transform(outputs))
    # Less a little, so that rounding decides no tie.
    return scores[:, list(joined).index(language)] >= scores.max(axis=1) - 1e-9


def _spaced(text: str) -> str:
    return f" {' '.join(text.lower().split())} "


def wrong_language_rate(
    hypotheses: Texts,
    language: str,
    references_by_language: Mapping[str, Texts] | None = None,
) -> float:
    """Share of the outputs, in 0..1, not in `language`, as those without letters are not.

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
    # Text in another script is told apart already, and needs no classifier.
    rivals = {
        code: lines
        for code, lines in texts.items()
        if not script or script_of_language(code) in (script, None)
    }
    if not script and len(rivals) < 2:
        raise UserError(
            f"the script of {language!r} is unknown, or it has several: name it as in"
            f" {language}_Latn, or give texts of this and another language as"
            " references_by_language"
        )
    right = np.array([_written_in(script, text) for text in hypotheses])
    # Of what has no letters: it would be any language to the classifier.
    if len(rivals) > 1:
        right &= _likeliest(language, rivals, hypotheses)
    return float(np.mean(~right))


def _written_in(script: str | None, text: str) -> bool:
    """Whether most letters are of the script, None: of any."""
    if not script:
        return any(c.isalpha() for c in text)
    # Names and numbers may be of another script: what most letters are of counts.
    main = main_script(text)
    return main is not None and letters_in(script, text) >= letters_in(main, text)


def score(
    hypotheses: Texts,
    references: Texts,
    language: str,
    lowercase: bool = False,
    references_by_language: Mapping[str, Texts] | None = None,
) -> dict:
    """{"bleu", "chrf", "tokenised_bleu", "rouge_l": 0..100, "wrong_language_rate": 0..1,
    "signatures": {name: string}}.

    `lowercase` holds for `bleu` and `chrf`, as their signatures say; `tokenised_bleu` keeps case
    and reads the texts as they are, `rouge_l` never keeps it. Raises UserError as the functions do.
    """
    _check(hypotheses, references)
    # Before the slow ones: it may refuse.
    wrong = wrong_language_rate(hypotheses, language, references_by_language)
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
