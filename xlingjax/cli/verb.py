"""What a verb of the command line is: its options as data, and the function that does it."""

import argparse
import contextlib
import importlib
import inspect
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from xlingjax.cli.examples import EXAMPLES
from xlingjax.errors import UserError, did_you_mean

# That of config/recipe.py, which imports gin and the library: --help has to answer at once.
FOREIGN = "hf:"
ELSEWHERE = ("--output", "--out", "--workdir", "--save", "--output_dir", "--output-dir")
"""What other programs call what is written."""


class Option(NamedTuple):
    names: tuple[str, ...]
    settings: dict[str, Any]  # keywords of `add_argument`
    group: str = ""  # the title under which --help shows it


def option(
    names: str, help: str = "", type: Any = None, metavar: str | None = None, **more: Any
) -> Option:
    """An option, or an argument without dashes. names: with spaces between; type: bool of one that
    takes no value; more: keywords of `add_argument`."""
    settings: dict[str, Any] = {"help": help, **more}
    if names == "--to":
        settings["dest"] = "output"
    if type is bool:
        settings["action"] = "store_true"
    elif type is not None:
        settings["type"] = type
    if metavar is not None:
        settings["metavar"] = metavar
    return Option(tuple(names.split()), settings)


def grouped(title: str, *options: Option) -> list[Option]:
    return [one._replace(group=title) for one in options]


@dataclass(frozen=True)
class Verb:
    name: str
    help: str  # one line, in lower case, without a full stop
    does: str | Callable[[Namespace], int]
    """A function of the command's `Namespace` that gives the exit status; or "module:function" of
    xlingjax, imported when the verb is called: its parameters are named as the options, and it
    returns what is printed."""
    options: Sequence[Option] = ()
    recipe: bool = False
    """It reads a recipe: --gin-file, --gin.NAME=VALUE (`args.overrides`), the machine's options."""
    alone: bool = False  # no other process may write the same --to meanwhile
    verbs: "Sequence[Verb]" = ()  # behind this one: `vocab extend`
    listens: bool = False  # reads standard input, which may be a keyboard

    def __call__(self, args: Namespace) -> int:
        """Do it; the exit status. Raises UserError."""
        from xlingjax.runtime.lock import alone_at

        with alone_at(args.output) if self.alone else contextlib.nullcontext():
            if not isinstance(self.does, str):
                return self.does(args)
            module, _, name = self.does.partition(":")
            function = getattr(importlib.import_module(f"xlingjax.{module}"), name)
            given = {}
            for parameter in inspect.signature(function).parameters:
                value = getattr(args, parameter, None)
                if parameter == "run":
                    value = workdir_of(value)
                # What is not given has the function's own default.
                if value is not None:
                    given[parameter] = tuple(value) if isinstance(value, list) else value
            print(function(**given))
            return 0


def workdir_of(run: str) -> str:
    """The workdir of RUN: itself (a workdir, RUN@STEP, RUN@METRIC), or the import of a model of
    Hugging Face, "hf:FOLDER_OR_ID". Raises UserError."""
    if not run.startswith(FOREIGN):
        return run
    from xlingjax.convert.import_model import imported

    return str(imported(run.removeprefix(FOREIGN)))


def require_unread(args: Namespace, names: Sequence[str], why: str) -> None:
    """Raises UserError where one of these options is given: it would change nothing."""
    flags = {"run": "RUN", "output": "--to"}
    given = [
        flags.get(name, f"--{name.replace('_', '-')}")
        for name in names
        if getattr(args, name) is not None
    ]
    if given:
        raise UserError(f"{', '.join(given)}: {why}; leave it out")


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line too."""

    def error(self, message: str):
        # argparse would print the whole usage and end the process itself, without `main` knowing.
        raise UserError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action, value):
        # argparse lists all there are, and does not say which was meant.
        if action.choices is not None and value not in action.choices:
            near = did_you_mean(str(value), map(str, action.choices))
            known = ", ".join(map(str, action.choices))
            name = "/".join(action.option_strings) or action.metavar or action.dest
            self.error(f"{name} {value!r}{near or f': choose from {known}'}")

    def parse_known_args(self, args=None, namespace=None):
        # argparse would first complain of what is lacking: of --to where --too is given.
        # What stands before a verb is read with the verbs below.
        for word, following in pairwise([*args, "--"] if self._subparsers is None else []):
            name, equals, value = word.partition("=")
            if word == "--":  # behind it stand words of another program
                break
            # As argparse tells options from values; one may be cut short.
            if not name.startswith("--") or " " in word:
                continue
            if any(known.startswith(name) for known in self._option_string_actions):
                continue
            meant = did_you_mean(name, self._option_string_actions)
            if name in ELSEWHERE and "--to" in self._option_string_actions:
                meant = "; did you mean '--to'?"
            if name[2:].isupper() and "--gin-file" in self._option_string_actions:
                value = value if equals else following
                meant = f"; a setting of the recipe is --gin.{name[2:]}={value}"
            self.error(f"no option {name}{meant}")
        return super().parse_known_args(args, namespace)


def add_verbs(
    parser: Parser,
    verbs: Sequence[Verb],
    shared: Sequence[Option],
    listed: bool = True,
    **more: Any,
) -> None:
    """What the parser then gives has `name`, as it is shown, and `verb`. shared: options of the
    verbs that read a recipe; listed: --help of `parser` lists them; more: keywords of
    `add_subparsers`."""
    within = parser.prog.partition(" ")[2]
    below = parser.add_subparsers(metavar="VERB", parser_class=Parser, prog=parser.prog, **more)
    for verb in verbs:
        description = verb.help[0].upper() + verb.help[1:] + "."
        shown = {"help": verb.help} if listed else {}
        name = f"{within} {verb.name}".strip()
        one = below.add_parser(
            verb.name,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **shown,
        )
        one.set_defaults(name=name, verb=verb)
        epilog = []
        if name in EXAMPLES:
            epilog.append(f"example:\n  xlingjax {name} {EXAMPLES[name]}".rstrip())
        groups = {"": one}
        # First, so that --help shows them alike in every verb.
        for names, settings, group in (*(shared if verb.recipe else ()), *verb.options):
            if group not in groups:
                groups[group] = one.add_argument_group(group)
            groups[group].add_argument(*names, **settings)
        if verb.recipe:
            epilog.append("--gin.MACRO=VALUE and --gin.NAME.PARAMETER=VALUE override the recipe.")
        one.epilog = "\n\n".join(epilog)
        if verb.verbs:
            # Without one of them a verb that reads --to does its own work.
            add_verbs(one, verb.verbs, shared, dest="action", required=not verb.options)


TEXT = (
    option("--mono", "text; CODE=GLOB names its language", nargs="+", default=[], metavar="GLOB"),
    option(
        "--parallel",
        "pairs: [name.]aa-bb.aa beside [name.]aa-bb.bb, .tsv, .jsonl",
        nargs="+",
        default=[],
        metavar="GLOB",
    ),
)
# Of folders for others, with a model card.
CARD = (
    option(
        "--language",
        "of all texts, where the model embeds languages; of an encoder-decoder also FROM-TO",
        metavar="CODE",
        default="",
    ),
    option(
        "--license",
        "of the weights, for the card: apache-2.0",
        metavar="ID",
        dest="licence",
        default="",
    ),
    option("--base", "hub id of the first model, for the model card", metavar="ID", default=""),
)
UNVERIFIED = option(
    "--unverified",
    "write it without comparing it with transformers",
    action="store_false",
    dest="verify",
)
RUN = option("run", "a run; RUN@STEP; hf:FOLDER_OR_ID", metavar="RUN")
LAYER = "the run's own, else that of its retrieval, else the last"
PREFIX = "text before every sentence, as 'query: ' (default: the run's own)"
