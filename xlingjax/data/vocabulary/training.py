"""A SentencePiece vocabulary, trained on an alpha-smoothed sample of languages, and its report.

XLM §3.1: sentences are drawn from language i with q_i ~ (n_i / sum n)^alpha, alpha = 0.5, so that
words of small languages are not split into characters.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.languages import check_spellings
from xlingjax.data.sampling import smoothed
from xlingjax.data.text.sources import Patterns, find_pairs, find_text
from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary.sentencepiece import XLM_SPECIAL_PIECES, Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.files import write_bytes, write_text
from xlingjax.runtime.progress import doing

LONGEST_LINE = 16_384  # bytes of a line that SentencePiece learns from; it passes over longer ones
PART = LONGEST_LINE // 8  # characters of the parts that longer ones are cut in
REPORT_LINES = 5000  # lines of each language that the report looks at, evenly spaced over its text


def texts_by_language(
    mono: Patterns = (),
    parallel: Patterns = (),
    require_aligned: bool = False,
) -> dict[str, list[Text]]:
    """The texts behind the patterns, sides of pairs included, by sorted language. Raises UserError
    if there is none; require_aligned: and for pairs of unequal lengths, which are read for that."""
    texts = []
    if mono:
        texts += find_text(mono)
    if parallel:
        for pair in find_pairs(parallel):
            if require_aligned:
                deque(pair.lines(), maxlen=0)
            # Sides of pairs are text of their languages, and small ones may have no other.
            texts += [pair.first, pair.second]
    if not texts:
        raise UserError("no text to read; give monolingual or parallel files")
    languages = sorted({text.language for text in texts})
    check_spellings(languages)
    by_language: dict[str, list[Text]] = {}
    for language in languages:
        by_language[language] = [text for text in texts if text.language == language]
    return by_language


def sentences_of(texts: Sequence[Text]) -> Iterator[str]:
    """Lines, and the parts of those that SentencePiece would pass over."""
    for text in texts:
        doing(f"reading {text.path}")
        for line in text.lines():
            if len(line) > PART and len(line.encode()) > LONGEST_LINE:
                yield from _parts(line)
            elif line:
                yield line


def _parts(line: str) -> Iterator[str]:
    """Cut at spaces where there are some."""
    begin = 0
    while begin < len(line):
        end = begin + PART
        space = line.rfind(" ", begin + 1, end)
        if end < len(line) and space > 0:
            end = space
        if part := line[begin:end].strip():
            yield part
        begin = end


def _sample(
    texts: Sequence[Text], count: int, wanted: int, rng: np.random.Generator
) -> Iterator[str]:
    """`wanted` of the `count` sentences in their order, each equally often, give or take one."""
    # All sentences the same number of times: drawing with repeats would leave some out.
    times = np.full(count, wanted // count)
    once_more = rng.permutation(count)[: wanted % count]
    times[once_more] += 1
    for repeat, sentence in zip(times, sentences_of(texts), strict=True):
        yield from [sentence] * int(repeat)


def smoothed_sample(
    by_language: Mapping[str, Sequence[Text]], alpha: float, sentences: int, seed: int
) -> tuple[Iterator[str], dict[str, int]]:
    """(a sample of at most `sentences` sentences, language after language, how many are of each).
    Raises UserError for a language without any."""
    # Read once to count and once to draw: the text need not fit into memory.
    counts = {language: _count(texts) for language, texts in by_language.items()}
    for language, count in counts.items():
        if count == 0:
            raise UserError(
                f"empty corpus: no sentence of '{language}' in {by_language[language][0].path}"
            )
    shares = smoothed(list(counts.values()), alpha)
    total = min(sentences, sum(counts.values()))
    wanted = {}
    for language, share in zip(counts, shares, strict=True):
        # At least one, so that the rarest language has its letters in the sample.
        wanted[language] = max(1, round(total * share))
    rng = np.random.default_rng(seed)

    def sample() -> Iterator[str]:
        for language, texts in by_language.items():
            yield from _sample(texts, counts[language], wanted[language], rng)

    return sample(), wanted


def _count(texts: Sequence[Text]) -> int:
    return sum(1 for _ in sentences_of(texts))


def learnt(lines: Iterator[str], pieces: int, threads: int, **options: Any) -> bytes:
    """A SentencePiece model. options: SentencePiece's. Raises RuntimeError: see `explain`."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        vocab_size=pieces,
        # A sample is drawn already, by our seed.
        shuffle_input_sentence=False,
        # SentencePiece passes over longer lines than this, by default than 4192 bytes.
        max_sentence_length=LONGEST_LINE,
        num_threads=threads,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def train_vocabulary(
    out: str | os.PathLike,
    *,
    mono: Patterns = (),
    parallel: Patterns = (),
    size: int = 32_000,
    model_type: str = "unigram",
    character_coverage: float = 0.9995,
    byte_fallback: bool = False,
    alpha: float = 0.5,
    sentences: int = 1_000_000,
    normalization: str = "nmt_nfkc",
    sentinels: int = 0,
    seed: int = 0,
    threads: int = 2,
) -> Vocabulary:
    """Trains a vocabulary of `size` pieces (specials included), or of as many as the text has where
    it is too small, and writes `out`/vocab.model and `out`/vocab.json.

    The sample holds at most `sentences` sentences, shared out over languages by `alpha` and
    repeated where a language has fewer. `model_type` is unigram or bpe; `normalization` a
    SentencePiece rule (nmt_nfkc, nmt_nfkc_cf to fold case, identity). `sentinels`: special tokens
    beside the ten of XLM, for the spans of span corruption (T5 has 100). The same files and options
    give the same bytes. Raises UserError: no text, a size that cannot hold its characters, a folder
    that cannot be written.
    """
    if model_type not in ("unigram", "bpe"):
        raise UserError(f"unknown model_type '{model_type}'; use unigram or bpe")
    by_language = texts_by_language(mono, parallel, require_aligned=True)
    options = {
        "model_type": model_type,
        "character_coverage": character_coverage,
        "byte_fallback": byte_fallback,
    }
    # Control symbols, not user-defined ones: written in a text they are cut up like other words.
    special = [*XLM_SPECIAL_PIECES[4:], *(f"<special{10 + i}>" for i in range(sentinels))]

    def trained(pieces: int) -> tuple[bytes, dict[str, int]]:
        """The model of so many pieces; how many sentences of each language it was drawn from."""
        sample, wanted = smoothed_sample(by_language, alpha, sentences, seed)
        model = learnt(
            sample,
            pieces,
            threads,
            **options,
            normalization_rule_name=normalization,
            # Ids of layout "xlm", in the model itself: no table stands between it and the run.
            bos_id=0,
            eos_id=1,
            pad_id=2,
            unk_id=3,
            control_symbols=special,
        )
        return model, wanted

    try:
        model_bytes, wanted = trained(size)
    except RuntimeError as error:
        # SentencePiece tells the largest when it has looked at all of the text.
        most = most_pieces(str(error))
        if most is None:
            raise UserError(explain(str(error), size)) from None
        model_bytes, wanted = trained(most)
    vocabulary = Vocabulary(model_bytes, "xlm")
    report = {
        "layout": "xlm",
        "sha256": vocabulary.sha256,
        "size": vocabulary.size,
        **options,
        "normalization": normalization,
        "alpha": alpha,
        "seed": seed,
        "sampled_sentences": wanted,
        "languages": vocabulary_report(vocabulary, by_language),
    }
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / "vocab.model", vocabulary.model_bytes)
    write_text(out / "vocab.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return vocabulary


def most_pieces(message: str) -> int | None:
    """How many pieces the text has, if SentencePiece failed for too few; else None."""
    most = re.search(r"set it to a value <= (\d+)", message)
    return int(most[1]) if most else None


def explain(message: str, size: int) -> str:
    """SentencePiece's failure as one line with the remedy."""
    # SentencePiece has one exception for everything; only its text tells what is wrong.
    most = most_pieces(message)
    if most is not None:
        return f"the text is too small for {size} pieces; set the size to at most {most}"
    characters = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if characters:
        return (
            f"{size} pieces cannot hold the characters of the text; set the size to more than"
            f" {characters[1]}"
        )
    return f"SentencePiece could not train: {message.strip()}"


def vocabulary_report(
    vocabulary: Vocabulary, by_language: Mapping[str, Sequence[Text]]
) -> dict[str, dict[str, Any]]:
    """How a vocabulary cuts each language, on up to `REPORT_LINES` lines over its text.

    Per language: sentences; `pieces` seen at least once; `unknown_rate` = unknown pieces / pieces;
    `fertility` = pieces per word between spaces (of little meaning where a script has none);
    `pieces_per_character`, spaces not counted.
    """
    report = {}
    for language, texts in by_language.items():
        count = _count(texts)
        step = max(1, count // REPORT_LINES)
        lines = list(itertools.islice(sentences_of(texts), 0, None, step))
        ids, _ = vocabulary.encode_lines(lines)
        words = [word for line in lines for word in line.split()]
        # Without spaces, so that scripts with and without them can be compared.
        characters = sum(map(len, words))
        unknown = int(np.sum(ids == vocabulary.unk_id))
        report[language] = {
            "sentences": count,
            "pieces": int(np.unique(ids).size),
            "unknown_rate": round(unknown / max(ids.size, 1), 6),
            "fertility": round(ids.size / max(len(words), 1), 4),
            "pieces_per_character": round(ids.size / max(characters, 1), 4),
        }
    return report


_COLUMNS = {
    "sentences": ",",
    "pieces": ",",
    "unknown_rate": ".3%",
    "fertility": ".2f",
    "pieces_per_character": ".3f",
}


def format_report(
    report: Mapping[str, Mapping[str, Any]], before: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """The report as a table for the terminal. before: that of another vocabulary, beside it."""
    lines = ["language  " + "".join(f"{name:>21}" for name in _COLUMNS)]
    for language in report:
        line = f"{language:<10}"
        for name, form in _COLUMNS.items():
            cells = [format(one[language][name], form) for one in (before or report, report)]
            # Sentences are the same for both.
            line += f"{' -> '.join(dict.fromkeys(cells)):>21}"
        lines.append(line)
    return "\n".join(lines)
