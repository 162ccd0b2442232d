"""What rows of the score card are called, and what tells them apart."""

from collections.abc import Sequence
from pathlib import Path

from xlingjax.workflows.scorecard_cells import AS_IT_IS
from xlingjax.workflows.scorecard_rows import Row


def said(row: Row) -> str:
    """The name of a row: its strategy, variant and settings, and what tells it from another one."""
    parts = [row["strategy"].replace("_", " "), *row["variant"].values()]
    parts += [f"{name}={value}" for name, value in row["settings"].items()]
    name = " ".join(parts)
    if row.get("of"):
        name += f" ({row['of']})"
    return name


def policy(row: Row) -> str:
    """How the row's checkpoints, and settings, were chosen."""
    select = row["select"]
    tried = row["tried"]
    note = ""
    if "note" in select:
        note = f", {select['note']}"
    split = select["split"]
    if "limit" in select:
        split += f", {select['limit']} examples of each language"
    if select["by"] == "none":
        if row["strategy"] == AS_IT_IS:
            return f"as it is: the run's own training{note}"
        return f"nothing is trained{note}"
    if select["by"] == "last":
        chosen = ""
        if tried > 1:
            chosen = f"; one of {tried} settings chosen by {_dev_mean(row)} ({split})"
        return f"the last checkpoint{note}{chosen}"
    over = f"dev in {select['by']}"
    if select["by"] == "mean":
        over = _dev_mean(row)
    if "TASKS" in row["variant"]:
        over += " and of all tasks"
    settings = ""
    if tried > 1:
        settings = f", as was one of {tried} settings"
    return f"checkpoint chosen by {over} ({split}){settings}"


def _dev_mean(row: Row) -> str:
    languages = row.get("dev_languages")
    # A cell that does not tell them.
    if not languages:
        return "the mean of all dev languages"
    where = f"dev in {', '.join(languages)}"
    if len(languages) > 1:
        return f"the mean of {where}"
    return where


def tell_apart(rows: Sequence[Row]) -> None:
    """Gives rows that would have one name "of": what they differ in, their folder, their run or its
    weights."""
    alike: dict[str, list[Row]] = {}
    for row in rows:
        alike.setdefault(said(row), []).append(row)
    for same in alike.values():
        differ = []
        for values in zip(*map(_marks, same), strict=True):
            if len(set(values)) > 1:
                differ.append(values)
        # One that tells all of them apart is enough.
        for values in differ:
            if len(set(values)) == len(same):
                differ = [values]
                break
        for i, row in enumerate(same):
            marks = [values[i] for values in differ if values[i]]
            if marks:
                row["of"] = ", ".join(marks)


def _marks(row: Row) -> list[str]:
    """In what rows of one name may differ, the plainest first."""
    start = row["start"]
    chosen_by = ""
    # A row of averages has no policy of its own.
    if "select" in row:
        chosen_by = policy(row)
    return [
        row.get("folder", ""),
        Path(start["run"]).name,
        start["sha256"][:8],
        row.get("split", ""),
        chosen_by,
    ]
