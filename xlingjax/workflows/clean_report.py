"""What a cleaning left out, and why, as a table."""

from collections.abc import Mapping

STEPS = (
    "empty",
    "characters",
    "length",
    "tokens",
    "script",
    "copies",
    "ratio",
    "identify",
    "exact",
    "near",
    "perplexity",
)
"""In their order: a line is counted by the first that leaves it out."""
COLUMNS = ("in", "sentences", *STEPS, "out", "documents")


def table(texts: Mapping[str, Mapping[str, int]]) -> str:
    """A line per language and pair; steps that left nothing out have no column."""
    columns = []
    for column in COLUMNS:
        left_out = any(counts[column] for counts in texts.values())
        if column not in STEPS or left_out:
            columns.append(column)
    rows = [["text", *columns]]
    for name, counts in texts.items():
        rows.append([name, *[f"{counts[column]:,}" for column in columns]])
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0])]
        for cell, width in zip(rest, widths[1:], strict=True):
            cells.append(cell.rjust(width))
        lines.append("  ".join(cells))
    return "\n".join(lines)
