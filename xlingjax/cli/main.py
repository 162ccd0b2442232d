"""The command `xlingjax`: its verbs, each in a file beside this one."""

import argparse
import os
import sys
from collections.abc import Sequence

from xlingjax.cli import (
    adapt,
    align,
    average,
    bakeoff,
    data,
    doctor,
    encode,
    evaluate,
    export,
    finetune,
    freeze,
    import_,
    inspect,
    mine,
    plug,
    pretrain,
    recipe,
    report,
    score,
    table,
    tinyworld,
    translate,
    verify,
    vocab,
    words,
)
from xlingjax.cli.arguments import parser_of
from xlingjax.cli.machine import prepare_machine
from xlingjax.errors import EXIT_CODE, Stopped, UserError

GIN_PREFIX = "--gin."
VERBS = (
    pretrain.VERB, finetune.VERB, bakeoff.VERB, table.VERB, recipe.VERB, vocab.VERB, data.VERB,
    tinyworld.VERB, inspect.VERB, verify.VERB, freeze.VERB, evaluate.VERB, score.VERB,
    report.VERB, encode.VERB, align.VERB, mine.VERB, words.VERB, translate.VERB,
    translate.GENERATE, plug.VERB, average.VERB, import_.VERB, adapt.VERB, export.VERB,
    doctor.VERB,
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    return parser_of(VERBS)


def run(argv: Sequence[str]) -> int:
    """Does what the words of a command line ask; the exit status. Raises UserError."""
    overrides = [
        word.removeprefix(GIN_PREFIX) for word in argv if word.startswith(GIN_PREFIX)
    ]
    args = parser().parse_args(
        [word for word in argv if not word.startswith(GIN_PREFIX)]
    )
    for override in overrides:
        if "=" not in override:
            raise UserError(
                f"--gin.{override}: write --gin.{override}=VALUE, without a space"
            )
    if overrides and "gin_file" not in args:
        raise UserError(f"--gin.{overrides[0]}: {args.name} reads no recipe")
    args.overrides = overrides
    if "platform" in args:
        prepare_machine(args)
    return args.run_verb(args)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 done, 1 something found wrong, 2 bad input, 75 asked to stop and saved,
    130 interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return run(argv)
    except UserError as error:
        # gin appends lines about its own call stack to what passes through it; the first is ours.
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return EXIT_CODE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
