"""The command `xlingjax`: its verbs, each in a file beside this one."""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from itertools import pairwise

from xlingjax.cli import (
    adapt,
    align,
    average,
    bakeoff,
    cache,
    data,
    demo,
    doctor,
    encode,
    evaluate,
    export,
    finetune,
    import_,
    inspect,
    mine,
    plan,
    plug,
    pretrain,
    recipe,
    report,
    score,
    table,
    translate,
    verify,
    vocab,
    words,
)
from xlingjax.cli.arguments import parser_of, unread
from xlingjax.cli.machine import prepare_machine
from xlingjax.errors import EXIT_CODE, INTERRUPTED, Stopped, UserError, in_one_line
from xlingjax.runtime.files import refused_by_system, require_unicode
from xlingjax.runtime.trust import trusting

GIN_PREFIX = "--gin."
GARBAGE_AFTER = 500_000
"""New objects after which Python looks for cycles of them. By default 700: imports and JAX's
tracing, which make millions that stay, would be a quarter slower."""
# --help lists them in this order.
VERBS = (
    pretrain.VERB,
    finetune.VERB,
    bakeoff.VERB,
    table.VERB,
    recipe.VERB,
    vocab.VERB,
    data.VERB,
    cache.VERB,
    demo.VERB,
    inspect.VERB,
    plan.VERB,
    verify.VERB,
    evaluate.VERB,
    score.VERB,
    report.VERB,
    encode.VERB,
    align.VERB,
    mine.VERB,
    words.VERB,
    translate.VERB,
    translate.GENERATE,
    plug.VERB,
    average.VERB,
    import_.VERB,
    adapt.VERB,
    export.VERB,
    doctor.VERB,
)


def parser() -> argparse.ArgumentParser:
    return parser_of(VERBS)


def run(argv: Sequence[str]) -> int:
    """Does what the words of a command line ask; the exit status. Raises UserError."""
    # argparse knows no options of any name, so gin's are taken out before it.
    overrides = []
    words = []
    for word in argv:
        # What is typed may be of several lines.
        require_unicode(" ".join(word.splitlines()))
    for word, following in pairwise([*argv, "--"]):
        if not word.startswith(GIN_PREFIX):
            words.append(word)
            continue
        # Before argparse, which would complain of the value behind a space, and not of the space.
        if "=" not in word:
            value = following
            if following.startswith("--"):
                value = "VALUE"
            raise UserError(f"{word}: write {word}={value}, without a space")
        overrides.append(word.removeprefix(GIN_PREFIX))
    args, rest = parser().parse_known_args(words)
    if rest:
        raise UserError(unread(args, rest))
    if overrides and "gin_file" not in args:
        raise UserError(f"--gin.{overrides[0]}: {args.name} reads no recipe")
    args.overrides = overrides
    args.words = [*argv]
    # Before the verb imports what starts JAX.
    if "platform" in args:
        prepare_machine(args)
    if len(getattr(args, "gin_file", None) or ()) > 1:
        _say_what_is_set_anew(args)
    with trusting("trust" in args and args.trust):
        return args.run_verb(args)


def _say_what_is_set_anew(args: argparse.Namespace) -> None:
    from xlingjax.config.gin_files import set_anew

    try:
        line = set_anew(args.gin_file, args.overrides)
    # A file that cannot be read, which the verb says with its line.
    except UserError:
        return
    if line:
        # As a run's warnings; standard error is for what ends it.
        print(line)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 done, 1 something found wrong, 2 bad input, 75 asked to stop and saved,
    130 interrupted, 141 what reads its output has ended."""
    if argv is None:
        argv = sys.argv[1:]
        # What a terminal cannot show is no reason to end.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace")
    gc.set_threshold(GARBAGE_AFTER)
    try:
        return run(argv)
    except UserError as error:
        print(f"error: {in_one_line(error)}", file=sys.stderr)
        # As argparse's own status for wrong usage.
        return 2
    except BrokenPipeError:
        # What reads the pipe has seen enough.
        # Python flushes standard output once more when it ends, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # What a shell gives for SIGPIPE.
        return 141
    # What no verb has words of its own for.
    except OSError as error:
        line = refused_by_system(error)
        if not line:
            raise
        print(f"error: {line}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return EXIT_CODE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
