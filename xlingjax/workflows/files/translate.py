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

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from xlingjax.data.text.files import ENDINGS, content_hash, pieces_of, read_lines, write_as_named
from xlingjax.data.text.other_formats import refuse_no_lines
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.text import bleu, chrf, rouge_l, wrong_language_rate
from xlingjax.inference.generate import Generated, Generator
from xlingjax.inference.run import open_run
from xlingjax.model.decoding import Decoding
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.files import require_apart, write_json
from xlingjax.runtime.lock import alone_at
from xlingjax.runtime.records import ANY, read_record
from xlingjax.runtime.shutdown import stopped_by
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.run_record import read_run_record


@dataclasses.dataclass(frozen=True)
class Request:
    """source: language of the input; None: the other one of a run of two. input, output: None is a
    pipe. score: a file of texts to score instead of writing some; references: one to compare with
    what is written."""

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


def apart(request: Request) -> None:
    """Raises UserError where the output would be written over what is read."""
    if request.output:
        read = {
            "--input": request.input,
            "--score": request.score,
            "--references": request.references,
        }
        require_apart(request.output, read)


def write(request: Request) -> None:
    """Does it, and tells on standard error what it took. Raises UserError for whatever a user can
    repair, as far as the input is a file before the first line is written."""
    apart(request)
    for read in filter(None, (request.input, request.score, request.references)):
        refuse_no_lines(read)
    generator, source = opened(request)
    lines_each = 1 if request.score else request.decoding.n_best
    empty = 0
    with contextlib.ExitStack() as stack:
        path = request.input or None
        # Nothing but a pipe into a pipe goes on without knowing all lines.
        if path is None and (request.output or request.score or request.references):
            path = stack.enter_context(spooled())
        total = checked(request, generator, path) if path is not None else None
        if request.output:
            # Raised where it stands, so that the partial file is closed and named.
            stack.enter_context(stopped_by(signal.SIGTERM, signal.SIGHUP))
            output = Partial(request.output, made_with(request, source, path))
        else:
            output = Pipe()
        stack.enter_context(output)
        done = output.keep(lines_each)
        meter = stack.enter_context(Meter(total, done))
        best = []
        if request.references:
            # The first line of each input line is its best text.
            kept = itertools.islice(output.kept(), 0, None, lines_each)
            best += [text_of(line, lines_each) for line in kept]
        to_score = itertools.repeat("")
        if request.score:
            to_score = texts(request.score)
        rows = zip(texts(path), to_score, strict=False)
        number = done
        for chunk in chunks(itertools.islice(rows, done, None)):
            lines, given = zip(*chunk, strict=True)
            if request.score:
                where = {"first": number + 1, "progress": meter.batch}
                scores = generator.score(lines, given, source, request.target, **where)
                output.write(map(scored, scores))
            else:
                written = written_for(generator, lines, source, request.target, number, meter)
                texts_of_chunk = [one[0].text for one in written]
                pairs = zip(lines, texts_of_chunk, strict=True)
                empty += sum(bool(line) and not text for line, text in pairs)
                if request.references:
                    best += texts_of_chunk
                output.write(shown(number, written))
            number += len(lines)
            meter.lines(number)
        output.finish()
    summary = meter.summary(number)
    if empty:
        summary += f", {empty:,} of them empty"
    print(summary, file=sys.stderr)
    if request.references:
        print("\n".join(compared(best, request, source, path)), file=sys.stderr)


def opened(request: Request) -> tuple[Generator, str]:
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
    if request.source:
        generator.language(request.source)
    generator.language(request.target)
    source = request.source
    if not source:
        # The other one of two; of a run that restores text the target itself.
        source = next(iter(others), request.target)
    _note_untrained(request, source, record.get("stages", {}))
    return generator, source


def _note_untrained(request: Request, source: str, stages: Mapping[str, Any]) -> None:
    """Tells where a run that learnt to translate did not learn this direction."""
    # Back-translation learns all directions, whatever pairs there are.
    if source == request.target or "back_translation" in stages:
        return
    learnt = []
    for settings in stages.values():
        learnt += settings.get("directions") or ()
    direction = f"{source}-{request.target}"
    if learnt and direction not in learnt:
        print(f"note: {request.run} learnt {', '.join(learnt)}, not {direction}", file=sys.stderr)


def compared(best: list[str], request: Request, source: str, path: str) -> Iterator[str]:
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


# --- What is read ---

CHUNK = 1024
"""Lines that are sorted by length together; the most that an interruption costs."""


@contextlib.contextmanager
def spooled() -> Iterator[str]:
    """Standard input as a file."""
    with tempfile.NamedTemporaryFile(prefix="xlingjax-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield file.name


def texts(path: str | Path | None) -> Iterator[str]:
    """The lines of a file, None: of standard input. Raises UserError for what is not UTF-8."""
    if path is not None:
        yield from (line.strip() for _, line in read_lines(path))
        return
    for number, raw in enumerate(sys.stdin.buffer, 1):
        # Some programs begin a file with a byte order mark, which is no text.
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        try:
            yield raw.decode(encoding).strip()
        except UnicodeDecodeError:
            raise UserError(
                f"standard input, line {number}: invalid UTF-8; convert it, for example with iconv"
            ) from None


def chunks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """`rows` in lists of `CHUNK`; the last may be shorter."""
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, CHUNK)):
        yield chunk


def checked(request: Request, generator: Generator, path: str) -> int:
    """The number of lines, none of them too long, and as many as of what belongs to them."""
    total = 0
    for chunk in chunks(texts(path)):
        generator.tokens(chunk, total + 1)
        total += len(chunk)
    for option, other in (("--score", request.score), ("--references", request.references)):
        if not other:
            continue
        count = sum(1 for _ in read_lines(other))
        if count != total:
            raise UserError(
                f"{option} {other} has {count} lines and the input {total}: give one for each line,"
                " in order"
            )
    return total


# --- What is written ---

HASHED = ("input", "score")
"""Files that a resumed output must have been written from."""


def written_for(
    generator: Generator,
    lines: Sequence[str],
    source: str,
    target: str,
    number: int,
    meter: "Meter",
) -> list[list[Generated]]:
    """The texts for each line, the first of which is number `number` of its file, from 0."""
    return list(generator.generate(lines, source, target, first=number + 1, progress=meter.batch))


def shown(number: int, written: Sequence[Sequence[Generated]]) -> Iterator[str]:
    """The lines for lines of input, the first of them number `number`, from 0."""
    for i, texts_of_line in enumerate(written, number):
        for one in texts_of_line:
            # A line end in a text would shift all lines behind it.
            text = one.text.replace("\n", " ")
            if len(texts_of_line) > 1:
                text = f"{i} ||| {text} ||| {one.score:.6f}"
            yield text


def text_of(line: str, lines_each: int) -> str:
    """The text of a line of `shown`."""
    if lines_each == 1:
        return line
    # From both ends, since the text may have a separator of its own.
    _, rest = line.split(" ||| ", 1)
    text, _ = rest.rsplit(" ||| ", 1)
    return text


def scored(one: Generated) -> str:
    # An empty line of input has no score.
    return "" if not one.ids else f"{one.score:.6f}\t{one.log_probability:.6f}\t{len(one.ids)}"


class Pipe:
    """Standard output."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def keep(self, lines_each: int) -> int:
        return 0

    def kept(self) -> Iterator[str]:
        return iter(())

    def write(self, lines: Iterable[str]) -> None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()

    def finish(self) -> None:
        pass


@contextlib.contextmanager
def writing(path: Path, remedy: str) -> Iterator[None]:
    """An OSError is one line that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; {remedy}") from None


class Partial:
    """A file that is written as `FILE.partial`, beside `FILE.partial.json`, what it is made with;
    FILE once whole."""

    def __init__(self, path: str, made_with: dict[str, Any]):
        self.path = Path(path)
        self.made_with = made_with
        self.partial = Path(f"{path}.partial")
        self.record = Path(f"{path}.partial.json")

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            with writing(self.partial, "choose another --output"):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                # Two that go on with one file would write their lines between each other's.
                stack.enter_context(alone_at(self.path))
                if self.partial.exists():
                    self._check()
                else:
                    write_json(self.record, self.made_with)
                self.file = open(self.partial, "a+b")  # noqa: SIM115 - closed at the exit
            self._alone = stack.pop_all()
        return self

    def __exit__(self, kind, *_):
        self.file.close()
        self._alone.close()
        if kind is not None:
            print(
                f"{self.partial}: what is done; the same command goes on from there",
                file=sys.stderr,
            )

    def _check(self) -> None:
        remedy = f"repeat the command that began it, or remove {self.partial}"
        try:
            require_same(self.record, self.made_with, self.partial)
        except FileNotFoundError:
            raise UserError(
                f"{self.partial} is there, and {self.record.name}, which says of what, is not:"
                f" {remedy}"
            ) from None

    def keep(self, lines_each: int) -> int:
        """The number of input lines that are finished; what follows the last of them is dropped."""
        self.file.seek(0)
        count = 0
        offset = 0
        end = 0
        for line in self.file:
            # An interruption may have cut the last line, or the last of several for one of input.
            if not line.endswith(b"\n"):
                break
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
        if self.path.suffix not in ENDINGS:
            os.replace(self.partial, self.path)
        else:
            self.file.seek(0)
            with writing(self.path, "make room, then go on"):
                write_as_named(self.path, pieces_of(self.file))
                self.partial.unlink()
        self.record.unlink()


def require_same(record: Path, now: dict[str, Any], begun: Path) -> None:
    """Raises UserError where `begun` was made with another `record` than `now`, and
    FileNotFoundError."""
    remedy = f"repeat the command that began it, or remove {begun}"
    before = read_record(record, {str: ANY}, remedy)
    differ = []
    for key in sorted({*before, *now}):
        if before.get(key) == now.get(key):
            continue
        # Hashes say nothing to a reader.
        text = f"text of --{key}"
        if key not in HASHED:
            text = f"{key} {before.get(key)!r} (now {now.get(key)!r})"
        differ.append(text)
    if differ:
        raise UserError(f"{begun} was begun with other {', '.join(differ)}: {remedy}")


def made_with(request: Request, source: str, path: str) -> dict[str, Any]:
    """All that the output depends on."""
    decoding = dataclasses.asdict(request.decoding)
    return {
        "checkpoint": str(find_checkpoint(request.run)),
        "from": source,
        "to": request.target,
        **decoding,
        # As JSON gives it back: the record is compared with the one that was written.
        "max_length": list(request.decoding.max_length),
        "seed": request.seed,
        "truncate": request.truncate,
        "input": content_hash(path),
        "score": content_hash(request.score) if request.score else None,
    }


# --- How far it is ---


class Meter:
    """Progress on a terminal's standard error, and its last line."""

    def __init__(self, total: int | None, done: int):
        console = Console(stderr=True)
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("lines  {task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._bar.add_task("", total=total, completed=done, rate="")
        self._done = done
        self._tokens = 0
        self._started = time.monotonic()

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def batch(self, lines: int, tokens: int) -> None:
        self._tokens += tokens
        self._bar.update(self._task, advance=lines, rate=f"{self._rate():,.0f} tokens/s")

    def lines(self, number: int) -> None:
        """So many are finished, empty ones among them."""
        self._bar.update(self._task, completed=number)

    def _rate(self) -> float:
        return self._tokens / (time.monotonic() - self._started)

    def summary(self, number: int) -> str:
        before = f" and {self._done:,} before" if self._done else ""
        seconds = time.monotonic() - self._started
        lines = f"{number - self._done:,} lines{before}"
        return f"{lines}, {seconds:.1f} s, {self._rate():,.0f} tokens/s"
