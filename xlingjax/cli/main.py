"""The command `xlingjax`: its verbs, in families beside this file."""

import argparse
import gc
import os
import sys
from collections.abc import Sequence

import xlingjax
from xlingjax.cli import corpora, doctor, measuring, models, training
from xlingjax.cli.machine import RECIPE, prepare_machine
from xlingjax.cli.verb import Parser, add_verbs
from xlingjax.errors import EXIT_CODE, INTERRUPTED, Stopped, UserError, in_one_line
from xlingjax.runtime.files import refused_by_system, require_unicode
from xlingjax.runtime.quiet import Printed
from xlingjax.runtime.trust import trusting

GIN_PREFIX = "--gin."
GARBAGE_AFTER = 500_000
"""New objects after which Python looks for cycles of them. By default 700: imports and JAX's
tracing, which make millions that stay, would be a quarter slower."""
# --help lists them in this order.
VERBS = (
    training.START,
    training.PRETRAIN,
    training.FINETUNE,
    training.BAKEOFF,
    training.TABLE,
    training.RECIPE,
    corpora.VOCAB,
    corpora.DATA,
    corpora.CACHE,
    corpora.DEMO,
    training.INSPECT,
    training.PLAN,
    training.VERIFY,
    measuring.EVALUATE,
    measuring.SCORE,
    measuring.REPORT,
    models.ENCODE,
    models.ALIGN,
    models.MINE,
    models.WORDS,
    models.TRANSLATE,
    models.GENERATE,
    models.PLUG,
    models.AVERAGE,
    models.IMPORT,
    training.ADAPT,
    models.EXPORT,
    doctor.DOCTOR,
)


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="xlingjax",
        description="Cross-lingual pretraining in JAX.",
        epilog="xlingjax VERB --help explains a verb.",
    )
    top.add_argument("--version", action="version", version=f"xlingjax {xlingjax.__version__}")
    add_verbs(top, VERBS, RECIPE, required=True)
    return top


def run(argv: Sequence[str]) -> int:
    """Does what the words of a command line ask; the exit status. Raises UserError."""
    # argparse knows no options of any name, so gin's are taken out before it.
    overrides = []
    words = []
    for word in argv:
        # What is typed may be of several lines.
        require_unicode(" ".join(word.splitlines()))
        if not word.startswith(GIN_PREFIX):
            words.append(word)
        # Before argparse, which would complain of the value behind a space, and not of the space.
        elif "=" not in word:
            raise UserError(f"{word}: write {word}=VALUE, without a space")
        else:
            overrides.append(word.removeprefix(GIN_PREFIX))
    args = parser().parse_args(words)
    if overrides and not args.verb.recipe:
        raise UserError(f"--gin.{overrides[0]}: {args.name} reads no recipe")
    args.overrides = overrides
    # Before the verb imports what starts JAX.
    prepare_machine(args)
    with trusting(getattr(args, "trust", False)):
        return args.verb(args)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 done, 1 something found wrong, 2 bad input, 75 asked to stop and saved,
    130 interrupted, 141 what reads its output has ended."""
    if argv is None:
        argv = sys.argv[1:]
        sys.stdout, sys.stderr = Printed(sys.stdout), Printed(sys.stderr)
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
