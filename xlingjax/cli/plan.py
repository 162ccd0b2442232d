"""`xlingjax plan`."""

import argparse
from argparse import Namespace
from pathlib import Path

from xlingjax.cli.types import place, positive
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError

TRIES = 8


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on",
        action="append",
        required=True,
        metavar="MACHINE",
        help="H100:8, A100:16, V100:8, v4:2x2x2, v5e:4x4, v5p:2x2x4, v6e:4x8, or here; repeat for"
        " several",
    )
    parser.add_argument(
        "--search",
        action="store_true",
        help="look for the fastest settings that fit: mesh, microbatches, what is recomputed, what"
        " computes attention",
    )
    parser.add_argument(
        "--tries",
        type=positive,
        metavar="N",
        help=f"programs that the search compiles at most, for each machine (default {TRIES})",
    )
    parser.add_argument(
        "--output", type=place, metavar="FILE", help="also write all figures here, as JSON"
    )


def run(args: Namespace) -> int:
    from xlingjax.runtime.files import require_file, write_json
    from xlingjax.workflows.plan.plan import measured, require_machine, stand_ins, text_of
    from xlingjax.workflows.plan.search import require_searched, search

    if args.platform or args.devices:
        raise UserError("plan: --on says for which devices; leave --platform and --devices out")
    if args.tries and not args.search:
        raise UserError("plan: --tries is of --search: add it, or leave --tries out")
    if args.output:
        require_file(args.output)
        Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    # Of all before the first is compiled for.
    for machine in args.on:
        require_machine(machine)
        if args.search:
            require_searched(args.gin_file, machine)
    added = stand_ins(args.gin_file, args.overrides)
    if added:
        print(f"taken for what is not given: {', '.join(added)}")
    overrides = [*args.overrides, *added]
    records = []
    fit = True
    for machine in args.on:
        plan = measured(args.gin_file, overrides, machine)
        print(text_of(plan), flush=True)
        record = plan.record()
        if args.search:
            best, tried = search(
                args.gin_file,
                overrides,
                machine,
                args.tries or TRIES,
                lambda line: print(line, flush=True),
            )
            record["search"] = {
                "best": best and best.settings.flags(),
                "tried": [one.record() for one in tried],
            }
            fit = fit and best is not None
        else:
            fit = fit and plan.all_fit
        records.append(record)
        if args.output:
            write_json(Path(args.output), records)
    return 0 if fit else 1


VERB = Verb(
    "plan",
    "compile a recipe for machines that are not there: does it fit, what bounds it, how long",
    options,
    run,
    recipe=True,
)
"""1: it does not fit."""
