"""What a table will train, before anything is trained: every cell, what it reads, its batch, steps
and operations, and all that is missing or wrong."""

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from xlingjax.config.gin_files import gin_values
from xlingjax.config.model import check_vocabulary
from xlingjax.config.recipe import FOREIGN, Recipe, read_recipe
from xlingjax.convert.import_model import imported
from xlingjax.data.labelled.task import languages_present
from xlingjax.data.text.sources import find_negatives, find_pairs, find_text, split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.tatoeba import chosen_layer
from xlingjax.model.partition import check_shares, mesh_sizes
from xlingjax.tasks import task_named
from xlingjax.training.loop import require_settings
from xlingjax.training.run_record import read_run_record, run_and_checkpoint
from xlingjax.workflows.launch import evaluators_of, stages_of
from xlingjax.workflows.tables.flops import H100, UTILISATION, gpu_hours, training_flops
from xlingjax.workflows.tables.jobs import MEASURE, SWEEP, TRAINED_BY_RECIPE, TableJob
from xlingjax.workflows.tables.table import Table
from xlingjax.workflows.tasks.recipe import idle, sizes_of
from xlingjax.workflows.tasks.request import Request
from xlingjax.workflows.tasks.sweep import Sound, planned_cells, require_sets


@dataclasses.dataclass(frozen=True)
class Training:
    """A cell of a sweep, or a training by a recipe."""

    name: str
    reads: str
    """What is trained on and how many sets choose and test."""
    batch: int
    rows_of_device: int
    """Of a batch, on each device that it is spread over."""
    steps: int
    flops: float | None
    """Of the whole training; None: not counted."""
    times: int = 1
    """Trainings that differ in the seed alone."""


@dataclasses.dataclass
class Plan:
    trainings: list[Training]
    measured: int
    """Rows and commands that train nothing."""
    faults: list[str]
    notes: list[str]

    def require_sound(self) -> None:
        """Raise UserError where something is missing or wrong; all of it is printed before."""
        if not self.faults:
            return
        for fault in self.faults:
            print(fault)
        raise UserError(
            f"table: {len(self.faults)} of its rows cannot be run (above); nothing was trained"
        )


def planned(
    table: Table, data: str | Path, output: str | Path, devices: int = 1, jobs: int = 1
) -> Plan:
    """The plan of a table. devices: that a training has, none of which is touched; jobs: trainings
    side by side."""
    plan = Plan([], 0, [], [])
    with tempfile.TemporaryDirectory() as scratch:
        planner = _Planner(table, data, output, devices, jobs, Path(scratch))
        for job in table.jobs(data, output):
            try:
                planner.add(job, plan)
            except UserError as error:
                first = str(error).splitlines()[0]
                plan.faults.append(f"{job.name}: {first}")
    plan.faults = [*dict.fromkeys(plan.faults)]
    plan.notes = [*dict.fromkeys(plan.notes)]
    return plan


class _Planner:
    def __init__(
        self,
        table: Table,
        data: str | Path,
        output: str | Path,
        devices: int,
        jobs: int,
        scratch: Path,
    ):
        self._table = table
        self._data = data
        self._output = output
        self._devices = devices
        self._jobs = jobs
        self._scratch = scratch
        self._stand_ins: dict[str, str] = {}
        """{run of an encoder that is not trained yet: what stands in its place}."""

    def add(self, job: TableJob, plan: Plan) -> None:
        """Raises UserError for what it cannot be run for."""
        if job.kind in TRAINED_BY_RECIPE:
            plan.trainings.append(self._by_recipe(job))
        elif job.kind == SWEEP:
            self._require_run(job.encoder)
            plan.trainings += self._of_sweep(job, plan)
        else:
            plan.measured += 1
            # A model of Hugging Face is not imported before its row.
            foreign = f"{self._table.encoders.get(job.encoder)}"
            if job.encoder and not foreign.startswith(FOREIGN):
                self._require_run(job.encoder)
            if job.kind == MEASURE:
                self._require_measured(job)

    def _require_measured(self, job: TableJob) -> None:
        """Raises UserError where no language of a task that is measured has a set, and for a layer
        that the encoder lacks; a model of Hugging Face is not looked at before its row, one that
        the table trains may not be there yet."""
        row = self._table.rows[job.row]
        source = self._table.encoders[job.encoder]
        if "layer" in row and isinstance(source, str) and not source.startswith(FOREIGN):
            model = read_run_record(run_and_checkpoint(source)[0])["model"]
            chosen_layer(row["layer"], model["layers"])
        task = task_named(split_list(row["task"])[0])
        if not any(languages_present(task, self._data, part) for part in ("test", "dev")):
            raise UserError(f"{task.full_name}: no test or dev files below {self._data}")

    def _require_run(self, encoder: str) -> None:
        read_run_record(self._run(encoder))

    def _run(self, encoder: str) -> str:
        run = self._table.run_of(encoder, self._output)
        if run.startswith(FOREIGN):
            return str(imported(run.removeprefix(FOREIGN)))
        return self._stand_ins.get(run, run)

    # ---- sweeps ----------------------------------------------------------------------------------

    def _of_sweep(self, job: TableJob, plan: Plan) -> Iterator[Training]:
        request = self._request(job)
        sound: Sound = set()
        told: set[str] = set()
        for cell in planned_cells(request, plan.notes.append):
            require_sets(request, cell, sound, told, plan.notes.append)
            data, fsdp, _ = sizes_of(cell.bound, self._devices)
            if line := idle(cell.bound, self._devices, self._jobs):
                plan.notes.append(f"{job.name}: {line}")
            yield Training(
                f"{job.name}: {cell.name}",
                cell.reads,
                cell.bound["BATCH"],
                cell.bound["BATCH"] // (data * fsdp),
                cell.recipe.bound["steps"],
                _flops(cell.recipe),
                request.seeds,
            )

    def _request(self, job: TableJob) -> Request:
        row = self._table.rows[job.row]
        tasks = sorted(map(task_named, split_list(row["task"])), key=lambda task: task.name)
        files, overrides = job.recipe()
        grid = {}
        for macro, values in row.get("grid", {}).items():
            grid[macro] = tuple(values.split(","))
        return Request(
            tasks[0],
            self._run(job.encoder),
            str(self._data),
            str(job.folder),
            row.get("strategy", "transfer"),
            self._table.seeds,
            grid,
            tuple(split_list(row.get("languages"))),
            tuple(files),
            tuple(gin_values(overrides)),
            self._table.allow_missing,
            beside=tuple(tasks[1:]),
        )

    # ---- trainings by recipes --------------------------------------------------------------------

    def _by_recipe(self, job: TableJob) -> Training:
        files, overrides = job.recipe()
        # Encoders that it starts from may not be trained yet.
        for run, stand_in in self._stand_ins.items():
            overrides = [_replaced(one, run, stand_in) for one in overrides]
        recipe = read_recipe(files, overrides)
        # First, so that what starts from a faulty encoder is judged by itself.
        self._put_stand_in(job, recipe)
        recipe.require_decay()
        _require_text(recipe)
        check_vocabulary(
            recipe.bound["model"], recipe.corpus.vocabulary, recipe.corpus.vocabulary_path
        )
        require_settings(**recipe.bound | {"evaluators": evaluators_of(recipe)})
        names = []
        batches = []
        data, fsdp, _ = mesh_sizes(recipe.bound["mesh"], self._devices)
        for name, run in stages_of(recipe):
            names.append(name)
            rows = run.batches.shapes["input_ids"][0]
            check_shares(data, fsdp, rows, recipe.bound["microbatches"], name)
            batches.append(rows)
        return Training(
            job.name,
            ", ".join(dict.fromkeys(names)),
            max(batches),
            max(batches) // (data * fsdp),
            recipe.bound["steps"],
            _flops(recipe),
        )

    def _put_stand_in(self, job: TableJob, recipe: Recipe) -> None:
        """What a run tells of itself before it is trained, in a folder of its own."""
        if job.row or (job.folder / "run.json").is_file():
            return
        folder = self._scratch / job.folder.name
        folder.mkdir()
        model = dataclasses.asdict(recipe.bound["model"])
        record = {
            "model": model,
            "identity": {"model": model},
            "languages": recipe.corpus.languages,
        }
        text = json.dumps(record)
        (folder / "run.json").write_text(text, encoding="utf-8")
        for name, content in recipe.corpus.vocabulary.files().items():
            (folder / name).write_bytes(content)
        self._stand_ins[str(job.folder)] = str(folder)


def _replaced(override: str, run: str, other: str) -> str:
    """NAME=VALUE with another run in place of one, whose name may be the begin of a third's."""
    name, _, value = override.partition("=")
    if value == run:
        return f"{name}={other}"
    return override


def _require_text(recipe: Recipe) -> None:
    """Raises UserError where a pattern of its text finds no file."""
    corpus = recipe.corpus
    if corpus.mono:
        find_text(corpus.mono)
    if corpus.parallel:
        find_pairs(corpus.parallel)
    if corpus.negatives:
        find_negatives(corpus.negatives)


# ---- what is printed -----------------------------------------------------------------------------


def show(plan: Plan) -> int:
    """Print the plan. The exit status: 1 where something is missing or wrong."""
    console = Console()
    if not console.is_terminal:
        # Lines of a file are not cut.
        console.width = 400
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("training")
    table.add_column("reads")
    for name in ("batch", "of a device", "steps", "FLOPs", "seeds"):
        table.add_column(name, justify="right")
    for one in plan.trainings:
        table.add_row(
            Text(one.name),
            Text(one.reads),
            str(one.batch),
            str(one.rows_of_device),
            f"{one.steps:,}",
            _power(one.flops),
            str(one.times),
        )
    console.print(table)
    for note in plan.notes:
        console.print(Text(note))
    for fault in plan.faults:
        console.print(Text(f"refused: {fault}"))
    cells = sum(one.times for one in plan.trainings)
    counted = [one for one in plan.trainings if one.flops is not None]
    total = sum(one.times * one.flops for one in counted)
    line = (
        f"{cells:,} trainings, {plan.measured} measured rows and commands,"
        f" {len(plan.faults)} refused; {_power(total)} FLOPs,"
        f" {gpu_hours(total):,.1f} hours of one H100 ({UTILISATION:.0%} of"
        f" {H100 / 1e12:.0f} TFLOP/s)"
    )
    if len(counted) < len(plan.trainings):
        line += f"; {len(plan.trainings) - len(counted)} trainings not counted"
    console.print(Text(line))
    return int(bool(plan.faults))


def _flops(recipe: Recipe) -> float | None:
    try:
        return training_flops(recipe).total
    # An objective of a user's own.
    except UserError:
        return None


def _power(flops: float | None) -> str:
    if flops is None:
        return "not counted"
    return f"{flops:.2e}"
