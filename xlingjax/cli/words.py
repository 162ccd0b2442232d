"""`xlingjax words`."""

import argparse
from argparse import Namespace

from xlingjax.cli.verb import Verb, workdir_of


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run; RUN@STEP; hf:FOLDER_OR_ID")
    text = "lines of a word, a tab and its translation (MUSE); repeat"
    parser.add_argument(
        "--dictionary", action="append", default=[], metavar="AA-BB=FILE", help=text
    )
    text = "lines of a word, a word and a score, tabs between (SemEval-2017 task 2); repeat"
    parser.add_argument(
        "--similarity", action="append", default=[], metavar="AA-BB=FILE", help=text
    )
    text = "single: words of one piece; mean: all, the mean of their pieces (default %(default)s)"
    parser.add_argument("--pieces", default="single", choices=("single", "mean"), help=text)
    parser.add_argument(
        "--output", default="", metavar="FILE", help="write the figures as JSON too"
    )


def run(args: Namespace) -> int:
    from xlingjax.workflows.files.words import words

    print(words(workdir_of(args.run), args.dictionary, args.similarity, args.pieces, args.output))
    return 0


VERB = Verb(
    "words",
    "measure the token table as word embeddings: dictionaries, similarity of words",
    options,
    run,
)
