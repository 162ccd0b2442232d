"""`xlingjax demo`."""

import argparse
from argparse import Namespace

from xlingjax.cli.types import count
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError
from xlingjax.runtime.lock import alone_at


def size(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=COUNT, like mono=2000")
    return name, count(number)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--languages", default="", help="codes separated by commas (default: all)")
    text = "at most so many rows of a file, like mono=2000 pairs=1000 nli_train=300 (default: all)"
    parser.add_argument("--size", nargs="+", type=size, default=[], metavar="NAME=N", help=text)


def run(args: Namespace) -> int:
    from xlingjax.demo import LANGUAGES, size_of, write

    sizes = dict(args.size)
    languages = [code for code in args.languages.split(",") if code]
    with alone_at(args.folder, "choose another folder"):
        try:
            written = write(args.folder, languages or LANGUAGES, sizes)
        except OSError as error:
            raise UserError(
                f"{args.folder} cannot be written: {error.strerror or error}; choose another folder"
            ) from None
    files = written["files"]
    print(f"demo in {args.folder}: {', '.join(written['languages'])}; {len(files)} files")
    short = []
    for path, rows in files.items():
        if rows < sizes.get(size_of(path), 0):
            short.append(f"{path} {rows:,}")
    if short:
        more = f" and {len(short) - 4} more" if len(short) > 4 else ""
        print(f"--size asks for more than there is: {', '.join(short[:4])}{more}")
    return 0


VERB = Verb("demo", "write the embedded multilingual corpus with its labelled sets", options, run)
