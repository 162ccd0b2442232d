"""`xlingjax translate`, and `xlingjax generate`, which writes in the same language."""

import argparse
from argparse import Namespace

from xlingjax.cli.machine import machine_of, machine_options
from xlingjax.cli.types import at_most, not_negative, number, place, positive, seed, shard
from xlingjax.cli.verb import Verb, require_unread
from xlingjax.errors import UserError

OF_WHOLE = ("score", "references")
OF_DRAWING = ("top_k", "seed")
# What the search alone reads, and --score refuses.
OF_SEARCH = (
    "beams",
    "no_repeat_ngram",
    "min_length",
    "max_length",
    "n_best",
    "temperature",
    *OF_DRAWING,
    "references",
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="workdir of a run with a decoder")
    parser.add_argument("--to", required=True, metavar="CODE", help="language to write")
    _shared_options(parser)


def options_of_generate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="workdir of a run with a decoder")
    parser.add_argument(
        "--language", metavar="CODE", help="of both; --to and --from are for two languages"
    )
    parser.add_argument("--to", metavar="CODE", help="language to write")
    _shared_options(parser)


def _shared_options(parser: argparse.ArgumentParser) -> None:
    """No defaults here: what is given and not read is refused."""
    text = "of the input (default: a run of two's other)"
    parser.add_argument("--from", dest="source", metavar="CODE", help=text)
    parser.add_argument(
        "--input",
        nargs="+",
        metavar="FILE",
        help="a line per text, also compressed; several: --output is a folder (default: a pipe)",
    )
    parser.add_argument(
        "--output",
        type=place,
        metavar="FILE",
        help="written as FILE.partial, which goes on if interrupted (default: a pipe)",
    )
    parser.add_argument(
        "--part_lines",
        type=positive,
        metavar="N",
        help="write parts of N lines in OUTPUT.parts, then join them (of several files 65536)",
    )
    parser.add_argument(
        "--shard",
        type=shard,
        metavar="I/N",
        help="every N-th part alone, from the I-th on: one machine of N",
    )
    parser.add_argument(
        "--beams", type=positive, metavar="N", help="1: greedy (default 5; 1 with --temperature)"
    )
    parser.add_argument(
        "--length_penalty",
        type=number,
        metavar="P",
        help="score: log-probability / tokens ** P (1.0)",
    )
    parser.add_argument(
        "--no_repeat_ngram", type=positive, metavar="N", help="no N tokens in a row twice"
    )
    parser.add_argument(
        "--min_length", type=positive, metavar="N", help="tokens, the end among them"
    )
    text = "at most A * source tokens + B tokens (default 1.5,10)"
    parser.add_argument("--max_length", type=at_most, metavar="A,B", help=text)
    parser.add_argument(
        "--n_best", type=positive, metavar="N", help="N lines for each: number ||| text ||| score"
    )
    parser.add_argument(
        "--temperature", type=not_negative, metavar="T", help="draw tokens instead of searching"
    )
    parser.add_argument(
        "--top_k", type=positive, metavar="K", help="with --temperature: of the K likeliest"
    )
    parser.add_argument("--seed", type=seed, metavar="N", help="with --temperature (default 0)")
    parser.add_argument(
        "--batch_tokens",
        type=positive,
        metavar="N",
        help="tokens x beams of a batch (default 4096)",
    )
    parser.add_argument(
        "--truncate",
        action="store_true",
        help="cut lines that are longer than the model's positions",
    )
    text = "write scores of its lines instead: score, log-probability, tokens"
    parser.add_argument("--score", metavar="FILE", help=text)
    text = "print BLEU, chrF, ROUGE-L and the share in a wrong language"
    parser.add_argument("--references", metavar="FILE", help=text)
    machine_options(parser)


def run(args: Namespace) -> int:
    """Both `translate` and `generate`: one language may be another, or not."""
    from xlingjax.runtime.machine import start

    # `translate` has no --language.
    language = getattr(args, "language", None)
    source = args.source or language
    target = args.to or language
    if target is None:
        raise UserError("generate: which language? Give --language, or --to and --from")
    if args.name == "translate" and source == target:
        raise UserError(
            f"--from {source} --to {target}: name two languages; within one, `xlingjax generate`"
            " writes"
        )
    if args.score:
        require_unread(args, OF_SEARCH, "--score searches for nothing")
    if not args.temperature:
        require_unread(args, OF_DRAWING, "only drawn tokens read this, see --temperature")
    inputs = tuple(args.input or ())
    in_parts = len(inputs) > 1 or args.part_lines or args.shard
    if in_parts:
        require_unread(args, OF_WHOLE, "parts of files are written without it")
        if not inputs:
            raise UserError("parts are of files: give --input")
    start(machine_of(args))
    from xlingjax.model.decoding import Decoding
    from xlingjax.workflows.files.translate import Request, write

    names = (
        "length_penalty",
        "no_repeat_ngram",
        "min_length",
        "max_length",
        "n_best",
        "temperature",
        "top_k",
    )
    given = {}
    # `Decoding` has the defaults of the others.
    for name in names:
        value = getattr(args, name)
        if value is not None:
            given[name] = value
    beams = 5
    # What is drawn or scored is not searched for.
    if args.temperature or args.score:
        beams = 1
    decoding = Decoding(beams=args.beams or beams, **given)
    request = Request(
        args.run,
        source,
        target,
        decoding,
        next(iter(inputs), None),
        args.output,
        args.score,
        args.references,
        args.batch_tokens or 4096,
        args.truncate,
        args.seed or 0,
    )
    if in_parts:
        from xlingjax.workflows.files.translate_parts import LINES, Corpus, write_parts

        corpus = Corpus(inputs, args.part_lines or LINES, args.shard)
        write_parts(request, corpus)
    else:
        write(request)
    return 0


VERB = Verb("translate", "translate each line of a file", options, run)
GENERATE = Verb(
    "generate",
    "write a text for each line of a file, in the same language: a title, a question",
    options_of_generate,
    run,
)
