"""`xlingjax export`."""

import argparse
from argparse import Namespace

from xlingjax.cli.arguments import card_options
from xlingjax.cli.types import place
from xlingjax.cli.verb import Verb, workdir_of


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run; RUN@STEP, RUN@METRIC")
    parser.add_argument(
        "--to", dest="output", type=place, required=True, metavar="DIR", help="a new folder"
    )
    parser.add_argument(
        "--head", default="", metavar="TASK", help="which, of a run with heads of several tasks"
    )
    parser.add_argument(
        "--format", default="hf", choices=("hf",), help="Hugging Face's (default %(default)s)"
    )
    card_options(parser)
    parser.add_argument(
        "--unverified", action="store_true", help="write it without comparing it with transformers"
    )
    parser.add_argument(
        "--push",
        default="",
        metavar="USER/NAME",
        help="send the folder to the Hugging Face hub too, to a private repository where it is new",
    )


def run(args: Namespace) -> int:
    from xlingjax.convert.export_model import export_model
    from xlingjax.convert.hub import Upload

    upload = None
    if args.push:
        # Before the export: a missing token is told at once.
        upload = Upload(args.push)
    card = (args.language, args.license, args.base)
    print(
        export_model(workdir_of(args.run), args.output, not args.unverified, *card, head=args.head)
    )
    if upload:
        print(upload.send(args.output))
    return 0


VERB = Verb(
    "export",
    "write a trained model as a folder that AutoModel or AutoModelForSeq2SeqLM of transformers"
    " opens, compared with it first",
    options,
    run,
)
