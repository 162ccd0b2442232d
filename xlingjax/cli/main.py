"""The command `xlingjax`: its verbs, in families beside this file."""

import argparse
import contextlib
import gc
import os
import sys
import textwrap
from collections.abc import Sequence

import xlingjax
from xlingjax.cli import corpora, doctor, measuring, models, training
from xlingjax.cli.machine import RECIPE, prepare_machine
from xlingjax.cli.verb import Parser, add_verbs
from xlingjax.errors import EXIT_CODE, INTERRUPTED, Stopped, UserError, in_one_line
from xlingjax.runtime.files import refused_by_system, require_unicode
from xlingjax.runtime.progress import told
from xlingjax.runtime.quiet import Printed
from xlingjax.runtime.trust import trusting

GIN_PREFIX = "--gin."
GARBAGE_AFTER = 500_000
"""New objects after which Python looks for cycles of them. By default 700: imports and JAX's
tracing, which make millions that stay, would be a quarter slower."""
# --help lists them in this order.
GROUPS = {
    "from your text to a model": (training.START, training.ADAPT),
    "text and vocabularies": (corpora.DATA, corpora.VOCAB, corpora.CACHE, corpora.DEMO),
    "training by recipes": (training.PRETRAIN, training.FINETUNE, training.RECIPE),
    "before and beside a training": (
        *(training.INSPECT, training.VERIFY, training.PLAN, training.BAKEOFF, training.TABLE),
    ),
    "what a model is worth": (measuring.EVALUATE, measuring.SCORE, measuring.REPORT),
    "what a model does": (
        *(models.ENCODE, models.MINE, models.ALIGN, models.WORDS),
        *(models.TRANSLATE, models.GENERATE),
    ),
    "models of other programs, and changed ones": (
        *(models.IMPORT, models.EXPORT, models.AVERAGE, models.PLUG),
    ),
    "this installation": (doctor.DOCTOR,),
}
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="xlingjax",
        description="Cross-lingual pretraining in JAX.",
        epilog=_listed(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="xlingjax VERB ...",
    )
    top.add_argument("--version", action="version", version=f"xlingjax {xlingjax.__version__}")
    add_verbs(top, VERBS, RECIPE, listed=False, required=True)
    return top


def _listed() -> str:
    """The verbs by what they are for."""
    lines = []
    for title, verbs in GROUPS.items():
        lines.append(f"{title}:")
        for verb in verbs:
            first, *more = textwrap.wrap(verb.help, 84)
            lines.append(f"  {verb.name:<10}{first}")
            lines += [f"  {'':<10}{line}" for line in more]
    return "\n".join([*lines, "", "xlingjax VERB --help explains a verb, with an example."])


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
    if not argv:
        parser().print_help()
        return 0
    args = parser().parse_args(words)
    if overrides and not args.verb.recipe:
        raise UserError(f"--gin.{overrides[0]}: {args.name} reads no recipe")
    args.overrides = overrides
    # Before the verb imports what starts JAX.
    prepare_machine(args)
    # Of the processes of one run each would tell; what is typed would be overwritten.
    silent = getattr(args, "process_id", -1) > 0 or args.verb.listens and sys.stdin.isatty()
    typed = isinstance(sys.stderr, Printed)
    working = told(args.name) if typed and not silent else contextlib.nullcontext()
    with trusting(getattr(args, "trust", False)), working:
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
