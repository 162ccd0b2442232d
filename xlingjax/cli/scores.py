"""What the verbs about benchmarks do."""

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from xlingjax.errors import UserError


def score(args: Namespace) -> int:
    from rich.console import Console

    from xlingjax.evaluation.score_files import footnotes, score_files, score_table, write_scores
    from xlingjax.tasks import suite_tasks

    told = score_files(suite_tasks(args.suite), args.predictions, args.gold, args.split, args.allow_missing)
    title = f"{args.suite}, {args.split}: {args.predictions}"
    Console(width=None if sys.stdout.isatty() else 160).print(score_table(told, title))
    for line in footnotes(told):
        print(line)
    if args.output:
        told = {"suite": args.suite, "predictions": args.predictions, "gold": args.gold, **told}
        print(f"scores: {write_scores(told, args.output)}")
    return 0


def show(*folders: str | Path, output: str | Path = "") -> str:
    """Writes the score card of folders of cells, of one into itself; returns it as Markdown, and where it is."""
    from xlingjax.workflows.scorecard import card
    from xlingjax.workflows.scorecard_page import markdown, write

    made = card(*folders)
    paths = write(made, Path(output or folders[0]))
    return f"{markdown(made)}\nscore card: {', '.join(map(str, paths))}"


def card(args: Namespace) -> str | None:
    """`report` of folders of cells: what `show` returns; None: they name a run. Raises UserError for both at once."""
    folders = args.workdir
    runs = [folder for folder in folders if (Path(folder) / "run.json").is_file()]
    cells = [folder for folder in folders if (Path(folder) / "cells").is_dir() and folder not in runs]
    if not cells:
        if len(folders) > 1:
            raise UserError(f"report {' '.join(folders)}: no cells there, and a report is of one run; see --compare")
        return None
    if other := [folder for folder in folders if folder not in cells]:
        raise UserError(f"report: {other[0]} has no cells and cannot share a score card; leave it out")
    if given := [name for name in ("compare", "finetuned", "pictures") if getattr(args, name)]:
        raise UserError(f"--{given[0]}: a score card reads only folders of cells; leave it out")
    if len(folders) > 1 and not args.output:
        raise UserError(f"report: {len(folders)} folders share a score card; say where it goes by --output DIR")
    if args.output:
        if Path(args.output).is_file():
            raise UserError(f"--output {args.output}: it is a file; give a folder")
        Path(args.output).mkdir(parents=True, exist_ok=True)
    return show(*folders, output=args.output)


VERBS: dict[str, Callable[[Namespace], int]] = {"score": score}
