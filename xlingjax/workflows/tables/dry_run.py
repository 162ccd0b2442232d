"""What a table will train, before anything is trained: every cell, what it reads, its batch, steps
and operations, and all that is missing or wrong. Cells go through what their runs begin with."""

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pandas as pd

from xlingjax.config.gin_files import gin_values
from xlingjax.config.recipe import FOREIGN, Recipe, read_recipe
from xlingjax.convert.import_model import imported
from xlingjax.data.labelled.task import languages_present
from xlingjax.data.text.sources import find_negatives, find_pairs, find_text, split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.tatoeba import chosen_layer
from xlingjax.model.build import build_model
from xlingjax.model.partition import MeshConfig, check_shares, make_mesh, mesh_sizes
from xlingjax.report import html
from xlingjax.tasks import task_named
from xlingjax.training.feed import Feed
from xlingjax.training.initialisation import first_weights
from xlingjax.training.loop import require_settings
from xlingjax.training.run_record import model_of
from xlingjax.workflows.launch import checked, stages_of
from xlingjax.workflows.tables.flops import H100, UTILISATION, gpu_hours, training_flops
from xlingjax.workflows.tables.jobs import MEASURE, RECIPE, SWEEP, THEN, TableJob
from xlingjax.workflows.tables.table import Table
from xlingjax.workflows.tasks.request import Request
from xlingjax.workflows.tasks.sweep import check

READ = ("--input", "--references", "--gold", "--dictionary", "--similarity")
"""Options of commands that name a file."""


@dataclasses.dataclass(frozen=True)
class Training:
    """A cell of a sweep, or a training by a recipe."""

    name: str
    batch: int
    steps: int
    flops: float  # of the whole training
    times: int = 1  # trainings that differ in the seed alone


@dataclasses.dataclass
class Plan:
    trainings: list[Training]
    measured: int  # rows and commands that train nothing
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


def planned(table: Table, data: str | Path, output: str | Path, devices: int = 1) -> Plan:
    """The plan of a table. devices: that a training has, none of which is touched."""
    plan = Plan([], 0, [], [])
    with tempfile.TemporaryDirectory() as scratch:
        planner = _Planner(table, str(data), output, devices, Path(scratch), plan)
        for job in table.jobs(data, output):
            try:
                planner.add(job)
            except UserError as error:
                first = str(error).splitlines()[0]
                plan.faults.append(f"{job.name}: {first}")
    plan.notes = [*dict.fromkeys(plan.notes)]
    return plan


@dataclasses.dataclass
class _Planner:
    table: Table
    data: str
    output: str | Path
    devices: int
    scratch: Path
    plan: Plan
    stand_ins: dict[str, str] = dataclasses.field(default_factory=dict)
    """{run of an encoder that is not trained yet: what stands in its place}."""

    def add(self, job: TableJob) -> None:
        """Raises UserError for what it cannot be run for."""
        if job.kind == RECIPE:
            self.plan.trainings.append(self._by_recipe(job))
            return
        if job.kind == SWEEP:
            self.plan.trainings += self._of_sweep(job)
            return
        self.plan.measured += 1
        for option, word in pairwise(job.line):
            path = Path(word.rpartition("=")[2])
            made = Path(self.output) in path.parents
            if job.kind == THEN and option in READ and not made and not path.is_file():
                raise UserError(f"missing file: {path} ({option})")
        source = self.table.encoders.get(job.encoder)
        # A model of Hugging Face is not imported before its row.
        layer = self.table.rows[job.row].get("layer")
        if layer and source and not str(source).startswith(FOREIGN):
            chosen_layer(layer, model_of(self._run(job.encoder)).layers)
        if job.kind == MEASURE:
            task = task_named(split_list(self.table.rows[job.row]["task"])[0])
            if not any(languages_present(task, self.data, part) for part in ("test", "dev")):
                raise UserError(f"{task.full_name}: no test or dev files below {self.data}")

    def _run(self, encoder: str) -> str:
        run = self.table.run_of(encoder, self.output)
        if run.startswith(FOREIGN):
            return str(imported(run.removeprefix(FOREIGN)))
        return self.stand_ins.get(run, run)

    def _of_sweep(self, job: TableJob) -> Iterator[Training]:
        row = self.table.rows[job.row]
        tasks = sorted(map(task_named, split_list(row["task"])), key=lambda task: task.name)
        files, overrides = job.recipe()
        request = Request(
            tasks[0],
            self._run(job.encoder),
            self.data,
            str(job.folder),
            row.get("strategy", "transfer"),
            self.table.seeds,
            {macro: tuple(values.split(",")) for macro, values in row.get("grid", {}).items()},
            tuple(split_list(row.get("languages"))),
            tuple(files),
            tuple(gin_values(overrides)),
            self.table.allow_missing,
            beside=tuple(tasks[1:]),
        )
        for cell in check(request, self.plan.notes.append, self.devices):
            yield Training(
                f"{job.name}: {cell.name}",
                cell.bound["BATCH"],
                cell.recipe.bound["steps"],
                training_flops(cell.recipe),
                request.seeds,
            )

    def _by_recipe(self, job: TableJob) -> Training:
        files, overrides = job.recipe()
        # Encoders that it starts from may not be trained yet.
        placed = []
        for override in overrides:
            name, _, value = override.partition("=")
            placed.append(f"{name}={self.stand_ins.get(value, value)}")
        recipe = read_recipe(files, placed)
        # First, so that what starts from a faulty encoder is judged by itself.
        self._put_stand_in(job, recipe)
        corpus = recipe.corpus
        for pattern, find in (
            (corpus.mono, find_text),
            (corpus.parallel, find_pairs),
            (corpus.negatives, find_negatives),
        ):
            if pattern:
                find(pattern)
        bound = recipe.bound
        require_settings(**bound | {"evaluators": checked(recipe)})
        data, fsdp, _ = mesh_sizes(bound["mesh"], self.devices)
        batches = []
        for name, run in stages_of(recipe):
            batches.append(run.batches.shapes["input_ids"][0])
            check_shares(data, fsdp, batches[-1], bound["microbatches"], name)
        encoder = build_model(bound["model"])
        # A donor that is not trained yet has no parameters to compare.
        if placed == overrides:
            first_weights(bound.get("init_from"), bound["model"], encoder.abstract(), ())
        Feed(bound["objectives"], encoder, make_mesh(MeshConfig(data=1)), bound["microbatches"])
        return Training(job.name, max(batches), bound["steps"], training_flops(recipe))

    def _put_stand_in(self, job: TableJob, recipe: Recipe) -> None:
        """What a run tells of itself before it is trained, in a folder of its own."""
        if job.row or (job.folder / "run.json").is_file():
            return
        folder = self.scratch / job.folder.name
        folder.mkdir()
        model = dataclasses.asdict(recipe.bound["model"])
        languages = recipe.corpus.languages
        record = {"model": model, "identity": {"model": model}, "languages": languages}
        (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
        for name, content in recipe.corpus.vocabulary.files().items():
            (folder / name).write_bytes(content)
        self.stand_ins[str(job.folder)] = str(folder)


def show(plan: Plan) -> int:
    """Print the plan. The exit status: 1 where something is missing or wrong."""
    frame = pd.DataFrame(plan.trainings).rename(columns={"name": "training", "times": "seeds"})
    total = sum(one.times * one.flops for one in plan.trainings)
    text = html.render(
        "table_plan.txt",
        plan=plan,
        table=frame.to_string(index=False, formatters={"flops": "{:.2e}".format}),
        trainings=sum(one.times for one in plan.trainings),
        flops=total,
        hours=gpu_hours(total),
        peak=H100,
        share=UTILISATION,
    )
    print(text, end="")
    return int(bool(plan.faults))
