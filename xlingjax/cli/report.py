"""`xlingjax report`: the page of a run, or the score card of folders of cells."""

import argparse
from argparse import Namespace
from pathlib import Path
from typing import Any

from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json


def options(parser: argparse.ArgumentParser) -> None:
    text = (
        "workdir of a run; or folders of cells (--to of finetune and evaluate), which share one"
        " card"
    )
    parser.add_argument("workdir", nargs="+", metavar="RUN", help=text)
    parser.add_argument(
        "--compare",
        action="append",
        default=[],
        metavar="[NAME=]RUN",
        help="a run to show beside it (MLM alone, a control)",
    )
    parser.add_argument(
        "--finetuned",
        action="append",
        default=[],
        metavar="RUN",
        help="a fine-tuning that started from it",
    )
    parser.add_argument(
        "--output", default="", metavar="DIR", help="folder for the files (default: RUN)"
    )


def run(args: Namespace) -> int:
    from xlingjax.report.build import build_report
    from xlingjax.workflows.scorecard.page import show

    cells = _folders_of_cells(args)
    if cells:
        print(show(*cells, output=args.output))
        return 0
    (workdir,) = args.workdir
    compare = {}
    for entry in args.compare:
        name, equals, path = entry.partition("=")
        # A name is given where two folders have one, or theirs says nothing.
        if not equals:
            name = Path(entry).name
            path = entry
        compare[name] = path
    page = build_report(workdir, compare, args.finetuned, args.output or None)
    # What is printed is what stands on the disk.
    text = page.with_name("report.json").read_text(encoding="utf-8")
    for name, value in parsed_json(text)["summary"].items():
        print(f"{name:<36} {_shown(value)}")
    print(f"report: {page}")
    return 0


def _folders_of_cells(args: Namespace) -> list[str]:
    """Those named, whose score card is wanted; none: a run is named. Raises UserError for both at
    once."""
    folders = args.workdir
    cells = []
    for folder in folders:
        # A run whose sweeps stand in its own folder is a run all the same.
        is_run = (Path(folder) / "run.json").is_file()
        if not is_run and (Path(folder) / "cells").is_dir():
            cells.append(folder)
    if not cells:
        if len(folders) > 1:
            raise UserError(
                f"report {' '.join(folders)}: no cells there, and a report is of one run; see"
                " --compare"
            )
        return []
    other = [folder for folder in folders if folder not in cells]
    if other:
        raise UserError(
            f"report: {other[0]} has no cells and cannot share a score card; leave it out"
        )
    for name in ("compare", "finetuned"):
        if getattr(args, name):
            raise UserError(f"--{name}: a score card reads only folders of cells; leave it out")
    if len(folders) > 1 and not args.output:
        raise UserError(
            f"report: {len(folders)} folders share a score card; say where it goes by --output DIR"
        )
    if args.output:
        if Path(args.output).is_file():
            raise UserError(f"--output {args.output}: it is a file; give a folder")
        Path(args.output).mkdir(parents=True, exist_ok=True)
    return folders


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


VERB = Verb(
    "report",
    "write report.html and report.json of a run; of sweeps and suites their score card",
    options,
    run,
)
