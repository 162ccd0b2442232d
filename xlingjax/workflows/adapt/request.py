"""What `xlingjax adapt` is requested to do."""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from xlingjax.config.gin_files import gin_folder
from xlingjax.config.objective_files import built_objectives, objective_files, objectives_in
from xlingjax.convert import import_model
from xlingjax.convert.formats.fields import Fields
from xlingjax.data.rows.plan import Preprocessor
from xlingjax.errors import UserError, meant
from xlingjax.inference.sentences import sentences_of
from xlingjax.objectives.retrieval import SentencePairs
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.run_record import read_run_record, run_and_checkpoint

BASE = "recipes/adapt.gin"  # what the recipe is written upon
STAND_INS = ("INIT_FROM=start", "VOCABULARY=start", "MONO=text")  # needed by a recipe, not opened
_OPTION_OF = {"BATCH": "batch", "LENGTH": "length", "TRAIN_STEPS": "steps"}
"""Macros that an option says."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line says; kept in adapted.json."""

    source: str
    mono: tuple[str, ...]
    parallel: tuple[str, ...]
    objectives: tuple[str, ...]
    hours: float | None
    steps: int | None
    batch: int
    length: int
    gold: str | None
    teacher: str | None
    files: tuple[str, ...]
    overrides: tuple[str, ...]

    def __post_init__(self):
        # Names without a file, before any recipe is read.
        for name in self.objectives:
            if name not in self.known:
                raise UserError(f"--objectives {name}: no objective{meant(name, self.known)}")
        if not self.names or len({*self.names}) != len(self.names):
            raise UserError(
                f"--objectives {','.join(self.objectives)}: name at least one, and each once:"
                f" {', '.join(self.names)}"
            )
        # Two limits could contradict each other, and without one nothing says when to end.
        if (self.hours is None) == (self.steps is None):
            raise UserError("give --hours or --steps: how long may it take?")
        if self.hours is not None and not self.hours > 0:
            raise UserError(f"--hours {self.hours} must be above 0")
        for macro, option in _OPTION_OF.items():
            if macro in self.given:
                raise UserError(
                    f"--gin.{macro}: give --{option} instead, from which the memory is planned"
                )
        for pattern in (*self.mono, *self.parallel):
            path = absolute(pattern)
            if " " in path or "," in path:
                raise UserError(
                    f"{path!r}: a recipe separates patterns by spaces and commas; rename the path"
                )
        for name in self.objectives:
            for made in self.made_by(name):
                preprocessor = self._preprocessor(made)
                # Labelled rows are made by no preprocessor of text; blocks of lines are held out,
                # which would cut documents.
                if (
                    not self.built[made].objective.continues_encoder
                    or preprocessor is None
                    or preprocessor.aligned_documents
                ):
                    raise UserError(
                        f"--objectives {name}: {made} is not for an encoder to go on with, on"
                        " sentences and pairs of them; leave it out"
                    )
                if preprocessor.needs_pairs and not self.parallel:
                    raise UserError(
                        f"--objectives {name} needs pairs: give --parallel, or leave {name} out"
                    )

        if self.teacher and "distillation" not in self.names:
            raise UserError("--teacher: only --objectives distillation learns from one")

    def _preprocessor(self, made: str) -> Preprocessor:
        return self.built[made].batches.preprocessor

    @property
    def given(self) -> dict[str, str]:
        """{macro: value} of --gin."""
        return dict(override.split("=", 1) for override in self.overrides)

    @property
    def text(self) -> tuple[str, ...]:
        """Monolingual text; the sides of the pairs where there is no other."""
        return self.mono or self.parallel

    @property
    def included_files(self) -> list[str]:
        """Of its recipe, but for those of the command line."""
        files = [BASE]
        for name in self.objectives:
            if name == "mlm":  # which BASE has
                continue
            file = f"objectives/{name}.gin"
            if gin_folder() not in self.known[name].absolute().parents:
                # The recipe is read again from elsewhere.
                file = str(self.known[name].absolute())
            files.append(file)
        return files

    @functools.cached_property
    def known(self) -> Mapping[str, Path]:
        """{what --objectives may name: its gin file}."""
        return objective_files(BASE)

    def made_by(self, objective: str) -> list[str]:
        """The gin names of what a file of gin/objectives makes."""
        return objectives_in(self.known[objective])

    @property
    def names(self) -> list[str]:
        """The gin names of its objectives, in the order of their turns."""
        return [made for objective in self.objectives for made in self.made_by(objective)]

    @functools.cached_property
    def built(self) -> Mapping[str, ObjectiveRun]:
        """{gin name: objective}: what each declares of itself. Raises UserError for what the gin
        files and overrides cannot bind."""
        files = [*self.included_files, *self.files]
        return built_objectives(self.names, files, [*STAND_INS, *self.overrides])

    def adds(self, objective: str) -> bool:
        """Whether it has parameters that a released model has not."""
        return any(self.built[made].objective.adds for made in self.made_by(objective))

    @property
    def taught_by(self) -> str | None:
        """The model whose vectors are learned: the first model's own where no other is named, and
        no vectors are given. None: nothing is learned from one."""
        if "distillation" not in self.names or "TEACHER_VECTORS" in self.given:
            return None
        return self.teacher or self.source

    @property
    def of_sentences(self) -> bool:
        """Whether sentence vectors are trained."""
        return any(isinstance(self.built[one].objective, SentencePairs) for one in self.names)

    def text_of(self, made: str) -> str:
        """What an objective, by its gin name, reads: "text" of one language, or "pairs"."""
        if self._preprocessor(made).sides == 1:
            return "text"
        return "pairs"


def is_run(source: str) -> bool:
    """Whether a model is a run of ours."""
    return (run_and_checkpoint(source)[0] / "run.json").is_file()


def default_objectives(
    source: str, parallel: Sequence[str], teacher: str | None = None
) -> tuple[str, ...]:
    """What a `teacher` is for, else what the model `source` was made for: sentence vectors, of
    which only pairs tell more, or words. Raises UserError where it is not there."""
    if teacher:
        return ("distillation",)
    if is_run(source):
        record = read_run_record(source)
        of_sentences = sentences_of(record) is not None
        of_sentences |= record.get("released", {}).get("vocabulary_head") is False
    else:
        folder = import_model.located(source)
        # The modules of sentence-transformers, or a class without a vocabulary head.
        of_sentences = (folder / "modules.json").is_file()
        if folder.is_dir() and not of_sentences:
            named = Fields(folder / "config.json").values.get("architectures") or []
            of_sentences = [str(name).endswith("Model") for name in named] == [True]
    return ("distillation",) if of_sentences and parallel else ("mlm",)


def absolute(pattern: str) -> str:
    """So that the recipe is read anywhere. pattern: as typed, "de=text/x*.txt" too."""
    if not pattern:
        raise UserError("--mono, --parallel: an empty name; leave it out")
    code, path = re.fullmatch(r"([A-Za-z]{2,3}(?:[_-]\w+)*=)?(.+)", pattern, re.DOTALL).groups()
    if "://" not in path:
        path = Path(path).expanduser().absolute()
    return f"{code or ''}{path}"
