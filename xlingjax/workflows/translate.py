"""What `translate` and `generate` do: a line of output for each line of input, in order, by file or
pipe.

The input is taken in chunks of some lines and the output appended chunk by chunk, so that memory is
bounded whatever its size, and a file that was interrupted goes on where it stopped.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from xlingjax.data.sources import content_hash, read_lines
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.text import bleu, chrf, rouge_l, wrong_language_rate
from xlingjax.inference.generate import Generated, Generator
from xlingjax.inference.run import open_run
from xlingjax.model.decoding import Decoding
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.signals import stopped_by
from xlingjax.training.checkpoint import find_checkpoint
from xlingjax.training.run_record import read_run_record

CHUNK = 1024
"""Lines that are sorted by length together; the most that an interruption costs."""
HASHED = "input", "score"
"""Files that a resumed output must have been written from."""


@dataclasses.dataclass(frozen=True)
class Job:
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


def write(job: Job) -> None:
    """Does it, and tells on standard error what it took. Raises UserError for whatever a user can
    repair, as far as the input is a file before the first line is written."""
    apart(job)
    generator, source = opened(job)
    with contextlib.ExitStack() as stack:
        # Nothing but a pipe into a pipe goes on without knowing all lines.
        whole = job.input or job.output or job.score or job.references
        path = (job.input or stack.enter_context(spooled())) if whole else None
        total = checked(job, generator, path) if path else None
        lines_each = 1 if job.score else job.decoding.n_best
        if job.output:
            stack.enter_context(stopped_by(signal.SIGTERM))
        output = stack.enter_context(
            Partial(job.output, made_with(job, source, path)) if job.output else Pipe()
        )
        done = number = output.keep(lines_each)
        empty = 0
        meter = stack.enter_context(Meter(total, done))
        rows = zip(
            texts(path), texts(job.score) if job.score else itertools.repeat(""), strict=False
        )
        best = (
            [text_of(line, lines_each) for line in output.kept()][::lines_each]
            if job.references
            else []
        )
        for chunk in chunks(itertools.islice(rows, done, None), CHUNK):
            lines, given = zip(*chunk, strict=True)
            where: dict[str, Any] = {"first": number + 1, "progress": meter.batch}
            if job.score:
                output.write(
                    scored(one)
                    for one in generator.score(lines, given, source, job.target, **where)
                )
            else:
                found = generator.generate(lines, source, job.target, **where)
                empty += sum(
                    bool(line) and not texts[0].text
                    for line, texts in zip(lines, found, strict=True)
                )
                output.write(
                    line for n, texts in enumerate(found, number) for line in shown(n, texts)
                )
                best += [texts[0].text for texts in found] if job.references else []
            number += len(lines)
            meter.lines(number)
        output.finish()
    print(meter.told(number) + (f", {empty:,} of them empty" if empty else ""), file=sys.stderr)
    if job.references:
        print("\n".join(compared(best, job, source, path)), file=sys.stderr)


def apart(job: Job) -> None:
    """Raises UserError where the output would be written over what is read."""
    for option, path in (
        ("--input", job.input),
        ("--score", job.score),
        ("--references", job.references),
    ):
        if path and job.output and os.path.realpath(path) == os.path.realpath(job.output):
            raise UserError(f"--output {job.output} is the file of {option}: name another one")


def opened(job: Job) -> tuple[Generator, str]:
    """The run's newest checkpoint, on all devices, and the language of the input."""
    record = read_run_record(job.run)
    languages = record["languages"]
    if not record["model"].get("decoder_layers"):
        raise UserError(
            f"{job.run}: a run of an encoder alone, which writes nothing; give the workdir of one"
            " with a decoder (DECODER_LAYERS above 0), trained to translate or to restore text"
        )
    others = [code for code in languages if code != job.target]
    if job.source is None and len(others) > 1 and job.target in languages:
        raise UserError(f"--from: which of {', '.join(others)} is the input in?")
    mesh = mesh_of_all()
    trained = open_run(job.run, mesh=mesh)
    generator = Generator(
        trained.model,
        trained.params,
        trained.vocabulary,
        trained.languages,
        job.decoding,
        mesh,
        job.tokens_per_batch,
        job.truncate,
        job.seed,
    )
    for code in filter(None, (job.source, job.target)):
        generator.language(code)
    source = job.source or next(iter(others), job.target)
    stages = record.get("stages", {})
    learnt = [way for settings in stages.values() for way in settings.get("directions") or ()]
    if (
        source != job.target
        and learnt
        and f"{source}-{job.target}" not in learnt
        and "back_translation" not in stages
    ):
        print(
            f"note: {job.run} learnt {', '.join(learnt)}, not {source}-{job.target}",
            file=sys.stderr,
        )
    return generator, source


# --- Input ----------------------------------------------------------------------------------------


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
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise UserError(
                f"standard input, line {number}: invalid UTF-8; convert it, for example with iconv"
            ) from None


def chunks(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, size)):
        yield chunk


def checked(job: Job, generator: Generator, path: str) -> int:
    """The number of lines, none of them too long, and as many as of what belongs to them."""
    total = 0
    for chunk in chunks(texts(path), CHUNK):
        generator.tokens(chunk, total + 1)
        total += len(chunk)
    for option, other in (("--score", job.score), ("--references", job.references)):
        if other and (count := sum(1 for _ in read_lines(other))) != total:
            raise UserError(
                f"{option} {other} has {count} lines and the input {total}: give one for each line,"
                " in order"
            )
    return total


# --- Output ---------------------------------------------------------------------------------------


def shown(number: int, texts: list[Generated]) -> list[str]:
    """The lines for one line of input, its number from 0."""
    clean = [" ".join(one.text.split("\n")) for one in texts]
    if len(texts) == 1:
        return clean
    return [
        f"{number} ||| {text} ||| {one.score:.6f}" for text, one in zip(clean, texts, strict=True)
    ]


def text_of(line: str, lines_each: int) -> str:
    """The text of a line of `shown`."""
    return line if lines_each == 1 else line.split(" ||| ", 1)[1].rsplit(" ||| ", 1)[0]


def scored(one: Generated) -> str:
    return f"{one.score:.6f}\t{one.log_probability:.6f}\t{len(one.ids)}" if one.ids else ""


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


class Partial:
    """A file that is written as `FILE.partial`, beside `FILE.partial.json`, what it is made with;
    FILE once whole."""

    def __init__(self, path: str, made_with: dict[str, Any]):
        self.path, self.made_with = Path(path), made_with
        self.partial, self.record = Path(f"{path}.partial"), Path(f"{path}.partial.json")

    def __enter__(self):
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.partial.exists():
                self._check()
            else:
                self.record.write_text(
                    json.dumps(self.made_with, indent=1) + "\n", encoding="utf-8"
                )
            self.file = open(self.partial, "a+b")  # noqa: SIM115 - closed at the exit
        except OSError as error:
            raise UserError(
                f"cannot write {self.partial}: {error.strerror or error}; choose another --output"
            ) from None
        return self

    def __exit__(self, kind, *_):
        self.file.close()
        if kind is not None:
            print(
                f"{self.partial}: what is done; the same command goes on from there",
                file=sys.stderr,
            )

    def _check(self) -> None:
        remedy = f"repeat the command that began it, or remove {self.partial}"
        try:
            begun = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise UserError(
                f"{self.partial} is there, and {self.record.name}, which says of what, is not:"
                f" {remedy}"
            ) from None
        differ = [
            (
                f"text of --{key}"
                if key in HASHED
                else f"{key} {begun.get(key)!r} (now {self.made_with.get(key)!r})"
            )
            for key in sorted({*begun, *self.made_with})
            if begun.get(key) != self.made_with.get(key)
        ]
        if differ:
            raise UserError(f"{self.partial} was begun with other {', '.join(differ)}: {remedy}")

    def keep(self, lines_each: int) -> int:
        """The number of input lines that are finished; what follows the last of them is dropped."""
        self.file.seek(0)
        count = offset = end = 0
        for line in self.file:
            if not line.endswith(b"\n"):
                break
            count, offset = count + 1, offset + len(line)
            if count % lines_each == 0:
                end = offset
        self.file.truncate(end)
        return count // lines_each

    def kept(self) -> Iterator[str]:
        """The lines that were there."""
        return texts(self.partial)

    def write(self, lines: Iterable[str]) -> None:
        try:
            self.file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
            self.file.flush()
        except OSError as error:
            raise UserError(
                f"cannot write {self.partial}: {error.strerror or error}; make room, then go on"
            ) from None

    def finish(self) -> None:
        os.replace(self.partial, self.path)
        self.record.unlink()


def made_with(job: Job, source: str, path: str) -> dict[str, Any]:
    """All that the output depends on."""
    checkpoint = find_checkpoint(job.run)
    record: dict[str, Any] = {"checkpoint": str(checkpoint), "from": source, "to": job.target}
    record |= dataclasses.asdict(job.decoding) | {"max_length": list(job.decoding.max_length)}
    record |= {"seed": job.seed, "truncate": job.truncate}
    return record | dict(
        zip(
            HASHED,
            (content_hash(path), content_hash(job.score) if job.score else None),
            strict=True,
        )
    )


# --- What is told ---------------------------------------------------------------------------------


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
        self._done, self._tokens, self._started = done, 0, time.monotonic()

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

    def told(self, number: int) -> str:
        before = f" and {self._done:,} before" if self._done else ""
        seconds = time.monotonic() - self._started
        return (
            f"{number - self._done:,} lines{before}, {seconds:.1f} s, {self._rate():,.0f} tokens/s"
        )


def compared(best: list[str], job: Job, source: str, path: str) -> Iterator[str]:
    """A line for each metric against the references."""
    references = list(texts(job.references))
    for name, (value, signature) in (
        ("BLEU", bleu(best, references, job.target)),
        ("chrF", chrf(best, references)),
    ):
        yield f"{name} {value:.2f} ({signature})"
    yield f"ROUGE-L {rouge_l(best, references, job.target):.2f}"
    by_language = {job.target: references} | (
        {source: list(texts(path))} if source != job.target else {}
    )
    try:
        yield f"wrong language {wrong_language_rate(best, job.target, by_language):.2%}"
    except UserError as error:
        yield f"wrong language unknown: {error}"
