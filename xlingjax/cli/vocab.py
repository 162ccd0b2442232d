"""`xlingjax vocab`: trains a vocabulary; `vocab extend`, `trim`, `transplant`: changes that of a
trained model."""

import argparse
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from xlingjax.cli.arguments import Parser, text_options
from xlingjax.cli.types import (
    coverage,
    not_negative,
    place,
    positive,
    seed,
    sentinels,
    vocabulary_size,
)
from xlingjax.cli.verb import Verb, workdir_of
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json
from xlingjax.runtime.lock import alone_at

_NORMALIZATIONS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")
"""SentencePiece's."""


def options(parser: argparse.ArgumentParser) -> None:
    text_options(parser)
    parser.add_argument(
        "--output", type=place, metavar="DIR", help="folder for vocab.model and vocab.json"
    )
    parser.add_argument(
        "--size",
        type=vocabulary_size,
        default=32_000,
        help="pieces, special too, or as many as the text has (default %(default)s)",
    )
    _sample_options(parser, "languages are sampled by share ** alpha (default %(default)s)")
    parser.add_argument("--model_type", default="unigram", choices=("unigram", "bpe"))
    parser.add_argument(
        "--byte_fallback", action="store_true", help="unknown characters become bytes, not <unk>"
    )
    parser.add_argument(
        "--normalization",
        default="nmt_nfkc",
        choices=_NORMALIZATIONS,
        help="nmt_nfkc_cf folds case",
    )
    parser.add_argument(
        "--sentinels",
        type=sentinels,
        default=0,
        metavar="N",
        help="special tokens for the spans of span corruption (T5 has 100)",
    )
    parser.add_argument("--seed", type=seed, default=0)
    _surgery(parser)


def _sample_options(parser: argparse.ArgumentParser, alpha: str) -> None:
    parser.add_argument("--alpha", type=not_negative, default=0.5, help=alpha)
    parser.add_argument(
        "--sentences",
        type=positive,
        default=1_000_000,
        help="size of the sample (default %(default)s)",
    )
    text = "share of characters with a piece (%(default)s)"
    parser.add_argument("--character_coverage", type=coverage, default=0.9995, help=text)


def _surgery(parser: argparse.ArgumentParser) -> None:
    """The verbs behind `vocab`, each from a trained model to a new one. Without one of them it
    trains a vocabulary."""
    verbs = parser.add_subparsers(
        dest="action", metavar="VERB", parser_class=Parser, title="on trained models"
    )

    def verb(name: str, text: str, run: Callable[[Namespace], int]) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        # A parser below overrides the defaults of the one above, which trains a vocabulary.
        sub.set_defaults(name=f"vocab {name}", run_verb=run)
        # They read no recipe and have no options for the machine: what JAX finds.
        sub.set_defaults(platform="", devices=None)
        sub.add_argument("run", metavar="RUN", help="the trained model; RUN@STEP; hf:FOLDER_OR_ID")
        sub.add_argument(
            "--to",
            dest="output",
            type=place,
            required=True,
            metavar="DIR",
            help="a new workdir, for INIT_FROM",
        )
        text_options(sub)
        return sub

    sub = verb("extend", "add pieces for a new language or script, learnt on its text", extend)
    sub.add_argument("--pieces", type=positive, required=True, metavar="N", help="how many")
    text = "text of the old languages: nothing is added that would change how it is cut"
    sub.add_argument("--old_mono", nargs="+", default=[], metavar="GLOB", help=text)
    _sample_options(sub, "of several languages, as in vocab (default %(default)s)")
    _row_options(sub)

    sub = verb("trim", "drop the pieces that a text does not use, and their rows", trim)
    text = "occurrences that keep a piece"
    sub.add_argument("--keep_min_count", type=positive, default=1, metavar="N", help=text)
    sub.add_argument(
        "--size", type=positive, metavar="N", help="rows at most; the most frequent pieces stay"
    )
    text = "single characters too (default: they stay)"
    sub.add_argument("--drop_characters", action="store_true", help=text)

    text = "move a model onto another vocabulary; pieces that both have keep their rows"
    sub = verb("transplant", text, transplant)
    text = "folder of vocab.model, or a .model file"
    sub.add_argument("--vocabulary", required=True, metavar="PATH", help=text)
    _row_options(sub)


def _row_options(parser: argparse.ArgumentParser) -> None:
    text = "new rows: mean of the old pieces that spell it; as in an untrained model"
    parser.add_argument(
        "--initialise",
        default="mean",
        choices=("mean", "random"),
        help=text + " (default %(default)s)",
    )
    parser.add_argument("--seed", type=seed, default=0)


def run(args: Namespace) -> int:
    from xlingjax.data.vocabulary.training import format_report, train_vocabulary

    # The verbs behind `vocab` have --to, so argparse cannot require it.
    if not args.output:
        raise UserError(
            "the following arguments are required: --output (see xlingjax vocab --help)"
        )
    model = Path(args.output, "vocab.model")
    with alone_at(args.output):
        before = None
        if model.is_file():
            before = model.read_bytes()
        train_vocabulary(
            args.output,
            mono=args.mono,
            parallel=args.parallel,
            size=args.size,
            alpha=args.alpha,
            sentences=args.sentences,
            character_coverage=args.character_coverage,
            model_type=args.model_type,
            byte_fallback=args.byte_fallback,
            normalization=args.normalization,
            sentinels=args.sentinels,
            seed=args.seed,
        )
        # What is printed is what stands on the disk.
        report = parsed_json((Path(args.output) / "vocab.json").read_text(encoding="utf-8"))
    print(format_report(report["languages"]))
    if before not in (None, model.read_bytes()):
        print(
            f"warning: another vocabulary was in {args.output} and is replaced; runs that read it"
            " do not go on with this one"
        )
    said = f"vocabulary in {args.output}: {report['size']} pieces"
    if report["size"] < args.size:
        said += f", as many as the text has (--size {args.size})"
    print(said)
    return 0


def extend(args: Namespace) -> int:
    from xlingjax.convert import vocabulary

    print(
        vocabulary.extend(
            workdir_of(args.run),
            args.output,
            mono=args.mono,
            parallel=args.parallel,
            pieces=args.pieces,
            old_mono=args.old_mono,
            initialise=args.initialise,
            seed=args.seed,
            alpha=args.alpha,
            sentences=args.sentences,
            character_coverage=args.character_coverage,
        )
    )
    return 0


def trim(args: Namespace) -> int:
    from xlingjax.convert import vocabulary

    print(
        vocabulary.trim(
            workdir_of(args.run),
            args.output,
            mono=args.mono,
            parallel=args.parallel,
            min_count=args.keep_min_count,
            size=args.size,
            characters=not args.drop_characters,
        )
    )
    return 0


def transplant(args: Namespace) -> int:
    from xlingjax.convert import vocabulary

    print(
        vocabulary.transplant(
            workdir_of(args.run),
            args.output,
            args.vocabulary,
            mono=args.mono,
            parallel=args.parallel,
            initialise=args.initialise,
            seed=args.seed,
        )
    )
    return 0


VERB = Verb(
    "vocab",
    "train a SentencePiece vocabulary on a smoothed sample; or extend, trim, transplant a model's",
    options,
    run,
)
