"""The verbs that measure, or show what was measured: `evaluate`, `score`, `report`."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from xlingjax.cli import tasks
from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import POOLINGS, layer, not_negative
from xlingjax.cli.verb import Verb, grouped, option, require_unread, workdir_of
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json, require_apart, require_folder, write_json


def evaluate(args: Namespace) -> int:
    if args.suite and args.mixture:
        raise UserError("--suite and --mixture: give one of them")
    if args.suite:
        return tasks.suite(args)
    if args.mixture:
        return tasks.mixture(args)
    require_unread(args, tasks.OF_SUITES, "only --suite and --mixture read this")
    from xlingjax.config.recipe import read_recipe
    from xlingjax.training.run_record import run_and_checkpoint
    from xlingjax.workflows.launch import evaluate

    if not args.run:
        raise UserError("evaluate: give RUN, or --suite or --mixture")
    workdir = workdir_of(args.run)
    files = args.gin_file
    # A run keeps its recipe, whose evaluators are meant where none is given.
    if not files:
        config = run_and_checkpoint(workdir)[0] / "config.gin"
        if not config.exists():
            raise UserError(
                f"no run in {workdir}: there is no config.gin; give the workdir of a run"
            )
        files = [str(config)]
    evaluate(read_recipe(files, args.overrides), workdir, machine_of(args))
    return 0


EVALUATE = Verb(
    "evaluate",
    "run evaluators (default: those of the run) on the newest checkpoint of a run; or a benchmark's"
    " tasks",
    evaluate,
    [
        tasks.RUN,
        *grouped(
            "a benchmark, instead of the run's own evaluators",
            option(
                "--suite", "fine-tune on, or measure, every task: xtreme, xglue", metavar="NAME"
            ),
            option(
                "--mixture",
                "measure a checkpoint as it is on every task of a benchmark that its head fits, or"
                " on a mixture or task of SeqIO",
                metavar="NAME",
            ),
            option(
                "--follow", "--mixture on each checkpoint of a run until it ends", metavar="RUN"
            ),
            option(
                "--tasks",
                "those of the benchmark (default: all); of another --mixture the Python modules"
                " that register it",
                nargs="+",
                metavar="TASK",
            ),
            option(
                "--split",
                "of --mixture: dev, test, dev[50%%:] (default: test, else dev; of other tasks of"
                " SeqIO validation, else dev, else test)",
                metavar="SPLIT",
            ),
            option(
                "--patience",
                "minutes in which a followed run may write nothing (default 60; 0: for ever)",
                not_negative,
                "MINUTES",
            ),
            option(
                "--layer",
                "of retrieval and mining (default: the run's own, else the papers'); of retrieval"
                " several, or all: a table",
                layer,
                "N",
                nargs="+",
            ),
            option(
                "--pooling",
                "of them (default: the run's own, else mean, of BUCC first)",
                choices=(*POOLINGS, "all"),
                nargs="+",
                metavar="POOLING",
            ),
            option(
                "--labels",
                "of --mixture: the task's labels in the order of the head's outputs, where the"
                " model names them LABEL_0, ...",
                nargs="+",
                metavar="LABEL",
            ),
            option(
                "--prefix", "of them, before a sentence (default: the run's own)", metavar="TEXT"
            ),
            tasks.SCORES,
            *tasks.SWEEP,
        ),
    ],
    recipe=True,
)


def score(args: Namespace) -> int:
    if bool(args.metric) == bool(args.suite):
        raise UserError(
            "score: give --suite for a benchmark's folders, or --metric for two files of lines"
        )
    if args.output:
        require_apart(args.output, {"--predictions": args.predictions, "--gold": args.gold})
    if args.metric:
        return _score_lines(args)
    from xlingjax.evaluation.score_files import score_files
    from xlingjax.report import html
    from xlingjax.runtime.files import write_json
    from xlingjax.tasks import suite_tasks

    scores = score_files(
        suite_tasks(args.suite), args.predictions, args.gold, args.split, args.allow_missing
    )
    print(f"{args.suite}, {args.split}: {args.predictions}")
    print(html.render("scores.txt", **scores), end="")
    if args.output:
        record = {"suite": args.suite, "predictions": args.predictions, "gold": args.gold, **scores}
        Path(args.output).parent.mkdir(parents=True, exist_ok=True)
        write_json(Path(args.output), record)
        print(f"scores: {args.output}")
    return 0


def _score_lines(args: Namespace) -> int:
    from xlingjax.data.text.files import read_lines
    from xlingjax.data.text.other_formats import refuse_no_lines
    from xlingjax.evaluation.metrics.moses import moses_bleu
    from xlingjax.evaluation.metrics.text import bleu, chrf

    if not args.language:
        raise UserError("--metric needs --language, that of the lines")
    if args.moses and args.metric != "tokenised_bleu":
        raise UserError(f"--moses: {args.metric} has a tokenisation of its own; leave it out")
    sides = []
    for path in (args.predictions, args.gold):
        if not Path(path).is_file():
            raise UserError(f"missing file: {path}; --metric reads two files")
        refuse_no_lines(path)
        sides.append([line for _, line in read_lines(path)])
    made, wanted = sides
    if args.metric == "tokenised_bleu":
        value, signature = moses_bleu(made, wanted, args.moses or (), args.language)
    elif args.metric == "bleu":
        value, signature = bleu(made, wanted, args.language)
    else:
        value, signature = chrf(made, wanted)
    print(f"{args.metric} {value:.2f} of {len(made):,} lines ({signature})")
    if args.output:
        record = {"metric": args.metric, "value": value, "signature": signature, "lines": len(made)}
        write_json(Path(args.output), record)
    return 0


SCORE = Verb(
    "score",
    "score a benchmark's prediction files, in its submission format, against its gold files",
    score,
    [
        option("--suite", choices=("xtreme", "xglue", "xnli", "applications")),
        option(
            "--predictions",
            "TASK/test-CODE.tsv, or TASK/CODE.prediction; of --metric a file of one text a line",
            metavar="DIR",
            required=True,
        ),
        option(
            "--gold",
            "the benchmark's folder; of xtreme also labels, one per line, in files named as its"
            " predictions",
            metavar="DIR",
            required=True,
        ),
        *grouped(
            "two files of lines, instead of --suite",
            option(
                "--metric",
                "tokenised_bleu: as multi-bleu.perl; bleu, chrf: sacreBLEU's",
                choices=("tokenised_bleu", "bleu", "chrf"),
            ),
            option("--language", "of the lines", metavar="CODE"),
            option(
                "--moses",
                "of tokenised_bleu, on both files before it: punctuation, romanian, diacritics,"
                " tokenise, hyphens, compounds, lowercase",
                nargs="+",
                metavar="STEP",
            ),
        ),
        option("--split", "of the gold (%(default)s)", default="test", choices=("dev", "test")),
        option("--allow-missing", "score what is there, and say what is not", bool),
        option("--to", "also write everything here, as JSON", metavar="FILE"),
    ],
)


def report(args: Namespace) -> int:
    from xlingjax.report.build import build_report
    from xlingjax.workflows.scorecard.card import show

    first, *others = args.workdir
    # A run whose sweeps stand in its own folder is a run all the same.
    is_run = (Path(first) / "run.json").is_file()
    if not is_run and (Path(first) / "cells").is_dir():
        if args.compare or args.finetuned:
            raise UserError(
                "--compare, --finetuned: a score card reads only folders of cells; leave them out"
            )
        if others and not args.output:
            raise UserError("report: folders share a score card; say where it goes by --to DIR")
        lacking = [folder for folder in others if not (Path(folder) / "cells").is_dir()]
        if lacking:
            raise UserError(f"report: {lacking[0]} has no cells to share a score card")
        if args.output:
            require_folder(args.output)
            Path(args.output).mkdir(parents=True, exist_ok=True)
        print(show(first, *others, output=args.output))
        return 0
    if others:
        raise UserError(f"report {first} ...: a report is of one run; see --compare")
    compare = {}
    for entry in args.compare:
        # A name is given where two folders have one, or theirs says nothing.
        name, equals, path = entry.partition("=")
        compare[name if equals else Path(entry).name] = path or entry
    page = build_report(first, compare, args.finetuned, args.output or None)
    summary = parsed_json(page.with_name("report.json").read_bytes())["summary"]
    for name, value in summary.items():
        print(f"{name:<36} {_shown(value)}")
    print(f"report: {page}")
    return 0


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


REPORT = Verb(
    "report",
    "write report.html and report.json of a run; of sweeps and suites their score card",
    report,
    [
        option(
            "workdir",
            "workdir of a run; or folders of cells (--to of finetune and evaluate), which share one"
            " card",
            metavar="RUN",
            nargs="+",
        ),
        option(
            "--compare",
            "a run to show beside it (MLM alone, a control)",
            action="append",
            default=[],
            metavar="[NAME=]RUN",
        ),
        option("--finetuned", "fine-tuned from it", action="append", default=[], metavar="RUN"),
        option("--to", "folder for the files (default: RUN)", metavar="DIR", default=""),
    ],
)
