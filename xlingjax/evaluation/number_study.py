"""The score by the number of training languages (Unicoder, Table 4), of the rows of a task on the score card."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.evaluation.scorecard import said

CAPTION = "mean score by number of training languages"


def trained_on(row: dict[str, Any]) -> str:
    """ "de" of a pivot, "en+de" of a set of languages, "" of other rows."""
    return row["variant"].get("LANGUAGES") or row["variant"].get("PIVOT") or ""


def by_number(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean over the rows of as many training languages, by their number: "languages", "mean", "rows" (names). Rows
    from other weights, or tested otherwise, have a line of their own. [] where no row is of a set of languages."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        if trained_on(row) and "mean" in row["means"]:
            start = (row["start"]["sha256"], row["start"]["run"])
            key = (len(trained_on(row).split("+")), *start, row["split"], *sorted(row["examples"]))
            groups.setdefault(key, []).append(row)
    if not any("LANGUAGES" in row["variant"] for row in rows):
        return []
    found = [(key[0], [row["means"]["mean"]["mean"] for row in of], of) for key, of in sorted(groups.items())]
    return [{"languages": n, "mean": float(np.mean(x)), "rows": [said(row) for row in of]} for n, x, of in found]


def grid(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """(head, rows) of the table of `by_number`; no rows: there is none."""
    found = [[str(one["languages"]), f"{one['mean']:z.1f}", ", ".join(one["rows"])] for one in by_number(rows)]
    return ["languages", "mean", "of the rows"], found
