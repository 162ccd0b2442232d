"""The grammar of the command line: all verbs together, and the options that several share."""

import argparse
from collections.abc import Sequence

import xlingjax
from xlingjax.cli.machine import machine_options
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line too."""

    def error(self, message: str):
        # argparse would print the whole usage and end the process itself, without `main` knowing.
        raise UserError(f"{message} (see {self.prog} --help)")


def parser_of(verbs: Sequence[Verb]) -> argparse.ArgumentParser:
    """What it parses has `name`, as it is shown, and `run_verb`, which does it."""
    top = Parser(
        prog="xlingjax",
        description="Cross-lingual pretraining in JAX.",
        epilog="xlingjax VERB --help explains a verb.",
    )
    top.add_argument(
        "--version",
        action="version",
        version=f"xlingjax {xlingjax.__version__}",
    )
    subparsers = top.add_subparsers(
        dest="verb",
        metavar="VERB",
        required=True,
        parser_class=Parser,
    )
    for verb in verbs:
        description = verb.help[0].upper() + verb.help[1:] + "."
        parser = subparsers.add_parser(
            verb.name,
            help=verb.help,
            description=description,
        )
        parser.set_defaults(name=verb.name, run_verb=verb.run)
        # First, so that --help shows them alike in every verb.
        if verb.recipe:
            recipe_options(parser)
        verb.options(parser)
    return top


def recipe_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gin_file",
        action="append",
        default=[],
        metavar="FILE",
        help="a recipe; repeat to add bindings",
    )
    parser.epilog = (
        "--gin.MACRO=VALUE and --gin.NAME.PARAMETER=VALUE override the recipe."
    )
    machine_options(parser)


def text_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mono",
        nargs="+",
        default=[],
        metavar="GLOB",
        help="monolingual text; CODE=GLOB names its language",
    )
    parser.add_argument(
        "--parallel",
        nargs="+",
        default=[],
        metavar="GLOB",
        help="pairs: [name.]aa-bb.aa beside [name.]aa-bb.bb, .tsv, .jsonl",
    )


def card_options(parser: argparse.ArgumentParser) -> None:
    """Of folders for others, with a model card."""
    parser.add_argument(
        "--language",
        default="",
        metavar="CODE",
        help="of all texts, where the model embeds languages; of an encoder-decoder also FROM-TO",
    )
    parser.add_argument(
        "--license",
        default="",
        metavar="ID",
        help="of the weights, for the model card: apache-2.0",
    )
    parser.add_argument(
        "--base",
        default="",
        metavar="ID",
        help="hub id of the first model, for the model card",
    )
