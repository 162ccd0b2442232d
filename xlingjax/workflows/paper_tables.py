"""The runs behind a table of a paper: a sweep of fine-tuning (`xlingjax finetune --task`) for each
row and encoder; encoders and rows that a recipe trains, and commands on them, see `table_rows`.

Each is a process with a folder of its own, ENCODER/ROW, rows/ROW or encoders/ENCODER, and none is
done twice; so a table that was stopped goes on with the same command.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xlingjax.config.multi_task import merged
from xlingjax.config.shared_training import require_alike
from xlingjax.data.labelled.task import TRAINED
from xlingjax.data.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.tatoeba import chosen_layer
from xlingjax.tasks import task_named
from xlingjax.training.run_record import read_run_record, run_and_checkpoint
from xlingjax.workflows import table_rows
from xlingjax.workflows.bakeoff import slug
from xlingjax.workflows.cell import MULTI_TASK
from xlingjax.workflows.many import Stop
from xlingjax.workflows.table_jobs import MEASURE, SWEEP, THEN, TableJob, command_line
from xlingjax.workflows.table_run import share_jobs

TRAINING = {"strategy", "settings", "grid", "languages"}
"""What a row says of its training; retrieval and mining have none."""
FIELDS = {"task", "layer", "encoders"} | TRAINING
OF_NONE = "rows"
"""In place of an encoder: of rows that are of none."""


@dataclass(frozen=True)
class Table:
    rows: Mapping[str, Mapping[str, Any]]
    """Name -> "task" (SUITE/NAME; of the strategy multi_task a list; of others
    too, where the tasks are trained on the same examples) and, where they differ from
    those of `finetune --task`, "strategy", "settings" (gin files and NAME=VALUE, in the order they
    are read), "grid" ({macro: "A,B"}), "languages" (pivots or targets); of retrieval and mining
    "layer" alone, see `evaluate --layer`; "encoders": those that the row is for, default: all.
    Or "recipe", with "verb" (pretrain or finetune) and "settings": one training, whose own
    evaluators give its figures; "then", {name: command line}: commands on it, or without a recipe
    on an encoder, each done once."""
    encoders: Mapping[str, str | Mapping[str, Any]]
    """Name -> the pretrained run; or "recipe", "verb" and "settings" as of a row, and "from", the
    encoder that it starts from (INIT_FROM): it is trained once, before the rows."""
    seeds: int = 1
    """Trainings of each row that is a task."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What {NAME} in the words of recipes and commands stands for; what reads a None is left
    out."""
    select: str | None = None
    """SELECT of every row; None: that of its strategy."""
    settings: Sequence[str] = ()
    """Of every sweep, before its own: gin files ("mesh/fsdp.gin") and NAME=VALUE."""
    dtype: str | None = None
    """DTYPE of every row that trains and does not set its own; None: that of its encoder."""
    allow_missing: bool = False
    """Whether a row that trains passes over the test sets that are not there."""

    def __post_init__(self):
        for name, row in self.rows.items():
            try:
                # All rows before any is run: a fault of the last
                # would be told after the others' trainings.
                if table_rows.is_sweep(row):
                    _require_sound(row)
                else:
                    table_rows.require_sound(row)
            except UserError as fault:
                raise UserError(f"table, row {name!r}: {fault}") from None
        self._require_encoders()
        for name, row in self.rows.items():
            try:
                table_rows.unset(row, self.encoders, self.given)
            except UserError as fault:
                raise UserError(f"table, row {name!r}: {fault}") from None
        if self.seeds < 1:
            raise UserError(f"SEEDS={self.seeds} must be at least 1")
        folders = [slug(f"{encoder} {row}") for encoder, row in self.cells()]
        folders += [slug(f"encoders {name}") for name in self.trained()]
        if len({*folders}) != len(folders):
            raise UserError(
                f"table: two rows or encoders would share a folder: {', '.join(folders)};"
                " rename one"
            )

    def _require_encoders(self) -> None:
        rows = self.rows.values()
        needed = any(map(table_rows.is_of_an_encoder, rows)) or not rows
        if not isinstance(self.encoders, Mapping) or (needed and not self.encoders):
            raise UserError(
                f'ENCODERS={self.encoders!r}: give {{name: pretrained run}}, \'{{"base":'
                ' "runs/x"}\''
            )
        table_rows.require_sound_encoders(self.encoders)

    def cells(self) -> list[tuple[str, str]]:
        """(encoder, row) of every row that is run, of sweeps first; ("rows", row) of one that is of
        no encoder. Raises UserError where there is none."""
        cells = []
        for encoder in self.encoders:
            for name, row in self.rows.items():
                if table_rows.is_of_an_encoder(row):
                    cells.append((encoder, name))
        for name, row in self.rows.items():
            if not table_rows.is_of_an_encoder(row):
                cells.append((OF_NONE, name))
        cells = [cell for cell in cells if not self._lacks(*cell)]
        if not cells:
            raise UserError(self._no_cell())
        return cells

    def _no_cell(self) -> str:
        named: set[str] = set()
        for row in self.rows.values():
            named.update(split_list(row.get("encoders")))
        if not self.rows or (named and not named & {*self.encoders}):
            return (
                f"ENCODERS has {', '.join(self.encoders)} and the rows are for"
                f" {', '.join(sorted(named)) or 'none'}: name those"
            )
        name = next(iter(self.rows))
        return f"table: no row can be run; {name!r}: {self.lacks(name)}"

    def _lacks(self, encoder: str, name: str) -> str:
        """Why a row is not run with an encoder; "": it is."""
        row = self.rows[name]
        names = split_list(row.get("encoders"))
        if names and encoder not in names:
            return f"ENCODERS does not name {' or '.join(names)}"
        read = [row]
        if encoder != OF_NONE:
            read.append({"from": encoder})
        missing = []
        for one in read:
            missing += table_rows.unset(one, self.encoders, self.given)
        if missing:
            return f"{' and '.join(dict.fromkeys(missing))} is not set"
        return ""

    def lacks(self, name: str) -> str:
        """Why a row is run with no encoder."""
        encoders = [OF_NONE]
        if table_rows.is_of_an_encoder(self.rows[name]):
            encoders = [*self.encoders]
        return self._lacks(encoders[0], name)

    def left_out(self) -> list[str]:
        """Rows whose encoders, or what they read, are not given."""
        run = {name for _, name in self.cells()}
        return [name for name in self.rows if name not in run]

    def folders(self, output: str | Path) -> list[Path]:
        """Of the sweeps and measurements."""
        folders = []
        for encoder, name in self.cells():
            if table_rows.is_sweep(self.rows[name]):
                folders.append(_folder(output, encoder, name))
        return folders

    def trained(self) -> list[str]:
        """The encoders that a recipe trains and a row needs, those that others start from first."""
        wanted = []
        for encoder, name in self.cells():
            if encoder != OF_NONE:
                wanted.append(encoder)
            wanted += table_rows.givers(self.rows[name], self.encoders)
        return table_rows.in_order(self.encoders, wanted)

    def run_of(self, encoder: str, output: str | Path) -> str:
        """The run of an encoder."""
        source = self.encoders[encoder]
        if isinstance(source, str):
            return source
        return str(table_rows.folder_of_encoder(output, encoder))

    def jobs(self, data: str | Path, output: str | Path) -> list[TableJob]:
        """All that the table runs, what others need first: the encoders, then row by row."""
        jobs = []
        for name in self.trained():
            jobs.append(self._encoder_job(name, data, output))
        for encoder, name in self.cells():
            jobs += self._row_jobs(encoder, name, data, output)
        return jobs

    def _encoder_job(self, name: str, data: str | Path, output: str | Path) -> TableJob:
        encoder = self.encoders[name]
        assert not isinstance(encoder, str)
        folder = table_rows.folder_of_encoder(output, name)
        words = table_rows.recipe_words(encoder, self._values(data, output, folder=folder))
        if encoder.get("from"):
            words.append(f"--gin.INIT_FROM={self.run_of(encoder['from'], output)}")
        return self._training_job(
            f"encoder {name}",
            folder,
            encoder,
            words,
            table_rows.givers(encoder, self.encoders),
            encoder=name,
        )

    def _row_jobs(
        self, encoder: str, name: str, data: str | Path, output: str | Path
    ) -> list[TableJob]:
        row = self.rows[name]
        title = f"{encoder}, {name}"
        givers = table_rows.givers(row, self.encoders)
        values = {}
        if encoder == OF_NONE:
            title = name
            encoder = ""
        else:
            givers.insert(0, encoder)
            values = {"encoder": self.run_of(encoder, output)}
            values["run"] = values["encoder"]
        folder = _folder(output, encoder or OF_NONE, name)
        if table_rows.is_sweep(row):
            kind = SWEEP
            if not _is_trained(row):
                kind = MEASURE
            line = tuple(self.command(encoder, name, data, output))
            needs = self._jobs_of(givers)
            return [TableJob(title, folder, line, kind, needs, encoder, name)]
        jobs = []
        values = self._values(data, output, folder=folder, **values)
        if table_rows.has_recipe(row):
            words = table_rows.recipe_words(row, values)
            run = folder / "run"
            values["run"] = str(run)
            job = self._training_job(title, run, row, words, givers, encoder, name)
            jobs.append(job)
        needs = self._jobs_of(givers)
        for label, command in row.get("then", {}).items():
            if jobs:
                needs = (jobs[-1].name,)
            verb, *words = table_rows.command_words(command, values)
            jobs.append(
                TableJob(
                    f"{title}: {label}",
                    folder,
                    command_line(verb, *words),
                    THEN,
                    needs,
                    encoder,
                    name,
                    folder / f"{label}.txt",
                )
            )
        return jobs

    def _training_job(
        self,
        title: str,
        folder: Path,
        row: Mapping[str, Any],
        words: Sequence[str],
        givers: Sequence[str],
        encoder: str = "",
        name: str = "",
    ) -> TableJob:
        verb = row.get("verb", "pretrain")
        more = []
        if self.dtype and not _says(row, "DTYPE"):
            more.append(f"--gin.DTYPE={self.dtype}")
        return TableJob(
            title,
            folder,
            command_line(verb, "--workdir", str(folder), *words, *more),
            table_rows.KIND_OF_VERB[verb],
            self._jobs_of(givers),
            encoder,
            name,
        )

    def _jobs_of(self, encoders: Sequence[str]) -> tuple[str, ...]:
        """Names of the jobs that train the encoders, of those that are trained."""
        names = []
        for name in dict.fromkeys(encoders):
            if not isinstance(self.encoders[name], str):
                names.append(f"encoder {name}")
        return tuple(names)

    def _values(self, data: str | Path, output: str | Path, **of_row: Any) -> dict[str, Any]:
        """What placeholders stand for."""
        runs = {name: self.run_of(name, output) for name in self.encoders}
        return {**self.given, **runs, "data": data, **of_row}

    def command(self, encoder: str, name: str, data: str | Path, output: str | Path) -> list[str]:
        """The command line of one sweep."""
        row = self.rows[name]
        tasks = split_list(row["task"])
        suite, _, task = tasks[0].partition("/")
        run = self.run_of(encoder, output)
        where = ["--data", str(data), "--to", str(_folder(output, encoder, name))]
        line = [sys.executable, "-m", "xlingjax"]
        if _is_trained(row):
            return [*line, "finetune", run, "--task", *tasks, *where, *self._training(row)]
        line += ["evaluate", run, "--mixture", suite, "--tasks", task, *where]
        # Models differ in the languages that they know, and all are measured on what they do.
        line.append("--allow-missing")
        if "layer" in row:
            line += ["--layer", str(row["layer"])]
        return line

    def _training(self, row: Mapping[str, Any]) -> list[str]:
        """The options of a row's training."""
        words = ["--strategy", row.get("strategy", "transfer")]
        if self.allow_missing:
            words.append("--allow-missing")
        words += ["--seeds", str(self.seeds)]
        if row.get("languages"):
            words += ["--languages", *split_list(row["languages"])]
        if row.get("grid"):
            words.append("--grid")
            for macro, values in row["grid"].items():
                words.append(f"{macro}={values}")
        if self.select:
            words.append(f"--gin.SELECT={self.select!r}")
        # A grid may try precisions itself, and an option beside a grid is refused.
        if self.dtype and not _says(row, "DTYPE"):
            words.append(f"--gin.DTYPE={self.dtype}")
        # Last, so that the settings of a row are stronger than those of the table.
        for word in (*self.settings, *row.get("settings", ())):
            if "=" in word:
                words.append(f"--gin.{word}")
            else:
                words += ["--gin_file", word]
        return words


def _folder(output: str | Path, encoder: str, name: str) -> Path:
    return Path(output) / slug(encoder) / slug(name)


def _says(row: Mapping[str, Any], macro: str) -> bool:
    """Whether the settings or the grid of a row set a macro."""
    if macro in row.get("grid", {}):
        return True
    return any(word.startswith(f"{macro}=") for word in row.get("settings", ()))


def _is_trained(row: Mapping[str, Any]) -> bool:
    return task_named(split_list(row["task"])[0]).kind in TRAINED


def _require_sound(row: Mapping[str, Any]) -> None:
    """Raise UserError unless the fields of a row are known, fit its task and one another."""
    strange = sorted({*row} - FIELDS)
    if strange:
        raise UserError(f"{strange[0]!r} is not one of {', '.join(sorted(FIELDS))}")
    names = row.get("task")
    tasks = []
    if isinstance(names, str):
        tasks = [names]
    elif isinstance(names, list | tuple):
        tasks = [*names]
    if not tasks or not all(isinstance(task, str) for task in tasks):
        raise UserError(
            'say which task it is: "task": "SUITE/NAME", or a list of those that are trained'
            " together"
        )
    if row.get("strategy") == MULTI_TASK:
        merged(tasks)
    else:
        require_alike([task_named(name) for name in tasks])
    task = task_named(tasks[0])
    if _is_trained(row):
        if "layer" in row:
            raise UserError(
                f'"layer" is of retrieval and mining, and {task.full_name} is fine-tuned; leave'
                " it out"
            )
        return
    if len(tasks) > 1:
        raise UserError(f"{task.full_name} is measured without training: name it alone")
    given = sorted(field for field in TRAINING if row.get(field))
    if given:
        raise UserError(f"{task.full_name} is measured without training: leave {given[0]!r} out")
    if "layer" in row and (type(row["layer"]) is not int or row["layer"] < 0):
        raise UserError(
            f'"layer": {row["layer"]!r} must be the number of a layer, 0 the embeddings'
        )


def require_layers(table: Table, encoder: str, name: str) -> None:
    """Raise UserError where a row reads a layer that its encoder does not have; a model of Hugging
    Face is not looked at before its row, one that the table trains may not be there yet."""
    layer = table.rows[name].get("layer")
    source = table.encoders[encoder]
    if layer is None or not isinstance(source, str):
        return
    if source.startswith("hf:"):
        return
    model = read_run_record(run_and_checkpoint(source)[0])["model"]
    try:
        chosen_layer(layer, model["layers"])
    except UserError as fault:
        raise UserError(f"table: {encoder}, {name}: {fault}") from None


def run(
    table: Table,
    data: str | Path,
    output: str | Path,
    arguments: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Run the jobs, but for those that another command on `output` is at. data: folder of the
    benchmarks' files. output: of the folders of the sweeps. arguments: given to every command
    (`--platform cpu`). Raises UserError naming the row that failed; Stopped after SIGTERM, SIGINT
    or SIGHUP.
    """
    for name in table.left_out():
        say(f"left out, since {table.lacks(name)}: {name}")
    stop = Stop("table")
    with stop.listen():
        share_jobs(table.jobs(data, output), arguments, stop, say)
        # A signal that found the last sweep at its end is a request to stop all the same.
        stop.leave_if_requested()
