"""A recipe becomes a run: how every training starts, whichever verb or sweep asks for it."""

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.model import check_vocabulary
from xlingjax.config.recipe import Recipe
from xlingjax.data.batches.loader import BatchSource
from xlingjax.data.check.alignment import misaligned
from xlingjax.data.overlap import overlap_of_examples, overlap_of_texts
from xlingjax.data.rows import left_out
from xlingjax.errors import UserError
from xlingjax.inference.sentences import Sentences, kept_of, sentences_of
from xlingjax.model.build import build_model
from xlingjax.model.partition import abstract_params, make_mesh
from xlingjax.objectives.base import TokenObjective
from xlingjax.objectives.retrieval import SentencePairs
from xlingjax.report.build import build_report
from xlingjax.report.rows import first_rows
from xlingjax.report.run import read_run
from xlingjax.runtime.files import append_line, write_json
from xlingjax.runtime.machine import RuntimeConfig, give_back_memory, is_primary, start
from xlingjax.training.checkpoint_params import load_params
from xlingjax.training.checkpoint_paths import find_checkpoint, step_of
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.feed import in_stages
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.training.run_record import (
    DENSE_FILE,
    read_run_record,
    require_one_run,
    run_and_checkpoint,
    schedule_record,
    warn_of_changes,
)
from xlingjax.training.schedule import check
from xlingjax.training.stages import at, stage_name, starts
from xlingjax.training.tracker import finite, scalars


def launch(
    recipe: Recipe,
    workdir: str | Path,
    verb: str,
    machine: RuntimeConfig,
    until: float | None = None,
) -> int:
    """Trains what the recipe binds, or goes on with the run that stands in `workdir`. verb:
    "pretrain" or "finetune", which run.json keeps; until: see `train`. Returns the exit status.
    Raises UserError."""
    workdir = str(workdir)
    corpus = recipe.corpus
    evaluators = checked(recipe)
    record: dict[str, Any] = {
        "verb": verb,
        "vocabulary": os.path.abspath(corpus.vocabulary_path),
        "vocabulary_sha256": corpus.vocabulary.sha256,
    }
    # The report reads the run's folder alone, and the tables may lie elsewhere.
    if verb == "pretrain":
        record |= sentences_kept(workdir, recipe.bound.get("init_from"))
    record |= release_kept(recipe, workdir)
    record |= sentences_tuned(recipe.bound["objectives"], sentences_of(record) or Sentences())
    files = {"config.gin": recipe.config.encode(), **corpus.vocabulary.files()}
    if record.get("sentences", {}).get("dense"):
        folder, _ = _told_by(workdir, recipe.bound.get("init_from"))
        files[DENSE_FILE] = (folder / DENSE_FILE).read_bytes()
    objectives, opened = watched(recipe.bound["objectives"])
    result = recipe.plan(
        objectives=objectives,
        workdir=workdir,
        evaluators=evaluators,
        runtime=machine,
        until=until,
        extra_config=record,
        on_start=functools.partial(
            _begin, workdir, too_late(recipe), evaluators, opened, corpus.vocabulary
        ),
        write_page=functools.partial(build_report, workdir),
        # Written by `train` once it accepts the run: a refused start leaves finished files alone.
        files=files,
    )
    return result.exit_code


def ended(workdir: Path) -> bool:
    """Whether a run is whole: it has all its steps, or ended early or when its time was over."""
    if not (workdir / "result.json").is_file():
        return False
    return read_run(workdir).result.get("exit_reason") == "finished"


def checked(recipe: Recipe) -> list[Any]:
    """The evaluators of a recipe, which has passed what is refused before its text is read."""
    recipe.require_decay()
    corpus = recipe.corpus
    # A table of other size would give ids of one vocabulary the rows of another.
    check_vocabulary(recipe.bound["model"], corpus.vocabulary, corpus.vocabulary_path)
    # They read their files here: a missing one is told before the first step, not at an evaluation.
    return evaluators_of(recipe)


def evaluate(recipe: Recipe, workdir: str | Path, machine: RuntimeConfig) -> None:
    """Evaluates the newest checkpoint by the recipe, prints and logs it. Raises UserError."""
    start(machine)
    workdir = str(workdir)
    checkpoint = find_checkpoint(workdir)
    log = run_and_checkpoint(workdir)[0] / "evaluations.jsonl"
    warn_of_changes(log.parent, ("config.gin", "run.json"))
    # Before the work; `append_line` would tell it behind.
    if not os.access(log if log.exists() else log.parent, os.W_OK) or log.is_dir():
        raise UserError(f"{log} may not be written to; copy the run, and name the copy")
    evaluators = evaluators_of(recipe)
    if not evaluators:
        raise UserError("the recipe has nothing to evaluate: set HELDOUT_TEXT or HELDOUT_PAIRS")
    require_one_run({}, evaluators, recipe=dict(enumerate(recipe.config.splitlines(), 1)))
    # Not by `open_run`: the model and the mesh are those that the recipe binds.
    mesh = make_mesh(recipe.bound["mesh"])
    encoder = build_model(recipe.bound["model"], mesh)
    abstract = abstract_params(encoder, mesh)
    params, _ = load_params(checkpoint, abstract, vocabulary=recipe.corpus.vocabulary.sha256)
    # A folder of parameters alone has no step for its name.
    step = step_of(checkpoint.name) or 0
    for evaluator in evaluators:
        values = finite(evaluator(encoder, params, step, mesh))
        figures = []
        for name, value in scalars(values).items():
            figures.append(f"{name} {value:.4f}")
        if figures:
            print(f"step {step}: {evaluator.name}: {', '.join(figures)}")
        # All processes compute, and their folder is one.
        if is_primary():
            # As training writes them: a report reads both alike.
            entry = {"step": step, "name": evaluator.name, "values": values}
            line = json.dumps(entry, ensure_ascii=False)
            append_line(log, line)
    give_back_memory()


def evaluators_of(recipe: Recipe) -> list[Any]:
    evaluators = []
    for make in recipe.bound.get("evaluators", ()):
        evaluators += make()
    for one in evaluators:
        if not isinstance(one, Evaluator):
            kind = type(one).__name__
            raise UserError(f"train.evaluators: {kind} is no Evaluator: derive it from that class")
    return evaluators


def stages_of(recipe: Recipe) -> list[tuple[str, Any]]:
    """Every objective of a recipe at each of its stages, and what that is called."""
    stages = []
    for entry in recipe.bound["objectives"]:
        for step, run in in_stages(entry).items():
            stages.append((stage_name(run.objective.name, step), run))
    return stages


def too_late(recipe: Recipe) -> list[str]:
    """What of a recipe begins behind its last step, in words: it would not be trained."""
    steps = recipe.bound["steps"]
    found = []
    for stages in map(in_stages, recipe.bound["objectives"]):
        name, weight = stages[0].objective.name, stages[0].weight
        turn = min((step for step in starts([weight]) if at(weight, step) > 0), default=0)
        later = [step for step in stages if step >= steps]
        if turn >= steps:
            found.append(
                f"{name} has no turn: its weight is 0 before step {turn}, and the run ends at"
                f" {steps} (TRAIN_STEPS)"
            )
        elif later:
            found.append(
                f"{stage_name(name, min(later))} is not reached: the run ends at step {steps}"
                " (TRAIN_STEPS)"
            )
    return found


def planned_course(recipe: Recipe) -> dict[str, Any]:
    """What run.json would say of the run's schedule. Raises UserError where `train` would."""
    bound = recipe.bound
    weights = {}
    if not bound["objectives"]:
        raise UserError("a run needs objectives, and train.objectives is []")
    for entry in bound["objectives"]:
        first = in_stages(entry)[0]
        weights[first.objective.name] = first.weight
    mode = bound.get("schedule", "alternate")
    optimizer = bound.get("optimizer", OptimizerConfig())
    check([*weights.values()], mode, bound["steps"])
    return schedule_record(dict(stages_of(recipe)), weights, bound["steps"], mode, optimizer)


def watched(objectives: Sequence[Any]) -> tuple[list[Any], dict[str, tuple[Any, Any]]]:
    """The objectives of a run, and {stage: (objective, source)} of the sources as they are opened:
    their first batches can be looked at without reading the text again."""
    opened: dict[str, tuple[Any, Any]] = {}

    def watch(run: Any, start: int) -> Any:
        def opened_and_kept() -> Any:
            source = run.source()
            opened[stage_name(run.objective.name, start)] = (run.objective, source)
            return source

        # Opened when the training opens it: looking must not be the reason to read text.
        return dataclasses.replace(
            run, source=dataclasses.replace(run.batches, opener=opened_and_kept)
        )

    entries = []
    for entry in objectives:
        stages = {}
        for step, run in in_stages(entry).items():
            stages[step] = watch(run, step)
        entries.append(stages)
    return entries, opened


def _begin(
    workdir: str,
    late: Sequence[str],
    evaluators: Sequence[Evaluator],
    opened: Mapping[str, tuple[Any, BatchSource]],
    vocabulary: Any,
    say: Callable[[str], None],
) -> None:
    """What is written and said when the first step is done. late: see `too_late`."""
    for message in late:
        say(f"warning: {message}")
    held = [one for evaluator in evaluators for one in evaluator.held_out()]
    measured = [one for evaluator in evaluators for one in evaluator.examples()]
    texts = []
    trained: list[Any] = []
    for _, source in opened.values():
        texts += getattr(source, "texts", ())
        trained += getattr(source, "asked", ())
    seen = overlap_of_texts(held, texts, vocabulary) + overlap_of_examples(measured, trained)
    # Dev and test may be one file.
    for file, message in dict.fromkeys(seen):
        say(f"warning: {file}: {message}")
    for message in misaligned(texts):
        say(f"warning: {message}")
    for stage, (_, source) in opened.items():
        if message := left_out.message(stage, source):
            say(f"warning: {message}")
    first_report(workdir, opened, vocabulary)


def first_report(workdir: str, opened: Mapping[str, tuple[Any, Any]], vocabulary: Any) -> None:
    """The first report.html: schedule, setting, what is sampled, what the objectives read."""
    folder = Path(workdir)
    # A run that goes on has a fuller page already.
    if not (folder / "report.html").exists():
        write_json(folder / "rows.json", first_rows(opened, vocabulary))
        build_report(folder)


def sentences_kept(workdir: str, init_from: Any) -> dict[str, Any]:
    """{"sentences": how sentence vectors are made} of the run in `workdir`, if it goes on, else of
    the one that pretraining starts from; {}: it does not tell."""
    own = sentences_of(_told_by(workdir, init_from)[1])
    return {} if own is None else {"sentences": dataclasses.asdict(own)}


def release_kept(recipe: Recipe, workdir: str) -> dict[str, Any]:
    """{"released": what is known of the imported model that the run began from}, with a vocabulary
    head from now on if words are trained."""
    own = kept_of(_told_by(workdir, recipe.bound.get("init_from"))[1], "released")
    if not own:
        return {}
    words = any(isinstance(run.objective, TokenObjective) for _, run in stages_of(recipe))
    return {"released": own | {"vocabulary_head": own["vocabulary_head"] or words}}


def _told_by(workdir: str, init_from: Any) -> tuple[Path, Mapping[str, Any]]:
    """(folder, run.json) of the run itself, for what it once kept holds, else of its start."""
    # The mean of several runs has nothing of its own.
    for run in (workdir, *([init_from] if isinstance(init_from, str) else [])):
        folder = run_and_checkpoint(run)[0]
        if (folder / "run.json").is_file():
            return folder, read_run_record(folder)
    return Path(workdir), {}


def sentences_tuned(objectives: Iterable[Any], own: Sentences) -> dict[str, Any]:
    """{"sentences": how sentence vectors are made}, where the run trains them; {}: it does not.
    own: how its start makes them."""
    for stages in objectives:
        for run in in_stages(stages).values():
            objective = run.objective
            if isinstance(objective, SentencePairs):
                way = dataclasses.replace(
                    own,
                    layer=objective.layer,
                    pooling=objective.pooling,
                    prefix=run.batches.preprocessor.prefix,
                    normalize=own.normalize or getattr(objective, "normalize", False),
                    dense=own.dense if objective.dense else (),
                    unread="",
                )
                return {"sentences": dataclasses.asdict(way)}
    return {}
