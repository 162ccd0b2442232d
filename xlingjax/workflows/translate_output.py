"""The lines that `translate` and `generate` write: into a pipe, or a file that an interrupted run
goes on with."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from xlingjax.data.compressed import ENDINGS, pieces_of, write_as_named
from xlingjax.data.text_files import content_hash
from xlingjax.errors import UserError
from xlingjax.inference.generate import Generated
from xlingjax.runtime.lock import alone_at
from xlingjax.runtime.records import ANY, read_record
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.workflows.translate_input import texts
from xlingjax.workflows.translate_request import Request

HASHED = ("input", "score")
"""Files that a resumed output must have been written from."""


def shown(number: int, texts: list[Generated]) -> list[str]:
    """The lines for one line of input, its number from 0."""
    lines = []
    for one in texts:
        # A line end in a text would shift all lines behind it.
        text = one.text.replace("\n", " ")
        if len(texts) > 1:
            text = f"{number} ||| {text} ||| {one.score:.6f}"
        lines.append(text)
    return lines


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
    if not one.ids:
        return ""
    return f"{one.score:.6f}\t{one.log_probability:.6f}\t{len(one.ids)}"


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
        self.path = Path(path)
        self.made_with = made_with
        self.partial = Path(f"{path}.partial")
        self.record = Path(f"{path}.partial.json")

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                # Two that go on with one file would write their lines between each other's.
                stack.enter_context(alone_at(self.path))
                if self.partial.exists():
                    self._check()
                else:
                    record = json.dumps(self.made_with, indent=1) + "\n"
                    self.record.write_text(record, encoding="utf-8")
                self.file = open(self.partial, "a+b")  # noqa: SIM115 - closed at the exit
            except OSError as error:
                raise UserError(
                    f"cannot write {self.partial}: {error.strerror or error}; choose another"
                    " --output"
                ) from None
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
            begun = read_record(self.record, {str: ANY}, remedy)
        except FileNotFoundError:
            raise UserError(
                f"{self.partial} is there, and {self.record.name}, which says of what, is not:"
                f" {remedy}"
            ) from None
        differ = differences(begun, self.made_with)
        if differ:
            raise UserError(f"{self.partial} was begun with other {', '.join(differ)}: {remedy}")

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
        try:
            self.file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
            self.file.flush()
        except OSError as error:
            raise UserError(
                f"cannot write {self.partial}: {error.strerror or error}; make room, then go on"
            ) from None

    def finish(self) -> None:
        if self.path.suffix not in ENDINGS:
            os.replace(self.partial, self.path)
        else:
            self._compress()
        self.record.unlink()

    def _compress(self) -> None:
        self.file.seek(0)
        try:
            write_as_named(self.path, pieces_of(self.file))
            self.partial.unlink()
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror or error}; make room, then go on"
            ) from None


def differences(begun: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What two records of `made_with` differ in, in words."""
    differ = []
    for key in sorted({*begun, *now}):
        if begun.get(key) == now.get(key):
            continue
        if key in HASHED:
            # Hashes say nothing to a reader.
            differ.append(f"text of --{key}")
        else:
            differ.append(f"{key} {begun.get(key)!r} (now {now.get(key)!r})")
    return differ


def made_with(request: Request, source: str, path: str) -> dict[str, Any]:
    """All that the output depends on."""
    checkpoint = find_checkpoint(request.run)
    record: dict[str, Any] = {"checkpoint": str(checkpoint), "from": source, "to": request.target}
    record |= dataclasses.asdict(request.decoding)
    # As JSON gives it back: the record is compared with the one that was written.
    record["max_length"] = list(request.decoding.max_length)
    record |= {"seed": request.seed, "truncate": request.truncate}
    record["input"] = content_hash(path)
    record["score"] = None
    if request.score:
        record["score"] = content_hash(request.score)
    return record
