"""What is wrong with a corpus, found before a run: the engine of `xlingjax data check`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.check import language
from xlingjax.data.check.alignment import misalignment, windows_of_lines
from xlingjax.data.check.findings import Findings, counted_lines
from xlingjax.data.clean.garbled import has_entities, is_mojibake
from xlingjax.data.languages import spelled_twice, twice
from xlingjax.data.rows.plan import Preprocessor, RowPlan
from xlingjax.data.sampling import Sampling, sampling_table
from xlingjax.data.scripts import letters_in, main_script, script_of_language
from xlingjax.data.store.tokenise import text_blocks, tokenise
from xlingjax.data.text.sources import Patterns, find_pairs, find_text
from xlingjax.data.text.texts import Pair, Text, repeated
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.progress import doing

LONG_LINE = 5000  # characters beyond which a line is probably not a sentence
MANY = {"repeated": 0.2, "copied": 0.01, "garbled": 0.01, "empty": 0.0, "unknown": 0.01}
"""Shares above which a finding is a warning; below it is a note."""


def check(
    mono: Patterns = (),
    parallel: Patterns = (),
    vocabulary: Vocabulary | None = None,
    *,
    readers: Sequence[Preprocessor] = (),
    batch: int = 32,
    length: int = 256,
    steps: int | None = None,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
) -> Findings:
    """Reads every line once and reports what is wrong with it.

    With a vocabulary it also tokenises (into the cache, where a run will find it) and reports
    unknown pieces and, for each of `readers`, an objective of text or of pairs, the tokens and
    epochs per language of a run of `steps` steps (default: per 1000) of `batch` rows of `length`
    tokens. Patterns that match nothing or files whose language cannot
    be told are errors among the findings.
    """
    findings = Findings(steps=steps)
    texts = _matched(find_text, mono, findings)
    pairs = _matched(find_pairs, parallel, findings)
    # A pattern that matches nothing is a finding of its own, which says more than this.
    if not texts and not pairs and not findings.items:
        raise UserError("nothing to check; give monolingual or parallel files")
    _check_codes(texts, pairs, findings)
    # What cannot be read or is not aligned is left out below: tokenising it would raise.
    good_texts = [text for text in texts if _check_text(text, findings)]
    good_pairs = [pair for pair in pairs if _check_pair(pair, findings)]
    for path, first in (*repeated(good_texts), *repeated(good_pairs)):
        message = f"the same text as {first}: a run counts and draws both; name one"
        findings.add("warning", path, None, message)
    for text, message in language.misnamed(findings.words, good_pairs):
        findings.add("warning", text.path, None, message)
    if vocabulary is None:
        return findings
    good_files = [*good_texts, *(side for pair in good_pairs for side in pair.sides)]
    _check_pieces(good_files, vocabulary, findings)
    for reader in readers:
        name, files = ("text", good_texts) if reader.sides == 1 else ("pairs", good_pairs)
        if table := _table(reader, files, vocabulary, findings, sampling, batch, length):
            findings.tables[name] = table
    return findings


def _matched(find: Any, patterns: Patterns, findings: Findings) -> list[Any]:
    """The files of all patterns, each once; a pattern that fails is a finding, no more."""
    if isinstance(patterns, str):
        patterns = [patterns]
    # A dict keeps the order of the patterns, as a set would not.
    files: dict[Any, Any] = {}
    for pattern in patterns:
        try:
            for file in find(pattern):
                sides = ((os.path.abspath(side.path), side.languages) for side in file.sides)
                files.setdefault(tuple(sides), file)
        except UserError as error:
            findings.add("error", Path(pattern), None, str(error))
    return [*files.values()]


def _check_codes(texts: Sequence[Text], pairs: Sequence[Pair], findings: Findings) -> None:
    file_of = {text.language: text.path for text in texts}
    for pair in pairs:
        for side in pair.sides:
            file_of.setdefault(side.language, side.path)
    for codes in spelled_twice(file_of):
        findings.add("error", file_of[codes[-1]], None, twice(codes))
    for code, path in file_of.items():
        if not language.is_known(code):
            findings.add("warning", path, None, f"{code!r} is no code of a language (ISO 639)")


def _read(text: Text, findings: Findings) -> list[str] | None:
    """The lines of a text; None, after a finding, if they cannot be read."""
    doing(f"reading {text.path}")
    try:
        lines = [*text.lines()]
    except UserError as error:
        findings.add("error", text.path, None, str(error))
        return None
    findings.lines[str(text.path), text.language] = len(lines)
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
    return True


def _check_lines(text: Text, numbered: Sequence[tuple[int, str]], findings: Findings) -> None:
    long = [number for number, line in numbered if len(line) > LONG_LINE]
    if long:
        message = f"{counted_lines(long)} of over {LONG_LINE:,} characters; one sentence per line"
        findings.add("warning", text.path, long[0], message)
    _check_script(text, numbered, findings)
    for what, is_garbled in (
        ("UTF-8 that was once read as another encoding", is_mojibake),
        ("entities of HTML", has_entities),
    ):
        found = [number for number, line in numbered if is_garbled(line)]
        what = f"{what} (`xlingjax data clean` repairs it)"
        _add_share(findings, "garbled", text.path, found, len(numbered), what)
    lines = [line for _, line in numbered]
    findings.words[text] = language.stems_in(lines)
    if other := language.identified(lines, text.language):
        message = f"most lines are in {other}, and not in {text.language}"
        findings.add("warning", text.path, None, message)


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
    if found := misalignment(windows_of_lines(first, second)):
        findings.add("error", path, *found)
    return True


def _check_pieces(texts: Sequence[Text], vocabulary: Vocabulary, findings: Findings) -> None:
    pieces: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for text, file in zip(texts, tokenise(texts, vocabulary), strict=True):
        tokens = sum(file.tokens)
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


def _table(
    reader: Preprocessor,
    files: Sequence[Text] | Sequence[Pair],
    vocabulary: Vocabulary,
    findings: Findings,
    sampling: Sampling,
    batch: int,
    length: int,
) -> list[dict[str, Any]]:
    """The sampling table of a run of one objective; what no row has room for is a finding."""
    plan = RowPlan(reader, length, vocabulary)
    sizes = {}
    for languages in sorted({file.languages for file in files}):
        # All files of a language or pair together, as a run reads them.
        of_languages: list[Any] = [file for file in files if file.languages == languages]
        text = text_blocks(of_languages, vocabulary)
        rows = plan.open(text)
        left_out = rows.left_out
        if left_out.left:
            severity = "error" if left_out.left == left_out.pairs else "note"
            message = (
                f"{left_out.left:,} of {left_out.pairs:,} {text.name} lines fit no row of"
                f" {length} tokens and are left out"
            )
            findings.add(severity, of_languages[0].sides[0].path, None, message)
        # Epochs are a division by rows. A run refuses such text, and the check has said why.
        if rows.count:
            sizes[text.name] = rows.sizes
    if not sizes:
        return []
    unit = "tokens" if sampling.counts == "tokens" else "sentences"
    shares = sampling.shares({name: size[unit] for name, size in sizes.items()})
    return sampling_table(sizes, shares, rows_per_step=batch)
