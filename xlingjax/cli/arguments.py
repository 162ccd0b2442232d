"""The grammar of the command line: all verbs together, and the options that several share."""

import argparse
import difflib
import re
from argparse import Namespace
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import xlingjax
from xlingjax.cli.machine import machine_options
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line too."""

    def error(self, message: str):
        # argparse would print the whole usage and end the process itself, without `main` knowing.
        raise UserError(f"{message} (see {self.prog} --help)")

    def parse_known_args(self, args=None, namespace=None):
        # Those of a verb alone: what stands before the verb is read with the verbs below.
        if self._subparsers is None:
            for word, following in pairwise([*args, "--"]):
                # Behind it stand words of another program.
                if word == "--":
                    break
                self._require_option(word, following)
        return super().parse_known_args(args, namespace)

    def _require_option(self, word: str, following: str) -> None:
        """Raises UserError for an option that is not there. argparse would first complain of what
        is lacking: of --workdir where --workdri is given."""
        name = word.partition("=")[0]
        # As argparse tells options from values, which may have dashes and spaces.
        if not name.startswith("--") or " " in word:
            return
        known = self._option_string_actions
        # It may be cut short: --gin for --gin_file.
        if any(option.startswith(name) for option in known):
            return
        meant = nearest(name, known)
        setting = as_setting(word, following)
        if "--gin_file" in known and setting:
            meant = f"; a setting of the recipe is {setting}"
        self.error(f"no option {name}{meant}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """argparse's own names all choices, and of many the one that was meant is not found."""
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        near = nearest(str(value), choices) or (f" (choose from {', '.join(map(repr, choices))})")
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near}")


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message: what was probably meant; "": nothing is near."""
    near = difflib.get_close_matches(word, list(known), 1)
    if near:
        return f"; did you mean {near[0]}?"
    return ""


def as_setting(word: str, following: str) -> str:
    """How the recipe's setting that was probably meant is written; "": it is none."""
    name, _, value = word.removeprefix("--").partition("=")
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
        return ""
    if "=" not in word:
        value = following
        if following.startswith("--"):
            value = "VALUE"
    return f"--gin.{name}={value}"


def unread(args: Namespace, rest: Sequence[str]) -> str:
    """What is said of words that the verb does not take."""
    said = f"unrecognized arguments: {' '.join(rest)}"
    setting = as_setting(rest[0], "--")
    if "gin_file" in args and setting:
        said += f"; a setting of the recipe is {setting}"
    return f"{said} (see xlingjax {args.name} --help)"


def parser_of(verbs: Sequence[Verb]) -> argparse.ArgumentParser:
    """What it parses has `name`, as it is shown, and `run_verb`, which does it."""
    top = Parser(
        prog="xlingjax",
        description="Cross-lingual pretraining in JAX.",
        epilog="xlingjax VERB --help explains a verb.",
    )
    top.add_argument("--version", action="version", version=f"xlingjax {xlingjax.__version__}")
    subparsers = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    for verb in verbs:
        description = verb.help[0].upper() + verb.help[1:] + "."
        parser = subparsers.add_parser(verb.name, help=verb.help, description=description)
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
    parser.add_argument(
        "--trust",
        action="store_true",
        help="the config.gin of a run may have modules imported, which may do anything",
    )
    parser.epilog = "--gin.MACRO=VALUE and --gin.NAME.PARAMETER=VALUE override the recipe."
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
        "--license", default="", metavar="ID", help="of the weights, for the model card: apache-2.0"
    )
    parser.add_argument(
        "--base", default="", metavar="ID", help="hub id of the first model, for the model card"
    )
