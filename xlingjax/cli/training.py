"""The verbs of recipes: what they set, read and need, and what trains by them."""

import dataclasses
import functools
from argparse import BooleanOptionalAction, Namespace
from pathlib import Path
from typing import Any

from xlingjax.cli import tasks
from xlingjax.cli.machine import MACHINE, PROCESSES, machine_of, machine_words
from xlingjax.cli.types import above_zero, count, place, positive
from xlingjax.cli.verb import (
    CARD,
    FOREIGN,
    TEXT,
    UNVERIFIED,
    Verb,
    grouped,
    option,
    require_unread,
    workdir_of,
)
from xlingjax.errors import UserError, meant

_HERE = "where the run lives: checkpoints, logs, report"


def start(args: Namespace) -> int:
    from xlingjax.runtime.machine import start as start_machine
    from xlingjax.workflows.start import Start
    from xlingjax.workflows.start import start as started

    source = args.source and args.source.removeprefix(FOREIGN)
    languages = tuple(args.languages or ())
    request = Start(tuple(args.pairs), languages, args.minutes, source, args.seed)
    machine = machine_of(args)
    start_machine(machine)
    return started(request, args.output, machine)


START = Verb(
    "start",
    "two aligned files in; sentence vectors, their score, a report and a model out",
    start,
    [
        option(
            "pairs",
            "two line-aligned files, train.en train.sw; or folders and tables of pairs: .tsv,"
            " .jsonl, .tmx",
            nargs="+",
            metavar="FILE",
        ),
        option(
            "--to",
            "new; the same goes on there (default %(default)s)",
            place,
            "DIR",
            dest="output",
            default="runs/start",
        ),
        option(
            "--languages",
            "of the two sides, where the names do not tell them: --languages en kab",
            nargs=2,
            metavar=("A", "B"),
        ),
        option(
            "--from",
            "a released encoder to go on training, as adapt does: a run, a Hugging Face folder or"
            " id (default: a table that needs no encoder)",
            metavar="MODEL",
            dest="source",
        ),
        option("--minutes", "at most (default %(default)s)", above_zero, "M", default=10.0),
        option("--seed", "of what is held out, and of the training", count, "N", default=0),
        *MACHINE,
    ],
)


def pretrain(args: Namespace) -> int:
    from xlingjax.config.recipe import read_recipe
    from xlingjax.workflows.launch import launch

    machine = machine_of(args)
    overrides, until = [*args.overrides], None
    if args.hours is not None:
        from xlingjax.workflows.adapt.time_budget import within_hours

        given = args.gin_file, overrides, args.output, args.hours, machine
        more, until = within_hours(*given)
        overrides += more
    recipe = read_recipe(args.gin_file, overrides)
    return launch(recipe, args.output, "pretrain", machine, until)


PRETRAIN = Verb(
    "pretrain",
    "train a model by a recipe, or continue where the run in the workdir stopped",
    pretrain,
    [
        option("--to", _HERE, metavar="DIR", required=True),
        option("--hours", "as many steps as fit, by a trial on this machine", above_zero, "H"),
        *PROCESSES,
    ],
    recipe=True,
)


def finetune(args: Namespace) -> int:
    if args.task:
        return tasks.finetune(args)
    require_unread(args, tasks.OF_TRAINING, "only --task reads this")
    # The recipe says what it starts from, so RUN would be read by nothing.
    if args.run:
        raise UserError(f"{args.run}: only --task reads a RUN; a recipe has it as --gin.INIT_FROM")
    if not args.output:
        raise UserError("finetune: give --to")
    from xlingjax.config.recipe import read_recipe
    from xlingjax.workflows.launch import launch

    recipe = read_recipe(args.gin_file, args.overrides)
    return launch(recipe, args.output, "finetune", machine_of(args))


FINETUNE = Verb(
    "finetune",
    "train a pretrained model on labelled examples by a recipe",
    finetune,
    [
        tasks.RUN,
        option("--to", f"{_HERE}; of --task also cells and score card", metavar="DIR"),
        *grouped(
            "a task of a benchmark",
            option(
                "--task",
                "xtreme/xnli, xglue/ner ...; its settings are macros of runs/task.gin; several:"
                " --strategy multi_task",
                nargs="+",
                metavar="SUITE/NAME",
            ),
            *tasks.SWEEP,
        ),
        *PROCESSES,
    ],
    recipe=True,
)


def bakeoff(args: Namespace) -> int:
    from xlingjax.config.recipe import read_part
    from xlingjax.workflows.bakeoff import page, runs

    config = read_part("bakeoff", runs.Bakeoff, args.gin_file, args.overrides)
    runs.require_readable(config, args.output)
    result = runs.run(config, args.output, arguments=machine_words(args))
    print(page.markdown(result))
    print(f"report: {page.write(result, Path(args.output))}")
    return 0


BAKEOFF = Verb(
    "bakeoff",
    "compare mixes of objectives: the same text, weights and tokens, several seeds",
    bakeoff,
    [option("--to", "where its runs live, and bakeoff.json", metavar="DIR", required=True)],
    recipe=True,
)


def table(args: Namespace) -> int:
    from xlingjax.config.gin_files import find_gin, gin_folder
    from xlingjax.config.recipe import read_part
    from xlingjax.runtime.machine import devices_found, require_platform
    from xlingjax.workflows.tables import dry_run
    from xlingjax.workflows.tables.page import show
    from xlingjax.workflows.tables.run import run as run_table
    from xlingjax.workflows.tables.smoke import smoked
    from xlingjax.workflows.tables.table import Table

    if args.table:
        file = find_gin(f"recipes/tables/{args.table}.gin")
        if file is None:
            known = sorted(path.stem for path in gin_folder().glob("recipes/tables/*.gin"))
            raise UserError(
                f"no table {args.table!r}{meant(args.table, known)} (or give --gin-file)"
            )
        args.gin_file = [str(file), *args.gin_file]
    devices = args.devices or devices_found(args.platform)
    # This process plans and starts others, which have the devices.
    require_platform("cpu")
    config = read_part("table", Table, args.gin_file, args.overrides)
    if args.allow_missing:
        config = dataclasses.replace(config, allow_missing=True)
    if args.smoke:
        config = smoked(config, devices)
        # Beside what the table itself writes, whose settings are others.
        args.output = str(Path(args.output) / "smoke")
    plan = dry_run.planned(config, args.data, args.output, devices)
    if args.dry_run:
        return dry_run.show(plan)
    plan.require_sound()
    run_table(config, args.data, args.output, machine_words(args))
    print(show(config, args.data, args.output))
    return 0


TABLE = Verb(
    "table",
    "run the trainings behind a table of a paper, gin/recipes/tables, from your encoders",
    table,
    [
        option(
            "table", "of gin/recipes/tables: xlm_1 ...; or --gin-file", metavar="NAME", nargs="?"
        ),
        option("--data", "folder of the benchmarks' files", metavar="DIR", required=True),
        option(
            "--to",
            "a folder ENCODER/ROW for each sweep; encoders/ENCODER, rows/ROW",
            place,
            "DIR",
            required=True,
        ),
        option("--dry-run", "train nothing: all trainings, their cost, what is missing", bool),
        option(
            "--smoke",
            "all of the table, but a few steps of each training on the first rows of each set",
            bool,
        ),
        option("--allow-missing", "go on without the test sets that are not there", bool),
    ],
    recipe=True,
)


def adapt(args: Namespace) -> int:
    from xlingjax.config.gin_files import find_gin, gin_values
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.adapt.request import Request, default_objectives
    from xlingjax.workflows.adapt.run import Export, adapt

    # The recipe that is written includes them by path, so names of recipes are looked up here.
    files = tuple(str(find_gin(file) or file) for file in args.gin_file)
    source = args.run.removeprefix(FOREIGN)
    objectives = args.objectives or default_objectives(source, args.parallel, args.teacher)
    request = Request(
        source,
        tuple(args.mono),
        tuple(args.parallel),
        tuple(objectives),
        args.hours,
        args.steps,
        args.batch,
        args.length,
        args.gold,
        args.teacher and args.teacher.removeprefix(FOREIGN),
        files,
        tuple(gin_values(args.overrides)),
    )
    machine = machine_of(args)
    # Before the model is opened: JAX settles on a platform when it is first used.
    start(machine)
    card = (args.language, args.licence, args.base)
    return adapt(request, args.output, machine, Export(not args.verify, *card, args.keep_worse))


ADAPT = Verb(
    "adapt",
    "go on training a released model on your text, and write it as a folder that AutoModel opens",
    adapt,
    [
        option("run", "the model: a run, a Hugging Face folder or id", metavar="RUN"),
        option("--to", "new; the same goes on there", place, "DIR", required=True),
        *TEXT,
        option(
            "--objectives",
            "files of gin/objectives, in turn: mlm tlm (default: distillation for pairs and a"
            " model of sentences, else mlm)",
            nargs="+",
            metavar="NAME",
        ),
        option(
            "--teacher",
            "of distillation: whose vectors the translations get (default: the model itself)",
            metavar="RUN",
        ),
        option("--hours", "of training and evaluation, as many steps as fit", above_zero, "H"),
        option("--steps", "instead of --hours", positive, "N"),
        option("--batch", "rows of a batch (default %(default)s)", positive, "N", default=32),
        option("--length", "tokens of a row (default %(default)s)", positive, "N", default=128),
        option("--gold", "word alignments, XX-en.txt beside XX-en.XX and XX-en.en", metavar="DIR"),
        *CARD,
        UNVERIFIED,
        option(
            "--keep-worse",
            "export the adapted model even where it is worse on what was held out than the first",
            bool,
        ),
    ],
    recipe=True,
)


def recipe(args: Namespace) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from xlingjax.config.gin_files import REQUIRED, macros_of, recipes

    if not args.recipe:
        print("\n".join(recipes()))
        return 0
    console = Console()
    if not console.is_terminal:
        # No terminal cuts the lines: a macro stays in one.
        console.width = 10_000
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("macro", no_wrap=True)
    table.add_column("value", overflow="fold", max_width=40)
    table.add_column("meaning", overflow="fold")
    table.add_column("file", overflow="fold")
    for macro in macros_of(args.recipe):
        style = "bold" if macro.value == REQUIRED else ""
        # As `Text`, or rich would take brackets in a value for its markup.
        cells = (macro.name, macro.value, macro.meaning, macro.file)
        table.add_row(*(Text(cell, style) for cell in cells))
    console.print(table)
    return 0


RECIPE = Verb(
    "recipe",
    "show what a recipe lets one set: each macro, its value, its meaning, its file",
    recipe,
    [
        option(
            "recipe",
            "names of recipes, or gin files, read one after another (default: which there are)",
            metavar="NAME",
            nargs="*",
        )
    ],
)


def plan(args: Namespace) -> int:
    from xlingjax.runtime.files import require_file, write_json
    from xlingjax.workflows.plan.plan import measured, require_machine, stand_ins, text_of
    from xlingjax.workflows.plan.search import require_searched, search

    if args.platform or args.devices:
        raise UserError("plan: --on says for which devices; leave --platform and --devices out")
    if not args.search:
        require_unread(args, ("tries",), "it is of --search")
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
    say = functools.partial(print, flush=True)
    records = []
    fit = True
    for machine in args.on:
        plan = measured(args.gin_file, overrides, machine)
        say(text_of(plan))
        record = plan.record()
        if args.search:
            best, tried = search(args.gin_file, overrides, machine, args.tries or 8, say)
            record["search"] = {
                "best": best and best.flags,
                "tried": [one.record() for one in tried],
            }
            fit = fit and best is not None
        else:
            fit = fit and plan.all_fit
        records.append(record)
        if args.output:
            write_json(Path(args.output), records)
    return 0 if fit else 1


PLAN = Verb(
    "plan",
    "compile a recipe for machines that are not there: does it fit, what bounds it, how long",
    plan,
    [
        option(
            "--on",
            "H100:8, A100:16, V100:8, v4:2x2x2, v5e:4x4, v5p:2x2x4, v6e:4x8, or here; repeat for"
            " several",
            action="append",
            metavar="MACHINE",
            required=True,
        ),
        option(
            "--search",
            "look for settings that fit: mesh, microbatches, what is recomputed, what computes"
            " attention",
            bool,
        ),
        option("--tries", "programs that --search compiles at most (default 8)", positive, "N"),
        option("--to", "also write all figures here, as JSON", place, "FILE"),
    ],
    recipe=True,
)


def verify(args: Namespace) -> int:
    from rich.console import Console

    from xlingjax.config.recipe import read_recipe
    from xlingjax.model.build import build_model
    from xlingjax.objectives.verify import table, verify
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.launch import stages_of

    recipe = read_recipe(args.gin_file, args.overrides)
    stages = dict(stages_of(recipe))
    # Fine-tuning, for one, promises nothing of whose words a prediction depends on.
    silent = [name for name, stage in stages.items() if not stage.objective.evidence()]
    if silent:
        print(f"not tested, since they predict no hidden words: {', '.join(silent)}")
    if len(silent) == len(stages):
        raise UserError("verify tests what objectives predict of hidden words; none here does")
    machine = start(machine_of(args))
    config = recipe.bound["model"]
    objectives: dict[str, tuple[Any, Any]] = {}
    # Those that are open are closed even where the next one cannot be opened.
    try:
        for name, stage in stages.items():
            if name not in silent:
                objectives[name] = stage.objective, stage.source()
        findings = list(verify(objectives, build_model(config), args.rows))
    finally:
        for _, source in objectives.values():
            source.close()
    # What holds on one backend, precision and machine is not proved of another.
    title = f"{config.attention_backend} attention, {config.dtype}, {machine}"
    Console().print(table(findings, title))
    # So that a script that verifies before it trains stops.
    return 1 if any(finding.verdict != "ok" for finding in findings) else 0


VERIFY = Verb(
    "verify",
    "test on this machine that every prediction of a recipe depends on what its objective promises"
    " and nothing else",
    verify,
    [option("--rows", "rows tested per objective (default %(default)s)", positive, default=4)],
    recipe=True,
)


def inspect(args: Namespace) -> int:
    from xlingjax.runtime.machine import start

    if args.pair:
        from xlingjax.workflows.files.attention import attention_of_pair

        given = args.run and args.languages and args.output
        if not given or args.gin_file or args.overrides:
            raise UserError(
                'inspect --pair: a run has its recipe: xlingjax inspect RUN --pair "TEXT" "TEXT"'
                " --languages de en --to DIR"
            )
        start(machine_of(args))
        how = {"layer": args.layer, "head": args.head, "reset_positions": args.reset_positions}
        attention_of_pair(
            workdir_of(args.run), args.pair, args.languages, output=args.output, **how
        )
        return 0
    require_unread(
        args,
        ("run", "languages", "layer", "head", "reset_positions"),
        "without --pair a recipe alone is read",
    )
    from xlingjax.config.recipe import read_recipe
    from xlingjax.report.inspector import inspect
    from xlingjax.workflows.launch import planned_course, stages_of, too_late

    recipe = read_recipe(args.gin_file, args.overrides)
    # Sources ask JAX which part of a batch this process has.
    start(machine_of(args))
    for message in too_late(recipe):
        print(f"warning: {message}")
    objectives: dict[str, tuple[Any, Any]] = {}
    # Those that are open are closed even where the next one cannot be opened.
    try:
        for name, stage in stages_of(recipe):
            objectives[name] = stage.objective, stage.source()
        inspect(
            objectives,
            recipe.corpus.vocabulary,
            record=planned_course(recipe),
            rows=args.rows,
            output=args.output,
        )
    finally:
        for _, source in objectives.values():
            source.close()
    return 0


INSPECT = Verb(
    "inspect",
    "show what a recipe feeds the model: pieces, targets, positions, languages, packing, masks; or"
    " whom the pieces of a pair attend to in a trained one",
    inspect,
    [
        option("run", "with --pair: a run; RUN@STEP; hf:FOLDER_OR_ID", metavar="RUN", nargs="?"),
        *grouped(
            "attention of a trained model, instead of what a recipe feeds one",
            option(
                "--pair",
                "a text and its translation: whom each of their pieces attends to",
                nargs=2,
                metavar=("TEXT", "TEXT"),
            ),
            option("--languages", nargs=2, metavar=("SRC", "TGT")),
            option("--layer", "from 1 (default: the middle one)", positive, "N"),
            option("--head", "from 1 (default: the mean over all)", positive, "N"),
            option(
                "--reset-positions",
                "positions begin anew at the second text, as XLM was trained (default: as the run"
                " was on pairs; of a model that does not tell they run on)",
                action=BooleanOptionalAction,
            ),
        ),
        option("--rows", "rows shown per objective (%(default)s)", positive, "N", default=2),
        option("--to", "gets inspect.html; with --pair it must be given", metavar="DIR"),
    ],
    recipe=True,
)
