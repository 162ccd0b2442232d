"""`translate` and `generate` of a corpus: files in parts of so many lines, over several machines.

The parts of OUTPUT stand in `OUTPUT.parts/` as `NAME-00000-of-00012`, each there once it is whole,
beside `made_with.json`. A finished part is not written again, and a begun one goes on where it
stopped. When all are there they are joined to what one undivided run writes.
"""

import contextlib
import dataclasses
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.text.files import (
    content_hash,
    open_bytes,
    pieces_of,
    plain_name,
    read_lines,
    write_as_named,
)
from xlingjax.data.text.other_formats import refuse_no_lines
from xlingjax.errors import UserError
from xlingjax.inference.generate import Generator
from xlingjax.runtime.files import require_file, require_folder, write_json
from xlingjax.runtime.shutdown import stopped_by
from xlingjax.workflows.files.translate import (
    Meter,
    Partial,
    Request,
    apart,
    chunks,
    made_with,
    opened,
    require_same,
    shown,
    texts,
    writing,
    written_for,
)

LINES = 65536
MADE_WITH = "made_with.json"


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Files that are written in parts of `lines`; shard: (i, n), of which parts i, i + n, ... are
    this machine's, counted from 1; None: all, and they are joined."""

    inputs: tuple[str, ...]
    lines: int = LINES
    shard: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """Lines start to stop, from 0, of an input."""

    path: Path
    start: int
    stop: int

    def done(self) -> bool:
        return self.path.is_file()


def write_parts(request: Request, corpus: Corpus) -> None:
    """Does it, and tells on standard error what it took. Raises UserError for whatever a user can
    repair, before the first line is written."""
    outputs = _outputs(request, corpus)
    generator, source = opened(request)
    folder = Path(f"{os.path.normpath(str(request.output))}.parts")
    # All that the parts depend on.
    record = made_with(request, source, corpus.inputs[0]) | {
        "input": [content_hash(path) for path in corpus.inputs],
        "part_lines": corpus.lines,
    }
    with contextlib.suppress(FileNotFoundError):
        require_same(folder / MADE_WITH, record, folder)
    parts = [_parts_of(path, folder, corpus.lines) for path in corpus.inputs]
    # Over all files, so that machines have equally many where files are small.
    every = list(itertools.chain.from_iterable(parts))
    own = every
    if corpus.shard:
        index, count = corpus.shard
        own = every[index - 1 :: count]
    left = {part for part in own if not part.done()}
    total = _check(generator, corpus.inputs, parts, left)
    # Behind the check: a line that is repaired makes another text.
    with writing(folder, "choose another --output"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / MADE_WITH, record)
    with contextlib.ExitStack() as stack:
        stack.enter_context(stopped_by(signal.SIGTERM, signal.SIGHUP))
        meter = stack.enter_context(Meter(total, 0))
        number = 0
        for path, of_file in zip(corpus.inputs, parts, strict=True):
            for part, lines in _lines(path, of_file, left):
                # Whole chunks of the file, as an undivided run takes them.
                number += _write(part, lines, request, generator, source, meter, record)
                meter.lines(number)
    print(meter.summary(number), file=sys.stderr)
    missing = sum(1 for part in every if not part.done())
    if corpus.shard:
        print(
            f"{folder}: {len(own)} parts of shard {corpus.shard[0]}/{corpus.shard[1]} are there,"
            f" {missing} of {len(every)} missing; the same command without --shard joins them all",
            file=sys.stderr,
        )
        return
    _join(outputs, parts, folder)


def _outputs(request: Request, corpus: Corpus) -> list[Path]:
    """Where the text of each input goes. Raises UserError: none is named, not
    apart, or an input that cannot be read."""
    if not request.output:
        raise UserError("parts are files: give --output, of several --input a folder")
    for path in corpus.inputs:
        open_bytes(path).close()
        refuse_no_lines(path)
    outputs = [Path(request.output)]
    if len(corpus.inputs) > 1:
        require_folder(request.output)
        outputs = [outputs[0] / plain_name(Path(path)) for path in corpus.inputs]
    else:
        require_file(request.output)
    names = [path.name for path in outputs]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"--input: two files are named {name}, and would be one in {request.output};"
                " rename one"
            )
    for path, output in itertools.product(corpus.inputs, outputs):
        apart(dataclasses.replace(request, input=path, output=str(output)))
    return outputs


def _parts_of(path: str, folder: Path, lines: int) -> list[Part]:
    total = sum(1 for _ in read_lines(path))
    count = -(-total // lines)
    name = plain_name(Path(path))
    parts = []
    for number, start in enumerate(range(0, total, lines)):
        of_part = folder / f"{name}-{number:05d}-of-{count:05d}"
        parts.append(Part(of_part, start, min(start + lines, total)))
    return parts


def _lines(
    path: str, parts: Sequence[Part], wanted: set[Part]
) -> Iterator[tuple[Part, Iterator[str]]]:
    """The wanted parts and their lines, from one reading of the file; each part's must be read
    before the next."""
    lines = texts(path)
    for part in parts:
        of_part = itertools.islice(lines, part.stop - part.start)
        if part in wanted:
            yield part, of_part
        # What is left, or all of a part that is not wanted.
        for _ in of_part:
            pass


def _check(
    generator: Generator, inputs: Sequence[str], parts: Sequence[Sequence[Part]], wanted: set[Part]
) -> int:
    """The number of lines to write, none of them too long."""
    total = 0
    for path, of_file in zip(inputs, parts, strict=True):
        for part, lines in _lines(path, of_file, wanted):
            first = part.start + 1
            for chunk in chunks(lines):
                try:
                    generator.tokens(chunk, first)
                except UserError as error:
                    raise UserError(f"{path}, {error}") from None
                first += len(chunk)
            total += part.stop - part.start
    return total


def _write(
    part: Part,
    lines: Iterable[str],
    request: Request,
    generator: Generator,
    source: str,
    meter: Meter,
    record: dict[str, Any],
) -> int:
    """Writes a part, and gives the number of its lines."""
    with Partial(str(part.path), record) as output:
        number = part.start + output.keep(request.decoding.n_best)
        rest = itertools.islice(lines, number - part.start, None)
        for chunk in chunks(rest):
            written = written_for(generator, chunk, source, request.target, number, meter)
            output.write(shown(number, written))
            number += len(chunk)
        output.finish()
    return part.stop - part.start


def _joined(parts: Iterable[Part]) -> Iterator[bytes]:
    for part in parts:
        with open(part.path, "rb") as file:
            yield from pieces_of(file)


def _join(outputs: Sequence[Path], parts: Sequence[Sequence[Part]], folder: Path) -> None:
    try:
        for output, of_file in zip(outputs, parts, strict=True):
            output.parent.mkdir(parents=True, exist_ok=True)
            # Whole or not at all; parts stay until every file is there.
            write_as_named(output, _joined(of_file))
        # At once first: what a kill leaves of the folder would look begun.
        done = folder.with_name(f"{folder.name}.done")
        os.replace(folder, done)
        shutil.rmtree(done)
    except OSError as error:
        raise UserError(
            f"cannot join the parts of {folder}: {error.strerror or error}; make room, then give"
            " the same command again"
        ) from None
