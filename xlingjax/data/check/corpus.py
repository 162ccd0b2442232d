"""What is wrong with a corpus, found before a run: the engine of `xlingjax data check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.check.findings import Findings, counted_lines
from xlingjax.data.languages import spelled_twice, twice
from xlingjax.data.overlap import HeldOut, Overlap, normalised
from xlingjax.data.rows.plan import LeftOut, Rows, pair_rows, stream_rows
from xlingjax.data.rows.reader import side_bases
from xlingjax.data.sampling import Sampling, sampling_table
from xlingjax.data.scripts import letters_in, main_script, script_of_language
from xlingjax.data.store.blocks import pair_blocks, text_blocks
from xlingjax.data.store.tokenise import tokenise
from xlingjax.data.store.tokens import id_dtype
from xlingjax.data.text.files import read_raw_lines
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.data.text.texts import Pair, Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

LONG_LINE = 5000
"""Characters beyond which a line is probably not a sentence."""
LENGTH_BYTES = 4
"""Of the number of tokens of a line in the token cache."""
MANY = {"repeated": 0.2, "copied": 0.01, "empty": 0.0, "unknown": 0.01}
"""Shares above which a finding is a warning; below it is a note."""


def check(
    mono: str | Sequence[str] = (),
    parallel: str | Sequence[str] = (),
    vocabulary: Vocabulary | None = None,
    *,
    batch: int = 32,
    length: int = 256,
    steps: int | None = None,
    sampling: Sampling | None = None,
    max_pieces: int = 100,
    held_out: Sequence[HeldOut] = (),
) -> Findings:
    """Reads every line once and reports what is wrong with it.

    With a vocabulary it also tokenises (into the cache, where a run will find it) and reports
    tokens, unknown pieces and the epochs per language of a run of `steps` steps (default: per 1000)
    of `batch` rows of `length` tokens. Patterns that match nothing or files whose language cannot
    be told are errors among the findings. held_out: what should not stand in the text.
    """
    findings = Findings(steps=steps, overlap=Overlap(held_out))
    texts = _matched(find_text, mono, findings)
    pairs = _matched(find_pairs, parallel, findings)
    # A pattern that matches nothing is a finding of its own, which says more than this.
    if not texts and not pairs and not findings.items:
        raise UserError("nothing to check; give monolingual or parallel files")
    _check_languages(texts, pairs, findings)
    # What cannot be read or is not aligned is left out below: tokenising it would raise.
    good_texts = [text for text in texts if _check_text(text, findings)]
    good_pairs = [pair for pair in pairs if _check_pair(pair, findings)]
    for file, message in findings.overlap.messages():
        findings.add("warning", Path(file), None, message)
    if vocabulary is None:
        return findings
    good_files = [*good_texts, *(side for pair in good_pairs for side in pair.sides)]
    _check_pieces(good_files, vocabulary, findings)
    sizes = {
        "text": _text_sizes(good_texts, vocabulary, length),
        "pairs": _pair_sizes(good_pairs, vocabulary, findings, length, max_pieces),
    }
    sampling = sampling or Sampling()
    for name, of_kind in sizes.items():
        # Epochs are a division by rows. A run refuses such text, and the check has said why.
        of_kind = {code: size for code, size in of_kind.items() if size["rows"]}
        if of_kind:
            unit = "tokens" if sampling.counts == "tokens" else "sentences"
            shares = sampling.shares({code: size[unit] for code, size in of_kind.items()})
            findings.tables[name] = sampling_table(of_kind, shares, rows_per_step=batch)
    return findings


def _matched(find: Any, patterns: str | Sequence[str], findings: Findings) -> list[Any]:
    """The files of all patterns, each once; a pattern that fails is a finding, and the others still
    count."""
    if isinstance(patterns, str):
        patterns = [patterns]
    files: dict[Any, None] = {}
    for pattern in patterns:
        try:
            # A dict keeps the order of the patterns, as a set would not.
            files |= dict.fromkeys(find(pattern))
        except UserError as error:
            findings.add("error", Path(pattern), None, str(error))
    return list(files)


def _check_languages(texts: Sequence[Text], pairs: Sequence[Pair], findings: Findings) -> None:
    file_of = {text.language: text.path for text in texts}
    for pair in pairs:
        for side in pair.sides:
            file_of.setdefault(side.language, side.path)
    for codes in spelled_twice(file_of):
        findings.add("error", file_of[codes[-1]], None, twice(codes))


def _read(text: Text, findings: Findings) -> list[str] | None:
    """The lines of a text; None, after a finding, if they cannot be read."""
    lines = _lines(text, findings)
    if lines is not None:
        findings.lines[str(text.path), text.language] = len(lines)
    return lines


def _lines(text: Text, findings: Findings) -> list[str] | None:
    lines: list[str] = []
    broken: list[int] = []
    try:
        if text.column is not None:
            return list(text.lines())
        # Decoded line by line, so that the finding counts all broken lines and not the first alone.
        for number, raw in read_raw_lines(text.path):
            try:
                lines.append(raw.decode("utf-8").strip())
            except UnicodeDecodeError:
                broken.append(number)
    except UserError as error:
        findings.add("error", text.path, None, str(error))
        return None
    if broken:
        message = f"invalid UTF-8 ({counted_lines(broken)}); convert the file, e.g. with iconv"
        findings.add("error", text.path, broken[0], message)
        return None
    return lines


def _check_text(text: Text, findings: Findings) -> bool:
    lines = _read(text, findings)
    if lines is None:
        return False
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line]
    if not numbered:
        findings.add("error", text.path, None, f"no {text.language} text in it")
        return False
    _check_lines(text, numbered, findings)
    _check_repeats(text.path, numbered, findings)
    _check_overlap((text.language,), ((line,) for _, line in numbered), findings)
    return True


def _check_lines(text: Text, numbered: Sequence[tuple[int, str]], findings: Findings) -> None:
    long = [number for number, line in numbered if len(line) > LONG_LINE]
    if long:
        message = f"{counted_lines(long)} of over {LONG_LINE:,} characters; one sentence per line"
        findings.add("warning", text.path, long[0], message)
    _check_script(text, numbered, findings)


def _check_repeats(path: Path, numbered: Sequence[tuple[int, Any]], findings: Findings) -> None:
    seen = set()
    repeated = []
    for number, line in numbered:
        if line in seen:
            repeated.append(number)
        seen.add(line)
    what = "repeated from an earlier line"
    _add_share(findings, "repeated", path, repeated, len(numbered), what)


def _check_script(text: Text, numbered: Sequence[tuple[int, str]], findings: Findings) -> None:
    # Some 500 lines spread over the file tell its script as well as all of them.
    every = max(1, len(numbered) // 500)
    sample = " ".join(line for _, line in numbered[::every])
    expected = script_of_language(text.language)
    actual = main_script(sample)
    if not expected or not actual or actual == expected:
        return
    # Names and quotations may be in another script: only twice as many letters are a fault.
    if letters_in(expected, sample) < letters_in(actual, sample) / 2:
        message = f"most letters are {actual}, but {text.language} is written in {expected}"
        findings.add("warning", text.path, None, message)


def _add_share(
    findings: Findings, kind: str, path: Path, lines: Sequence[int], total: int, what: str
) -> None:
    if lines:
        severity = "warning" if len(lines) > MANY[kind] * total else "note"
        message = f"{what}: {counted_lines(lines)} ({len(lines) / total:.1%})"
        findings.add(severity, path, lines[0], message)


def _check_pair(pair: Pair, findings: Findings) -> bool:
    # Both are read before either is judged, so that one run names the faults of both.
    first = _read(pair.first, findings)
    second = _read(pair.second, findings)
    if first is None or second is None:
        return False
    # What concerns both sides is named by the first file alone.
    path = pair.first.path
    if len(first) != len(second):
        findings.add("error", path, None, str(pair.mismatch(len(first), len(second))))
        return False
    both = list(enumerate(zip(first, second, strict=True), 1))
    # Lines empty on both sides part documents, so they are no fault.
    numbered = [(number, sides) for number, sides in both if all(sides)]
    one_sided = [number for number, sides in both if any(sides) and not all(sides)]
    if not numbered:
        findings.add("error", path, None, f"no pair of {'-'.join(pair.languages)} text in it")
        return False
    what = "text on one side only, left out"
    _add_share(findings, "empty", path, one_sided, len(first), what)
    copied = []
    for number, (x, y) in numbered:
        # A number or a sign is rightly the same in both languages.
        if x == y and any(map(str.isalpha, x)):
            copied.append(number)
    _add_share(findings, "copied", path, copied, len(numbered), "the same on both sides")
    for i, side in enumerate(pair.sides):
        _check_lines(side, [(number, sides[i]) for number, sides in numbered], findings)
    _check_repeats(path, numbered, findings)
    _check_overlap(pair.languages, (sides for _, sides in numbered), findings)
    return True


def _check_overlap(
    languages: tuple[str, ...], lines: Iterable[tuple[str, ...]], findings: Findings
) -> None:
    if languages in findings.overlap.wanted:
        for sides in lines:
            findings.overlap.see(languages, tuple(map(normalised, sides)))


def _check_pieces(texts: Sequence[Text], vocabulary: Vocabulary, findings: Findings) -> None:
    """Tokenises the texts and finds those that the vocabulary does not know."""
    pieces: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for text, file in zip(texts, tokenise(texts, vocabulary), strict=True):
        tokens = sum(file.tokens)
        findings.cache_bytes += tokens * id_dtype(vocabulary).itemsize
        findings.cache_bytes += sum(file.lines) * LENGTH_BYTES
        # The `</s>` behind each sentence is no piece of it.
        pieces[text.language] += tokens - sum(file.sentences)
        ids = sum(int((shard.ids == vocabulary.unk_id).sum()) for shard in file)
        unknown[text.language] += ids
        if ids > MANY["unknown"] * tokens:
            message = f"{ids / tokens:.1%} of the pieces are unknown to the vocabulary"
            findings.add("warning", text.path, None, message)
    # Over all files of a language, since that is what a run reads of it.
    for code in sorted(pieces):
        findings.unknown_rate[code] = unknown[code] / max(pieces[code], 1)


# --- How much of it a run would read --------------------------------------------------------------


def _text_sizes(
    texts: Sequence[Text], vocabulary: Vocabulary, length: int
) -> dict[str, dict[str, Any]]:
    """{language: sentences, tokens and rows} of a run on the texts."""
    # As the rows of a run: in layout "xlm" the `</s>`
    # before a text opens it, and no column is needed.
    bos = vocabulary.bos_id != vocabulary.eos_id
    sizes = {}
    for language in sorted({text.language for text in texts}):
        of_language = [text for text in texts if text.language == language]
        # The ids of a block begin with a `</s>`, hence 1.
        records = text_blocks(of_language, vocabulary).each()
        sizes[language] = _total(stream_rows(block, 1, length, bos=bos) for block in records)
    return sizes


def _pair_sizes(
    pairs: Sequence[Pair], vocabulary: Vocabulary, findings: Findings, length: int, max_pieces: int
) -> dict[str, dict[str, Any]]:
    """{pair of languages: sentences, tokens and rows} of a run on the pairs; pairs that no row has
    room for are a finding."""
    sizes = {}
    for languages in sorted({pair.languages for pair in pairs}):
        # All files of two languages together, as a run reads them.
        of_languages = [pair for pair in pairs if pair.languages == languages]
        text = pair_blocks(of_languages, vocabulary)
        rows = [
            pair_rows(block, side_bases(block), length, max_pieces=max_pieces)
            for block in text.each()
        ]
        sizes[text.name] = _total(rows)
        # Lines empty on a side have a finding of their own and are not counted again.
        left_out = sum((of_block.left_out for of_block in rows), LeftOut())
        if left_out.left:
            severity = "error" if left_out.left == left_out.pairs else "note"
            message = (
                f"{left_out.left:,} of {left_out.pairs:,} {text.name} pairs are longer than"
                f" {max_pieces} pieces a side or {length} tokens and are left out"
            )
            findings.add(severity, of_languages[0].first.path, None, message)
    return sizes


def _total(rows: Iterable[Rows]) -> dict[str, Any]:
    """The sizes of all blocks of a text."""
    total: Counter[str] = Counter()
    for of_block in rows:
        total.update(of_block.sizes)
    return dict(total)
