"""A small place to break things in: text, a vocabulary, a run, and the command line in process."""

import contextlib
import dataclasses
import io
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from xlingjax.errors import UserError

WORDS = {
    "de": ("der Hund", "die Katze", "ein Kind", "mein Bruder", "das Pferd"),
    "en": ("the dog", "the cat", "a child", "my brother", "the horse"),
}
ACTS = {
    "de": ("schläft", "trinkt Milch", "liest ein Buch", "geht nach Hause"),
    "en": ("sleeps", "drinks milk", "reads a book", "goes home"),
}
STEPS = 6
"""Of the run; one that goes on has as many more."""
RECIPE = """include "recipes/xlm_text.gin"
include "models/tiny.gin"
include "objectives/mlm.gin"
include "optim/adamw_linear.gin"
MONO = "{root}/mono"
PARALLEL = None
VOCABULARY = "{root}/vocab"
HELDOUT_TEXT = "de={root}/held/de.txt"
LAYERS = 1
WARMUP_STEPS = 1
BATCH = 2
MESH_DATA = 1
LENGTH = 32
TRAIN_STEPS = {steps}
LOG_EVERY = 2
EVAL_EVERY = 3
CHECKPOINT_EVERY = 3
KEEP_BEST = 1
BEST_METRIC = "perplexity/mean"
model.dim = 32
model.ffn = 128
model.heads = 2
"""


@dataclasses.dataclass(frozen=True)
class Said:
    """What a command ended with."""

    status: int | None
    """None: an error that is not the user's left it."""
    out: str
    err: str
    trace: str = ""

    @property
    def line(self) -> str:
        """The refusal, or the first warning, or the last line."""
        lines = [*self.err.splitlines(), *self.out.splitlines()]
        for beginning in ("error: ", "warning: "):
            for line in lines:
                if beginning in line:
                    return line[line.index(beginning) :]
        return (lines or [""])[-1]

    def line_with(self, needed: str) -> str:
        """The refusal, or the first line that has this, or `line`."""
        if self.status != 2 and needed:
            for line in [*self.err.splitlines(), *self.out.splitlines()]:
                if needed in line:
                    return line
        return self.line

    @property
    def wrong(self) -> str:
        """Why this is no way to end; "": it is one."""
        if self.trace:
            return self.trace
        errors = [x for x in self.err.splitlines() if x.startswith("error: ")]
        if "Traceback" in self.err + self.out:
            return "a traceback is printed"
        if self.status == 2 and len(errors) != 1:
            return f"{len(errors)} lines begin with error:"
        if self.status not in (0, 1, 2):
            return f"status {self.status}"
        return ""


def cli(*words: object) -> Said:
    """`xlingjax WORDS` in this process."""
    from xlingjax.cli import main
    from xlingjax.training import files_at_end

    # What is said once in a process is said to each.
    files_at_end._warn.cache_clear()
    return _said(lambda: main.main([*map(str, words)]))


def python(call: Callable[[], object]) -> Said:
    """What a Python program gets; a UserError as the command line shows it."""

    def refused() -> int:
        try:
            call()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        return 0

    return _said(refused)


def _stream(errors: str) -> io.TextIOWrapper:
    """As Python opens the standard streams."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)


def _said(call: Callable[[], int]) -> Said:
    out, err = _stream("strict"), _stream("backslashreplace")
    status, trace = None, ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = call()
        # argparse's own.
        except SystemExit as leaving:
            status = leaving.code
        except KeyboardInterrupt:
            raise
        # All else is what is looked for.
        except BaseException as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            trace = f"{error!r:.300} at {frame.filename}:{frame.lineno}"
    texts = [x.buffer.getvalue().decode(errors="replace") for x in (out, err)]
    return Said(status, *texts, trace)


class Place:
    """A folder with `mono`, `pairs`, `held`, `vocab`, `own.gin` and `run`. `fresh` gives it back as
    it was made."""

    def __init__(self, root: Path):
        self.root = root
        self.kept = root.with_name(f"{root.name}.kept")
        os.environ["XLINGJAX_CACHE"] = str(root / "cache")
        self._make()
        shutil.copytree(root, self.kept, symlinks=True)

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def gin(self) -> Path:
        return self.root / "own.gin"

    def fresh(self) -> None:
        """Everything as it was made."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.kept, self.root, symlinks=True)

    def fresh_run(self) -> None:
        """The run alone as it was made."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.kept / "run", self.run)

    def recipe(self, steps: int) -> Path:
        self.gin.write_text(RECIPE.format(root=self.root, steps=steps))
        return self.gin

    def pretrain(self, *words: object, steps: int = STEPS) -> Said:
        """A training by own.gin in the run's folder."""
        recipe = self.recipe(steps)
        return cli("pretrain", "--gin_file", recipe, "--workdir", self.run, *words)

    def _make(self) -> None:
        self.root.mkdir(parents=True)
        sides = {}
        for code in ("de", "en"):
            sides[code] = [
                f"{who} {act} {number} ."
                for number in range(12)
                for who in WORDS[code]
                for act in ACTS[code]
            ]
            write(self.root / f"mono/{code}/a.txt", sides[code])
            write(self.root / f"pairs/de-en.{code}", sides[code][::2])
            held = [line.replace(".", "!") for line in sides[code][:40]]
            write(self.root / f"held/de-en.{code}", held)
            write(self.root / f"held/{code}.txt", held)
        self._require(
            cli(
                "vocab",
                "--mono",
                self.root / "mono",
                "--size",
                "90",
                "--output",
                self.root / "vocab",
            )
        )
        self._require(self.pretrain())

    def _require(self, said: Said) -> None:
        if said.status != 0:
            raise SystemExit(f"{said.err}\n{said.out}\n{said.trace}")


def write(path: Path, lines: Sequence[str] | str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(lines, bytes):
        path.write_bytes(lines)
    elif isinstance(lines, str):
        path.write_text(lines, encoding="utf-8")
    else:
        text = "".join(f"{line}\n" for line in lines)
        path.write_text(text, encoding="utf-8")
    return path
