"""`xlingjax score`."""

import argparse
from argparse import Namespace
from pathlib import Path

from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=("xtreme", "xglue", "xnli", "applications"))
    text = "TASK/test-CODE.tsv, or TASK/CODE.prediction"
    parser.add_argument(
        "--predictions",
        required=True,
        metavar="DIR",
        help=f"{text}; of --metric a file of one text a line",
    )
    text = (
        "the benchmark's folder; of xtreme also labels, one per line, in files named as its"
        " predictions"
    )
    parser.add_argument("--gold", required=True, metavar="DIR", help=text)
    group = parser.add_argument_group("two files of lines, instead of --suite")
    group.add_argument(
        "--metric",
        choices=("tokenised_bleu", "bleu", "chrf"),
        help="tokenised_bleu: as multi-bleu.perl; bleu, chrf: sacreBLEU's",
    )
    group.add_argument("--language", metavar="CODE", help="of the lines")
    text = (
        "of tokenised_bleu, on both files before it: punctuation, romanian, diacritics, tokenise,"
        " hyphens, compounds, lowercase"
    )
    group.add_argument("--moses", nargs="+", metavar="STEP", help=text)
    text = "of the gold files (default %(default)s)"
    parser.add_argument("--split", default="test", choices=("dev", "test"), help=text)
    parser.add_argument(
        "--allow-missing", action="store_true", help="score what is there, and say what is not"
    )
    parser.add_argument(
        "--output", default="", metavar="FILE", help="also write everything here, as JSON"
    )


def _of_lines(args: Namespace) -> int:
    """Two files of lines by one metric."""
    from xlingjax.data.text.files import read_lines
    from xlingjax.data.text.other_formats import refuse_no_lines
    from xlingjax.evaluation.metrics.moses import moses_bleu
    from xlingjax.evaluation.metrics.text import bleu, chrf
    from xlingjax.runtime.files import write_json

    if not args.language:
        raise UserError("--metric needs --language, that of the lines")
    if args.moses and args.metric != "tokenised_bleu":
        raise UserError(
            f"--moses: {args.metric} has a tokenisation of its own; leave it out, or give --metric"
            " tokenised_bleu"
        )
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


def run(args: Namespace) -> int:
    if bool(args.metric) == bool(args.suite):
        raise UserError(
            "score: give --suite for a benchmark's folders, or --metric for two files of lines"
        )
    if args.output:
        from xlingjax.runtime.files import require_apart

        read = {"--predictions": args.predictions, "--gold": args.gold}
        require_apart(args.output, read)
    if args.metric:
        return _of_lines(args)
    from xlingjax.evaluation.score_files import footnotes, score_files, score_lines
    from xlingjax.runtime.files import write_json
    from xlingjax.tasks import suite_tasks

    scores = score_files(
        suite_tasks(args.suite), args.predictions, args.gold, args.split, args.allow_missing
    )
    print(f"{args.suite}, {args.split}: {args.predictions}")
    for line in (*score_lines(scores), *footnotes(scores)):
        print(line)
    if args.output:
        record = {"suite": args.suite, "predictions": args.predictions, "gold": args.gold, **scores}
        Path(args.output).parent.mkdir(parents=True, exist_ok=True)
        write_json(Path(args.output), record)
        print(f"scores: {args.output}")
    return 0


VERB = Verb(
    "score",
    "score a benchmark's prediction files, in its submission format, against its gold files",
    options,
    run,
)
