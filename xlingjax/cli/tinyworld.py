"""`xlingjax tinyworld`."""

import argparse
from argparse import Namespace
from pathlib import Path
from typing import Any

from xlingjax.cli.types import count, not_negative, positive, seed
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError
from xlingjax.runtime.lock import alone_at


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--seed", type=seed, default=0)
    text = "demo, full, or counts: mono=2000,pairs=1000 (default %(default)s)"
    parser.add_argument("--size", default="demo", help=text)
    parser.add_argument("--languages", default="", help="codes separated by commas (default: all)")
    text = (
        "how unevenly running text uses its words: 0 evenly, 1 by Zipf's law, each with company of"
        " its own"
    )
    parser.add_argument(
        "--skew", type=not_negative, default=0.0, help=text + " (default %(default)s)"
    )
    text = "of the labelled training sets; several are translations line by line (default: en)"
    parser.add_argument("--train_languages", default="", help=text)
    parser.add_argument(
        "--workers", type=positive, default=2, metavar="N", help="processes (default %(default)s)"
    )


def run(args: Namespace) -> int:
    from xlingjax.data.sources import split_list
    from xlingjax.data.tinyworld import write

    # `write` takes a name, or counts.
    size: Any = args.size
    if "=" in size:
        try:
            counts = {}
            for entry in size.split(","):
                name, number = entry.split("=")
                counts[name] = count(number)
            size = counts
        except (ValueError, argparse.ArgumentTypeError):
            raise UserError(
                f"--size {size!r}: write demo, full, or counts like mono=2000,pairs=1000"
            ) from None
    given = {}
    # `write` has the defaults of the others.
    for name in ("languages", "train_languages"):
        codes = split_list(getattr(args, name))
        if codes:
            given[name] = codes
    with alone_at(args.folder, "choose another folder"):
        try:
            written = write(
                Path(args.folder),
                seed=args.seed,
                size=size,
                skew=args.skew,
                workers=args.workers,
                **given,
            )
        except OSError as error:
            raise UserError(
                f"{args.folder} cannot be written: {error.strerror or error}; choose another folder"
            ) from None
    languages = ", ".join(written["languages"])
    print(f"tinyworld in {args.folder}: {languages}; {len(written['files'])} files")
    return 0


VERB = Verb(
    "tinyworld", "write the embedded multilingual corpus with its labelled sets", options, run
)
