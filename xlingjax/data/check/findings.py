"""Findings of `xlingjax data check`, and what is printed of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xlingjax.data.sampling import format_table
from xlingjax.data.text.texts import Text

SHOWN = {"error": 50, "warning": 50, "note": 20}  # severities, worst first: how many are printed


@dataclass(frozen=True)
class Finding:
    """A fault: `error` stops or spoils a run, `warning` costs quality, `note` is worth knowing."""

    severity: str
    file: str
    line: int | None
    message: str

    def text(self) -> str:
        # The message of a UserError names its place itself.
        if self.message.startswith(self.file):
            return f"{self.severity:<8} {self.message}"
        line = f", line {self.line}" if self.line else ""
        return f"{self.severity:<8} {self.file}{line}: {self.message}"


@dataclass
class Findings:
    """All findings, and the sampling tables of readable text (keys `text` and `pairs`)."""

    items: list[Finding] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unknown_rate: dict[str, float] = field(default_factory=dict)
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    """(file, language) -> lines, of what was read."""
    words: dict[Text, Mapping[str, int]] = field(default_factory=dict)
    """Of each file that was read, see `language.stems_in`."""
    steps: int | None = None

    @property
    def errors(self) -> int:
        return sum(item.severity == "error" for item in self.items)

    def add(self, severity: str, file: Path, line: int | None, message: str) -> None:
        finding = Finding(severity, str(file), line, message)
        # A file may be text and one side of a pair: it is read twice and named once.
        if finding not in self.items:
            self.items.append(finding)

    def text(self) -> str:
        """For the terminal: findings, worst first, then tokens and epochs per language, unknown
        pieces, what was read."""
        lines = []
        for severity, most in SHOWN.items():
            items = [item for item in self.items if item.severity == severity]
            lines += [item.text() for item in items[:most]]
            if len(items) > most:
                lines.append(f"... and {len(items) - most} more {severity}s")
        for name, table in self.tables.items():
            lines += ["", f"{name}:", format_table(table, self.steps)]
        if self.unknown_rate:
            rates = ", ".join(f"{code} {rate:.2%}" for code, rate in self.unknown_rate.items())
            lines += ["", f"unknown pieces: {rates}"]
        languages = ", ".join(sorted({language for _, language in self.lines}))
        read = f"read {counted_lines(sum(self.lines.values()))} in {languages or 'no language'}"
        counts = Counter(item.severity for item in self.items)
        return "\n".join(
            [
                *lines,
                "",
                read,
                ", ".join(_counted(counts[severity], severity) for severity in SHOWN),
            ]
        ).strip()


def counted_lines(lines: int | Sequence[int]) -> str:
    """lines: how many, or their numbers."""
    return _counted(lines if isinstance(lines, int) else len(lines), "line")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
