"""What `translate` and `generate` do: a line of output for each line of input, in order, by file or
pipe.

The input is taken in chunks of some lines and the output appended chunk by chunk, so that memory is
bounded whatever its size, and a file that was interrupted goes on where it stopped.
"""

import contextlib
import dataclasses
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.text.files import (
    ENDINGS,
    LONGEST_LINE,
    content_hash,
    pieces_of,
    read_lines,
    write_as_named,
)
from xlingjax.data.text.other_formats import refuse_no_lines
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.text import bleu, chrf, rouge_l, wrong_language_rate
from xlingjax.inference.generate import Generated, Generator
from xlingjax.inference.run import open_run
from xlingjax.model.decoding import Decoding
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.files import require_apart, write_json
from xlingjax.runtime.lock import alone_at
from xlingjax.runtime.progress import Progress
from xlingjax.runtime.quiet import as_line
from xlingjax.runtime.records import ANY, read_record
from xlingjax.runtime.shutdown import stopped_by
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.run_record import read_run_record
from xlingjax.workflows.files.encode import writing

CHUNK = 1024  # lines that are sorted by length together; the most that an interruption costs


@dataclasses.dataclass(frozen=True)
class Request:
    """source: language of the input; None: the other one of a run of two. input, output: None is a
    pipe. score: a file of texts to score instead of writing some; references: one
    to compare with what is written."""

    run: str
    source: str | None
    target: str
    decoding: Decoding
    input: str | None = None
    output: str | None = None
    score: str | None = None
    references: str | None = None
    tokens_per_batch: int = 4096
    truncate: bool = False
    seed: int = 0


def write(request: Request) -> None:
    """Does it, and tells on standard error what it took. Raises UserError for whatever a user can
    repair, as far as the input is a file before the first line is written."""
    path = request.input
    read = {"--input": path, "--score": request.score, "--references": request.references}
    if request.output:
        require_apart(request.output, read)
    for one in filter(None, read.values()):
        refuse_no_lines(one)
    generator, source = _opened(request)
    lines_each = 1 if request.score else request.decoding.n_best
    with contextlib.ExitStack() as stack:
        # Nothing but a pipe into a pipe goes on without knowing all lines.
        if path is None and (request.output or request.score or request.references):
            path = stack.enter_context(_spooled())
        if path is not None:
            total = _checked(generator, texts(path))
            _require_as_many(request, total)
        output: Any = Pipe()
        if request.output:
            # Raised where it stands, so that the partial file is closed and named.
            stack.enter_context(stopped_by(signal.SIGTERM, signal.SIGHUP))
            output = stack.enter_context(Partial(request.output, _made_with(request, source, path)))
        done = output.keep(lines_each)
        # The first line of each input line is its best text.
        best = []
        if request.references:
            best += [_text_of(line, lines_each) for line in output.kept()][::lines_each]
        to_score = texts(request.score) if request.score else itertools.repeat("")
        pairs = zip(texts(path), to_score, strict=False)
        started = time.monotonic()
        progress = Progress("written")
        number, empty = done, 0
        for chunk in chunks(itertools.islice(pairs, done, None)):
            lines, given = zip(*chunk, strict=True)
            how = source, request.target
            if request.score:
                scores = generator.score(lines, given, *how, first=number + 1)
                output.write(map(_scored, scores))
            else:
                made = generator.generate(lines, *how, first=number + 1)
                found = [one[0].text for one in made]
                empty += sum(bool(a) and not b for a, b in zip(lines, found, strict=True))
                # Kept for the comparison alone: a corpus may not fit memory.
                if request.references:
                    best += found
                output.write(_shown(number, made))
            number += len(lines)
            progress.add(len(lines))
        output.finish()
        before = f" and {done:,} before" if done else ""
        of_them = f", {empty:,} of them empty" if empty else ""
        seconds = time.monotonic() - started
        print(f"{number - done:,} lines{before}, {seconds:.1f} s{of_them}", file=sys.stderr)
        if request.references:
            print("\n".join(_compared(best, request, source, path)), file=sys.stderr)


def _opened(request: Request) -> tuple[Generator, str]:
    """The run's newest checkpoint, on all devices, and the language of the input."""
    record = read_run_record(request.run)
    languages = record["languages"]
    if not record["model"].get("decoder_layers"):
        raise UserError(
            f"{request.run}: a run of an encoder alone, which writes nothing; give the workdir of"
            " one with a decoder (DECODER_LAYERS above 0), trained to translate or to restore text"
        )
    others = [code for code in languages if code != request.target]
    if request.source is None and len(others) > 1 and request.target in languages:
        raise UserError(f"--from: which of {', '.join(others)} is the input in?")
    # The other one of two; of a run that restores text the target itself.
    source = request.source or next(iter(others), request.target)
    mesh = mesh_of_all()
    trained = open_run(request.run, mesh=mesh)
    generator = Generator(
        trained.model,
        trained.params,
        trained.vocabulary,
        trained.languages,
        request.decoding,
        mesh,
        request.tokens_per_batch,
        request.truncate,
        request.seed,
    )
    # Refuses a language that is not of the run.
    for code in filter(None, (request.source, request.target)):
        generator.language(code)
    _note_untrained(request, source, record.get("stages", {}))
    return generator, source


def _note_untrained(request: Request, source: str, stages: Mapping[str, Any]) -> None:
    """Tells where a run that learnt to translate did not learn this direction."""
    # Back-translation learns all directions, whatever pairs there are.
    if source == request.target or "back_translation" in stages:
        return
    learnt = [one for settings in stages.values() for one in settings.get("directions") or ()]
    direction = f"{source}-{request.target}"
    if learnt and direction not in learnt:
        print(f"note: {request.run} learnt {', '.join(learnt)}, not {direction}", file=sys.stderr)


def _compared(best: list[str], request: Request, source: str, path: str) -> Iterator[str]:
    """A line for each metric against the references."""
    references = list(texts(request.references))
    value, signature = bleu(best, references, request.target)
    yield f"BLEU {value:.2f} ({signature})"
    value, signature = chrf(best, references)
    yield f"chrF {value:.2f} ({signature})"
    yield f"ROUGE-L {rouge_l(best, references, request.target):.2f}"
    by_language = {request.target: references}
    if source != request.target:
        by_language[source] = list(texts(path))
    try:
        yield f"wrong language {wrong_language_rate(best, request.target, by_language):.2%}"
    except UserError as error:
        yield f"wrong language unknown: {error}"


@contextlib.contextmanager
def _spooled() -> Iterator[str]:
    """Standard input as a file."""
    with tempfile.NamedTemporaryFile(prefix="xlingjax-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield file.name


def texts(path: str | Path | None) -> Iterator[str]:
    """The lines of a file, None: of standard input. Raises UserError as `read_lines`."""
    if path is not None:
        yield from (line.strip() for _, line in read_lines(path))
        return
    for number, raw in enumerate(iter(lambda: sys.stdin.buffer.readline(LONGEST_LINE), b""), 1):
        if len(raw) == LONGEST_LINE:
            raise UserError(
                f"standard input, line {number}: over {LONGEST_LINE >> 20} MiB without an end of a"
                " line; write a sentence per line"
            )
        try:
            # Some programs begin a file with a byte order mark, which is no text.
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise UserError(
                f"standard input, line {number}: invalid UTF-8; convert it, for example with iconv"
            ) from None


def chunks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """`rows` in lists of `CHUNK`; the last may be shorter."""
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, CHUNK)):
        yield chunk


def _checked(generator: Generator, lines: Iterable[str]) -> int:
    """The number of lines. Raises UserError for one that is too long."""
    done = 0
    for chunk in chunks(lines):
        generator.tokens(chunk, done + 1)
        done += len(chunk)
    return done


def _require_as_many(request: Request, total: int) -> None:
    for option, other in (("--score", request.score), ("--references", request.references)):
        count = sum(1 for _ in read_lines(other)) if other else total
        if count != total:
            raise UserError(
                f"{option} {other} has {count} lines and the input {total}: give one for each line,"
                " in order"
            )


def _shown(number: int, written: Sequence[Sequence[Generated]]) -> Iterator[str]:
    """The lines for lines of input, the first of them number `number`, from 0."""
    for i, texts_of_line in enumerate(written, number):
        for one in texts_of_line:
            text = as_line(one.text)
            if len(texts_of_line) > 1:
                text = f"{i} ||| {text} ||| {one.score:.6f}"
            yield text


def _text_of(line: str, lines_each: int) -> str:
    """The text of a line of `_shown`."""
    if lines_each == 1:
        return line
    # From both ends, since the text may have a separator of its own.
    return line.split(" ||| ", 1)[1].rsplit(" ||| ", 1)[0]


def _scored(one: Generated) -> str:
    # An empty line of input has no score.
    return "" if not one.ids else f"{one.score:.6f}\t{one.log_probability:.6f}\t{len(one.ids)}"


class Pipe:
    """Standard output, written as a `Partial` is."""

    def keep(self, lines_each: int) -> int:
        return 0

    def kept(self) -> Iterator[str]:
        return iter(())

    def write(self, lines: Iterable[str]) -> None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()

    def finish(self) -> None:
        pass


class Partial:
    """A file written as `FILE.partial`, with its settings in `FILE.partial.json`, until whole."""

    def __init__(self, path: str, made_with: dict[str, Any]):
        self.path = Path(path)
        self.made_with = made_with
        self.partial = Path(f"{path}.partial")
        self.record = Path(f"{path}.partial.json")

    def __enter__(self):
        with contextlib.ExitStack() as stack, writing(self.partial):
            # Two that go on with one file would write their lines between each other's.
            stack.enter_context(alone_at(self.path))
            if not self.partial.exists():
                write_json(self.record, self.made_with)
            _require_same(self.record, self.made_with, self.partial)
            self.file = stack.enter_context(open(self.partial, "a+b"))
            self._opened = stack.pop_all()
        return self

    def __exit__(self, kind, *_):
        self._opened.close()
        if kind is not None:
            print(
                f"{self.partial}: what is done; the same command goes on from there",
                file=sys.stderr,
            )

    def keep(self, lines_each: int) -> int:
        """The number of input lines that are finished; what follows the last of them is dropped."""
        self.file.seek(0)
        # An interruption may have cut the last line, or the last of several for one of input.
        whole = itertools.takewhile(lambda line: line.endswith(b"\n"), self.file)
        count = offset = end = 0
        for line in whole:
            count += 1
            offset += len(line)
            if count % lines_each == 0:
                end = offset
        self.file.truncate(end)
        return count // lines_each

    def kept(self) -> Iterator[str]:
        """The lines that were there."""
        return texts(self.partial)

    def write(self, lines: Iterable[str]) -> None:
        with writing(self.partial, "make room, then go on"):
            self.file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
            self.file.flush()

    def finish(self) -> None:
        with writing(self.path, "make room, then go on"):
            if self.path.suffix not in ENDINGS:
                os.replace(self.partial, self.path)
            else:
                self.file.seek(0)
                write_as_named(self.path, pieces_of(self.file))
                self.partial.unlink()
            self.record.unlink()


def _require_same(record: Path, now: dict[str, Any], begun: Path) -> None:
    """Raises UserError where `begun` was made with another `record` than `now`."""
    remedy = f"repeat the command that began it, or remove {begun}"
    try:
        before = read_record(record, {str: ANY}, remedy)
    except FileNotFoundError:
        raise UserError(
            f"{begun} is there, and {record.name}, which says of what, is not: {remedy}"
        ) from None
    differ = []
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            # Hashes say nothing to a reader.
            text = f"text of --{key}"
            if key not in ("input", "score"):
                text = f"{key} {before.get(key)!r} (now {now.get(key)!r})"
            differ.append(text)
    if differ:
        raise UserError(f"{begun} was begun with other {', '.join(differ)}: {remedy}")


def _made_with(request: Request, source: str, path: str) -> dict[str, Any]:
    """All that the output depends on."""
    return {
        "checkpoint": str(find_checkpoint(request.run)),
        "from": source,
        "to": request.target,
        **dataclasses.asdict(request.decoding),
        # As JSON gives it back: the record is compared with the one that was written.
        "max_length": list(request.decoding.max_length),
        "seed": request.seed,
        "truncate": request.truncate,
        "input": content_hash(path),
        "score": content_hash(request.score) if request.score else None,
    }
