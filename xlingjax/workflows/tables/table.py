"""The runs behind a table of a paper: a sweep of fine-tuning (`xlingjax finetune --task`) for each
row and encoder; encoders and rows that a recipe trains, and commands on them.

Each is a process with a folder of its own, ENCODER/ROW, rows/ROW or encoders/ENCODER, and none is
done twice; so a table that was stopped goes on with the same command.

In the words of recipes and commands {NAME} stands for what the table was given under it, or for the
run of an encoder; {data} and {folder} for the folders of the benchmarks' files and of the row;
{run} for its training, {encoder} for the run of the encoder whose row it is; of an encoder {from}
for the one that it starts from.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.task import TRAINED
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError, require_choice, require_whole
from xlingjax.model.config import CHOICES
from xlingjax.tasks import task_named
from xlingjax.workflows.jobs.recipe_run import command_line, slug
from xlingjax.workflows.tables.jobs import MEASURE, RECIPE, SWEEP, THEN, TableJob

Row = Mapping[str, Any]
FIELDS = {
    SWEEP: {"task", "strategy", "settings", "grid", "languages", "encoders"},
    MEASURE: {"task", "layer", "encoders"},
    RECIPE: {"recipe", "verb", "settings", "then", "encoders"},
    THEN: {"then", "encoders"},
    "encoder": {"recipe", "verb", "settings", "from"},
}
"""What a row, by its kind, and an encoder may say."""
OF_NONE = "rows"  # in place of an encoder: of rows that are of none
VERBS = ("pretrain", "finetune")  # of trainings by a recipe
COMMANDS = "align average encode evaluate generate mine score translate words".split()  # noqa: SIM905
"""Verbs that may stand in "then"."""
# {language} and {task} are of patterns of files, which recipes fill in themselves.
_PLACEHOLDER = re.compile(r"\{(?!(?:language|task)\})([A-Za-z_]\w*)\}")
_OF_ROW = ("data", "folder", "run", "encoder", "from")


@dataclass(frozen=True)
class Table:
    rows: Mapping[str, Row]
    """Name -> "task" (SUITE/NAME; of the strategy multi_task a list; of others
    too, where the tasks are trained on the same examples) and, where they differ from
    those of `finetune --task`, "strategy", "settings" (gin files and NAME=VALUE, in the order they
    are read), "grid" ({macro: "A,B"}), "languages" (pivots or targets); of retrieval and mining
    "layer" alone, see `evaluate --layer`; "encoders": those that the row is for, default: all.
    Or "recipe", with "verb" (pretrain or finetune) and "settings": one training, whose own
    evaluators give its figures; "then", {name: command line}: commands on it, or without a recipe
    on an encoder, each done once."""
    encoders: Mapping[str, str | Row]
    """Name -> the pretrained run; or "recipe", "verb" and "settings" as of a row, and "from", the
    encoder that it starts from (INIT_FROM): it is trained once, before the rows."""
    seeds: int = 1  # trainings of each row that is a task
    given: Mapping[str, Any] = field(default_factory=dict)
    """What {NAME} in the words of recipes and commands stands for; what reads a None is left
    out."""
    select: str | None = None  # SELECT of every row; None: that of its strategy
    settings: Sequence[str] = ()
    """Of every sweep, before its own: gin files ("mesh/fsdp.gin") and NAME=VALUE."""
    dtype: str | None = None
    """DTYPE of every row that trains and does not set its own; None: that of its encoder."""
    allow_missing: bool = False
    """Whether a row that trains passes over the test sets that are not there."""

    def __post_init__(self):
        require_whole(self, "[1, inf)", "seeds", "table: ")
        require_choice(self, CHOICES["dtype"], "dtype", "table: ")
        needed = any(map(is_of_an_encoder, self.rows.values())) or not self.rows
        if not isinstance(self.encoders, Mapping) or (needed and not self.encoders):
            raise UserError(
                f"ENCODERS={self.encoders!r}: give {{name: pretrained run}}, "
                """'{"base": "runs/x"}'"""
            )
        # All rows before any is run: a fault of the last would be told after the others' trainings.
        for name, encoder in self.encoders.items():
            if isinstance(encoder, str):
                continue
            if not isinstance(encoder, Mapping) or "recipe" not in encoder:
                raise UserError(f'table, encoder {name!r}: give a run, or {{"recipe": ...}}')
            _require_fields(f"encoder {name!r}", encoder, "encoder")
        for name, row in self.rows.items():
            _require_fields(f"row {name!r}", row, kind_of(row))
            self._unset(row)
        folders = [slug(f"{encoder} {row}") for encoder, row in self.cells()]
        folders += [slug(f"encoders {name}") for name in self.trained()]
        if len({*folders}) != len(folders):
            raise UserError(
                f"table: two rows or encoders would share a folder: {', '.join(folders)};"
                " rename one"
            )

    # ---- which rows are run, and with which encoders ---------------------------------------------

    def cells(self) -> list[tuple[str, str]]:
        """(encoder, row) of every row that is run, of sweeps first; ("rows", row) of one that is of
        no encoder. Raises UserError where there is none."""
        cells = [cell for cell in self._cells() if not self._lacks(*cell)]
        if not cells:
            raise UserError(f"table: no row can be run: {'; '.join({*self.left_out().values()})}")
        return cells

    def _cells(self) -> list[tuple[str, str]]:
        of_encoders = [name for name, row in self.rows.items() if is_of_an_encoder(row)]
        cells = [(encoder, name) for encoder in self.encoders for name in of_encoders]
        return cells + [(OF_NONE, name) for name in self.rows if name not in of_encoders]

    def _lacks(self, encoder: str, name: str) -> str:
        """Why a row is not run with an encoder; "": it is."""
        row = self.rows[name]
        names = split_list(row.get("encoders"))
        if names and encoder not in names:
            return f"ENCODERS does not name {' or '.join(names)}"
        missing = self._unset(row)
        if encoder != OF_NONE:
            missing += self._unset({"from": encoder})
        return f"{' and '.join(dict.fromkeys(missing))} is not set" if missing else ""

    def left_out(self) -> dict[str, str]:
        """{row: why it is run with no encoder}."""
        found: dict[str, list[str]] = {}
        for encoder, name in self._cells():
            found.setdefault(name, []).append(self._lacks(encoder, name))
        return {name: reasons[0] for name, reasons in found.items() if all(reasons)}

    def _unset(self, row: Row) -> list[str]:
        """Of what a row and the encoders that it needs read, the names that the table was not given
        a value for. Raises UserError for a name that the table does not know."""
        needed = [self.encoders[name] for name in self._donors_first(self._donors(row))]
        missing = []
        for name in placeholders(word for one in (row, *needed) for word in _words(one)):
            if name in self.encoders or name in _OF_ROW:
                continue
            if name not in self.given:
                known = ", ".join([*self.given, *self.encoders, *_OF_ROW])
                raise UserError(f"table: {{{name}}} is not one of {known}")
            if self.given[name] is None:
                missing.append(name)
        return missing

    def _donors(self, row: Row) -> list[str]:
        """The encoders that a row or an encoder names, as "from" or in its words."""
        named = [name for name in placeholders(_words(row)) if name in self.encoders]
        return [*filter(None, [row.get("from")]), *named]

    def _donors_first(self, wanted: Iterable[str]) -> list[str]:
        """Of the wanted encoders and those that they start from, the ones that a recipe trains,
        donors first. Raises UserError where they start from one another."""
        ordered: dict[str, None] = {}

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in path or name not in self.encoders:
                raise UserError(f"table, encoders: {' from '.join([*path, name])}: none can begin")
            encoder = self.encoders[name]
            if not isinstance(encoder, str) and name not in ordered:
                for donor in self._donors(encoder):
                    visit(donor, (*path, name))
                ordered[name] = None

        for name in wanted:
            visit(name, ())
        return [*ordered]

    def trained(self) -> list[str]:
        """The encoders that a recipe trains and a row needs, those that others start from first."""
        wanted = []
        for encoder, name in self.cells():
            if encoder != OF_NONE:
                wanted.append(encoder)
            wanted += self._donors(self.rows[name])
        return self._donors_first(wanted)

    def folders(self, output: str | Path) -> list[Path]:
        """Of the sweeps and measurements."""
        cells = [cell for cell in self.cells() if "task" in self.rows[cell[1]]]
        return [_folder(output, encoder, name) for encoder, name in cells]

    def run_of(self, encoder: str, output: str | Path) -> str:
        """The run of an encoder."""
        source = self.encoders[encoder]
        return source if isinstance(source, str) else str(_folder(output, "encoders", encoder))

    # ---- jobs ------------------------------------------------------------------------------------

    def jobs(self, data: str | Path, output: str | Path) -> list[TableJob]:
        """All that the table runs, what others need first: the encoders, then row by row."""
        runs = {name: self.run_of(name, output) for name in self.encoders}
        values = {**self.given, **runs, "data": data}
        jobs = []
        for name in self.trained():
            encoder = self.encoders[name]
            assert not isinstance(encoder, str)
            start = runs.get(encoder.get("from"))
            more = [f"--gin.INIT_FROM={start}"] if start else []
            own = {**values, "from": start}
            jobs.append(
                self._training(f"encoder {name}", Path(runs[name]), encoder, own, more, name)
            )
        for encoder, name in self.cells():
            jobs += self._row_jobs(encoder, name, data, output, values)
        return jobs

    def _row_jobs(
        self, encoder: str, name: str, data: str | Path, output: str | Path, values: Row
    ) -> list[TableJob]:
        row = self.rows[name]
        folder = _folder(output, encoder, name)
        values = {**values, "folder": folder}
        title = name
        if encoder == OF_NONE:
            encoder = ""
        else:
            title = f"{encoder}, {name}"
            values["encoder"] = values["run"] = self.run_of(encoder, output)
        if "task" in row:
            line = self.command(encoder, name, data, output)
            needs = self._needs(row, encoder)
            return [TableJob(title, folder, line, kind_of(row), needs, encoder, name)]
        jobs = []
        needs = self._needs(row, encoder)
        if "recipe" in row:
            run = folder / "run"
            jobs.append(self._training(title, run, row, values, [], encoder, name))
            values["run"] = run
        for label, command in row.get("then", {}).items():
            if jobs:
                needs = (jobs[-1].name,)
            # Split before it is filled: a path may have spaces.
            line = command_line(*(_filled(word, values) for word in shlex.split(command)))
            printed = folder / f"{label}.txt"
            jobs.append(
                TableJob(f"{title}: {label}", folder, line, THEN, needs, encoder, name, printed)
            )
        return jobs

    def _training(
        self,
        title: str,
        run: Path,
        row: Row,
        values: Row,
        more: Sequence[str],
        encoder: str,
        name: str = "",
    ) -> TableJob:
        """Of a row, or of an encoder where no row is named."""
        verb = row.get("verb", "pretrain")
        words = ["--gin-file", row["recipe"]]
        for setting in row.get("settings", ()):
            # By what is written in the table: a path that is filled in may have any letter.
            words += _option(setting, _filled(setting, values))
        if self.dtype and not _says(row, "DTYPE"):
            more = [*more, f"--gin.DTYPE={self.dtype}"]
        line = command_line(verb, "--to", str(run), *words, *more)
        needs = self._needs(row, encoder if name else "")
        return TableJob(title, run, line, RECIPE, needs, encoder, name)

    def _needs(self, row: Row, encoder: str) -> tuple[str, ...]:
        """Names of the jobs that train what a row starts from."""
        donors = dict.fromkeys([*filter(None, [encoder]), *self._donors(row)])
        trained = [name for name in donors if not isinstance(self.encoders[name], str)]
        return tuple(f"encoder {name}" for name in trained)

    def command(self, encoder: str, name: str, data: str | Path, output: str | Path) -> list[str]:
        """The command line of one sweep, or of a measurement."""
        row = self.rows[name]
        tasks = split_list(row["task"])
        run = self.run_of(encoder, output)
        where = ["--data", str(data), "--to", str(_folder(output, encoder, name))]
        if kind_of(row) == MEASURE:
            suite, _, task = tasks[0].partition("/")
            words = [run, "--mixture", suite, "--tasks", task, *where]
            # Models differ in the languages that they know, and all are measured on what they do.
            words.append("--allow-missing")
            if "layer" in row:
                words += ["--layer", str(row["layer"])]
            return command_line("evaluate", *words)
        words = [run, "--task", *tasks, *where, "--strategy", row.get("strategy", "transfer")]
        if self.allow_missing:
            words.append("--allow-missing")
        words += ["--seeds", str(self.seeds)]
        if row.get("languages"):
            words += ["--languages", *split_list(row["languages"])]
        if row.get("grid"):
            words.append("--grid")
            words += [f"{macro}={values}" for macro, values in row["grid"].items()]
        if self.select:
            words.append(f"--gin.SELECT={self.select!r}")
        # A grid may try precisions itself, and an option beside a grid is refused.
        if self.dtype and not _says(row, "DTYPE"):
            words.append(f"--gin.DTYPE={self.dtype}")
        # Last, so that the settings of a row are stronger than those of the table.
        for word in (*self.settings, *row.get("settings", ())):
            words += _option(word, word)
        return command_line("finetune", *words)


def _folder(output: str | Path, encoder: str, name: str) -> Path:
    return Path(output) / slug(encoder) / slug(name)


def _option(setting: str, value: str) -> list[str]:
    return [f"--gin.{value}"] if "=" in setting else ["--gin-file", value]


def _says(row: Row, macro: str) -> bool:
    """Whether the settings or the grid of a row set a macro."""
    settings = [word.partition("=")[0] for word in row.get("settings", ()) if "=" in word]
    return macro in [*settings, *row.get("grid", ())]


def kind_of(row: Row) -> str:
    """Of the job behind a row, or of its commands where they are all. Raises UserError for a task
    that is not known."""
    if "recipe" in row:
        return RECIPE
    if "task" not in row:
        return THEN
    return SWEEP if task_named(split_list(row["task"])[0]).kind in TRAINED else MEASURE


def is_of_an_encoder(row: Row) -> bool:
    """Whether the row is there once for each encoder."""
    if "task" in row or "encoders" in row:
        return True
    named = placeholders(_words(row))
    return "encoder" in named or ("recipe" not in row and "run" in named)


def _words(row: Row) -> list[str]:
    """All in which a placeholder may stand."""
    if "task" in row:
        return []
    return [*row.get("settings", ()), *row.get("then", {}).values()]


def placeholders(words: Iterable[str]) -> list[str]:
    """The names in curly brackets, in order, each once."""
    return [*dict.fromkeys(name for word in words for name in _PLACEHOLDER.findall(str(word)))]


def _filled(word: str, values: Row) -> str:
    return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), word)


def _require_fields(what: str, row: Row, kind: str) -> None:
    """Raises UserError for a field that it cannot have, or a verb that is not one of ours."""
    for field_ in {*row} - FIELDS[kind]:
        raise UserError(
            f"table, {what}: {field_!r} is not one of {', '.join(sorted(FIELDS[kind]))}"
        )
    if kind == MEASURE and len(split_list(row["task"])) > 1:
        raise UserError(f"table, {what}: it is measured without training: name one task")
    if row.get("verb", "pretrain") not in VERBS:
        raise UserError(f'table, {what}: "verb" is one of {", ".join(VERBS)}')
    for label, command in row.get("then", {}).items():
        if "/" in label:
            raise UserError(f'table, {what}: {label!r} in "then" names a file: it has no /')
        verb = command.partition(" ")[0]
        if verb not in COMMANDS:
            raise UserError(f"table, {what}: {verb!r} is not one of {', '.join(COMMANDS)}")
