"""What is wrong with a corpus, found before a run: the engine of `xlingjax data check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xlingjax.data.rows import pair_rows, stream_rows
from xlingjax.data.sampling import Sampling, format_table, sampling_table
from xlingjax.data.scripts import letters_in, main_script, script_of_language
from xlingjax.data.sources import Pair, Text, find_pairs, find_text
from xlingjax.data.text_files import read_raw_lines
from xlingjax.data.token_cache import cache_folder, id_dtype, pair_records, text_records, tokens
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

LONG_LINE = 5000
"""Characters beyond which a line is probably not a sentence."""
SHOWN = {"error": 50, "warning": 50, "note": 20}
"""Severities, the worst first, and how many findings of each are printed."""
MANY = {"repeated": 0.2, "copied": 0.01, "empty": 0.0, "unknown": 0.01}
"""Shares above which a finding is a warning; below it is a note."""


@dataclass(frozen=True)
class Finding:
    """One fault: `error` stops a run or spoils it, `warning` costs quality, `note` is worth
    knowing."""

    severity: str
    file: str
    line: int | None
    message: str

    def text(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line else self.file
        if self.message.startswith(self.file):  # a UserError names the place itself
            return f"{self.severity:<8} {self.message}"
        return f"{self.severity:<8} {where}: {self.message}"


@dataclass
class Findings:
    """All findings, and the sampling tables of the text that can be read (keys `text` and
    `pairs`)."""

    items: list[Finding] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unknown_rate: dict[str, float] = field(default_factory=dict)
    cache_bytes: int = 0
    steps: int | None = None

    @property
    def errors(self) -> int:
        return sum(item.severity == "error" for item in self.items)

    def add(self, severity: str, file: Path, line: int | None, message: str) -> None:
        finding = Finding(severity, str(file), line, message)
        if finding not in self.items:  # a file may be text and one side of a pair
            self.items.append(finding)

    def text(self) -> str:
        """For the terminal: findings, worst first, then tokens and epochs per language, unknown
        pieces, cache size."""
        lines = []
        for severity, most in SHOWN.items():
            items = [item for item in self.items if item.severity == severity]
            lines += [item.text() for item in items[:most]]
            if len(items) > most:
                lines.append(f"... and {len(items) - most} more {severity}s")
        for name, table in self.tables.items():
            lines += ["", f"{name}:", format_table(table, self.steps)]
        if self.unknown_rate:
            lines += [
                "",
                "unknown pieces: "
                + ", ".join(f"{k} {v:.2%}" for k, v in self.unknown_rate.items()),
            ]
        if self.tables:
            lines.append(f"token cache: {self.cache_bytes / 1e6:.1f} MB in {cache_folder()}")
        counts = Counter(item.severity for item in self.items)
        lines += [
            "",
            ", ".join(f"{counts[name]} {name}{'s' * (counts[name] != 1)}" for name in SHOWN),
        ]
        return "\n".join(lines).strip()


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
) -> Findings:
    """Reads every line once and reports what is wrong with it.

    With a vocabulary it also tokenises (into the cache, where a run will find it) and reports
    tokens, unknown pieces and the epochs per language of a run of `steps` steps (default: per 1000)
    of `batch` rows of `length` tokens. Patterns that match nothing or files whose language cannot
    be told are errors among the findings.
    """
    found = Findings(steps=steps)
    texts = _found(find_text, mono, found)
    pairs = _found(find_pairs, parallel, found)
    if not texts and not pairs and not found.items:
        raise UserError("nothing to check; give monolingual or parallel files")
    good_texts = [text for text in texts if _check_text(text, found)]
    good_pairs = [pair for pair in pairs if _check_pair(pair, found)]
    if vocabulary is not None:
        _check_tokens(
            good_texts,
            good_pairs,
            vocabulary,
            found,
            batch,
            length,
            sampling or Sampling(),
            max_pieces,
        )
    return found


def _found(find: Any, patterns: str | Sequence[str], found: Findings) -> list[Any]:
    """What each pattern finds; a pattern that fails is a finding, and the others still count."""
    files: dict[Any, None] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        try:
            files |= dict.fromkeys(find(pattern))
        except UserError as error:
            found.add("error", Path(pattern), None, str(error))
    return list(files)


def _lines(text: Text, found: Findings) -> list[str] | None:
    """The lines of a text; None, after a finding, if they cannot be read."""
    try:
        if text.column is not None:
            return list(text.lines())
        lines: list[str] = []
        broken: list[int] = []
        for number, raw in read_raw_lines(text.path):
            try:
                lines.append(raw.decode("utf-8").strip())
            except UnicodeDecodeError:
                broken.append(number)
    except UserError as error:
        found.add("error", text.path, None, str(error))
        return None
    if broken:
        found.add(
            "error",
            text.path,
            broken[0],
            f"invalid UTF-8 ({_number(broken)}); convert the file, e.g. with iconv",
        )
        return None
    return lines


def _number(lines: Sequence[int]) -> str:
    return "1 line" if len(lines) == 1 else f"{len(lines):,} lines"


def _check_text(text: Text, found: Findings) -> bool:
    lines = _lines(text, found)
    if lines is None:
        return False
    full = [(number, line) for number, line in enumerate(lines, 1) if line]
    if not full:
        found.add("error", text.path, None, f"no {text.language} text in it")
        return False
    _check_length(text, full, found)
    _check_repeats(text.path, [line for _, line in full], full, found)
    expected = script_of_language(text.language)
    sample = " ".join(line for _, line in full[:: max(1, len(full) // 500)])
    actual = main_script(sample)
    if (
        expected
        and actual
        and actual != expected
        and letters_in(expected, sample) < letters_in(actual, sample) / 2
    ):
        found.add(
            "warning",
            text.path,
            None,
            f"most letters are {actual}, but {text.language} is written in {expected}",
        )
    return True


def _check_length(text: Text, full: Sequence[tuple[int, str]], found: Findings) -> None:
    long = [number for number, line in full if len(line) > LONG_LINE]
    if long:
        found.add(
            "warning",
            text.path,
            long[0],
            f"{_number(long)} of over {LONG_LINE:,} characters; one sentence per line",
        )


def _check_repeats(
    path: Path, keys: Sequence[Any], full: Sequence[tuple[int, Any]], found: Findings
) -> None:
    seen: set[int] = set()
    repeated = []
    for (number, _), key in zip(full, keys, strict=True):
        mark = hash(key)
        if mark in seen:
            repeated.append(number)
        seen.add(mark)
    if repeated:
        _share(found, "repeated", path, repeated, len(full), "repeated from an earlier line")


def _share(
    found: Findings, kind: str, path: Path, lines: Sequence[int], total: int, what: str
) -> None:
    severity = "warning" if len(lines) > MANY[kind] * total else "note"
    found.add(severity, path, lines[0], f"{what}: {_number(lines)} ({len(lines) / total:.1%})")


def _check_pair(pair: Pair, found: Findings) -> bool:
    first, second = _lines(pair.first, found), _lines(pair.second, found)
    if first is None or second is None:
        return False
    if len(first) != len(second):
        found.add("error", pair.first.path, None, str(pair.mismatch(len(first), len(second))))
        return False
    path, total = pair.first.path, len(first)
    both = [(n, (x, y)) for n, (x, y) in enumerate(zip(first, second, strict=True), 1) if x and y]
    if not both:
        found.add("error", path, None, f"no pair of {'-'.join(pair.languages)} text in it")
        return False
    empty = [n for n, (x, y) in enumerate(zip(first, second, strict=True), 1) if bool(x) != bool(y)]
    if empty:
        _share(found, "empty", path, empty, total, "text on one side only, left out")
    copied = [n for n, (x, y) in both if x == y and any(c.isalpha() for c in x)]
    if copied:
        _share(found, "copied", path, copied, len(both), "the same on both sides")
    _check_length(pair.first, [(n, x) for n, (x, _) in both], found)
    _check_length(pair.second, [(n, y) for n, (_, y) in both], found)
    _check_repeats(path, [xy for _, xy in both], both, found)
    _check_swapped(pair, both, found)
    return True


def _check_swapped(
    pair: Pair, both: Sequence[tuple[int, tuple[str, str]]], found: Findings
) -> None:
    a, b = (script_of_language(code) for code in pair.languages)
    if not a or not b or a == b:
        return
    swapped = [
        n
        for n, (x, y) in both
        if letters_in(b, x) > letters_in(a, x) and letters_in(a, y) > letters_in(b, y)
    ]
    if swapped:
        codes = " and ".join(pair.languages)
        severity = "error" if len(swapped) > len(both) / 2 else "warning"
        found.add(
            severity,
            pair.first.path,
            swapped[0],
            f"{codes} look swapped in {_number(swapped)} of {len(both):,}",
        )


def _check_tokens(
    texts: Sequence[Text],
    pairs: Sequence[Pair],
    vocabulary: Vocabulary,
    found: Findings,
    batch: int,
    length: int,
    sampling: Sampling,
    max_pieces: int,
) -> None:
    pieces: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    read = [*texts, *(side for pair in pairs for side in (pair.first, pair.second))]
    for text in read:
        made = tokens(text, vocabulary)
        found.cache_bytes += made.ids.size * id_dtype(vocabulary).itemsize + made.lengths.nbytes
        pieces[text.language] += made.ids.size - made.sentences
        unknown[text.language] += int((made.ids == vocabulary.unk_id).sum())
        rate = float((made.ids == vocabulary.unk_id).mean()) if made.ids.size else 0.0
        if rate > MANY["unknown"]:
            found.add(
                "warning",
                text.path,
                None,
                f"{rate:.1%} of the pieces are unknown to the vocabulary",
            )
    found.unknown_rate = {code: unknown[code] / max(pieces[code], 1) for code in sorted(pieces)}
    bos = vocabulary.bos_id != vocabulary.eos_id
    sizes: dict[str, dict[str, Any]] = {"text": {}, "pairs": {}}
    for language in sorted({text.language for text in texts}):
        records = text_records([text for text in texts if text.language == language], vocabulary)
        sizes["text"][language] = stream_rows(records, 1, length, bos=bos).sizes
    for languages in sorted({pair.languages for pair in pairs}):
        members = [pair for pair in pairs if pair.languages == languages]
        records = pair_records(members, vocabulary)
        rows = pair_rows(records, [1, 1 + records.sides[0].ids.size], length, max_pieces=max_pieces)
        sizes["pairs"][records.name] = rows.sizes
        lines = int(((records.sides[0].lengths > 0) & (records.sides[1].lengths > 0)).sum())
        if rows.sentences < lines:
            message = (
                f"{lines - rows.sentences:,} of {lines:,} {records.name} pairs are longer than"
                f" {max_pieces} pieces "
            )
            severity = "error" if rows.sentences == 0 else "note"
            found.add(
                severity,
                members[0].first.path,
                None,
                message + f"a side or {length} tokens and are left out",
            )
    for name, members in sizes.items():
        members = {key: size for key, size in members.items() if size["rows"]}
        if members:
            key = "tokens" if sampling.counts == "tokens" else "sentences"
            shares = sampling.shares({code: size[key] for code, size in members.items()})
            found.tables[name] = sampling_table(members, shares, rows_per_step=batch)
