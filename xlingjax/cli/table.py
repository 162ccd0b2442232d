"""`xlingjax table`."""

import argparse
import dataclasses
from argparse import Namespace

from xlingjax.cli.jobs import groups_of, jobs_options, run_beside
from xlingjax.cli.machine import machine_words
from xlingjax.cli.types import place
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "table",
        nargs="?",
        metavar="NAME",
        help="one of gin/recipes/tables: xlm_1, veco_2 ...; or --gin_file",
    )
    parser.add_argument(
        "--data", required=True, metavar="DIR", help="folder of the benchmarks' files"
    )
    parser.add_argument(
        "--to",
        dest="output",
        type=place,
        required=True,
        metavar="DIR",
        help="a folder ENCODER/ROW for each sweep; encoders/ENCODER, rows/ROW",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="train nothing: every training, what it costs, and all that is missing",
    )
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="go on without the test sets that are not there",
    )
    jobs_options(parser)


def run(args: Namespace) -> int:
    from xlingjax.config.recipe import read_part
    from xlingjax.runtime.machine import require_platform
    from xlingjax.workflows.side_by_side import devices_here
    from xlingjax.workflows.tables import dry_run
    from xlingjax.workflows.tables.page import show
    from xlingjax.workflows.tables.run import run as run_table
    from xlingjax.workflows.tables.table import Table

    _name_file(args)
    words = machine_words(args)
    devices = devices_here(args.platform, args.devices)
    groups = groups_of(args)
    # This process plans and starts others, which have the devices.
    require_platform("cpu")
    config = read_part("table", Table, args.gin_file, args.overrides)
    allow_missing = args.allow_missing or config.allow_missing
    config = dataclasses.replace(config, allow_missing=allow_missing)
    if not args.worker:
        if groups:
            devices = groups[0].devices
        plan = dry_run.planned(config, args.data, args.output, devices)
        if args.dry_run:
            return dry_run.show(plan)
        plan.require_sound()
    if groups:
        status = run_beside(args, groups)
        if status:
            return status
    else:
        run_table(config, args.data, args.output, words)
    if not args.worker:
        print(show(config, args.data, args.output))
    return 0


def _name_file(args: Namespace) -> None:
    """Puts the table that is named among the gin files. Raises UserError for one that is not
    there."""
    from xlingjax.config.gin_files import find_gin

    if not args.table:
        return
    file = find_gin(f"recipes/tables/{args.table}.gin")
    if file is None:
        folder = find_gin("recipes/tables/xlm_1.gin").parent
        known = sorted(path.stem for path in folder.glob("*.gin"))
        raise UserError(f"table {args.table}: there are {', '.join(known)}; or give --gin_file")
    args.gin_file = [str(file), *args.gin_file]


VERB = Verb(
    "table",
    "run the trainings behind a table of a paper, gin/recipes/tables, from your encoders",
    options,
    run,
    recipe=True,
)
