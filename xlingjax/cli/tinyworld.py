"""`xlingjax tinyworld`."""

import argparse
from argparse import Namespace
from pathlib import Path
from typing import Any

from xlingjax.cli.types import positive
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    text = "demo, full, or counts: mono=2000,pairs=1000 (default %(default)s)"
    parser.add_argument("--size", default="demo", help=text)
    parser.add_argument(
        "--languages", default="", help="codes separated by commas (default: all)"
    )
    text = (
        "how unevenly running text uses its words: 0 evenly, 1 by Zipf's law, each with company of"
        " its own"
    )
    parser.add_argument(
        "--skew", type=float, default=0.0, help=text + " (default %(default)s)"
    )
    text = "of the labelled training sets; several are translations line by line (default: en)"
    parser.add_argument("--train_languages", default="", help=text)
    parser.add_argument(
        "--workers",
        type=positive,
        default=2,
        metavar="N",
        help="processes (default %(default)s)",
    )


def run(args: Namespace) -> int:
    from xlingjax.data.sources import split_list
    from xlingjax.data.tinyworld import write

    size: Any = args.size
    if "=" in size:
        try:
            size = {
                name: int(count)
                for name, count in (entry.split("=") for entry in size.split(","))
            }
        except ValueError:
            raise UserError(
                f"--size {size!r}: write demo, full, or counts like mono=2000,pairs=1000"
            ) from None
    given = {
        "languages": split_list(args.languages),
        "train_languages": split_list(args.train_languages),
    }
    given = {name: codes for name, codes in given.items() if codes}
    try:
        told = write(
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
    print(
        f"tinyworld in {args.folder}: {', '.join(told['languages'])}; {len(told['files'])} files"
    )
    return 0


VERB = Verb(
    "tinyworld",
    "write the embedded multilingual corpus with its labelled sets",
    options,
    run,
)
