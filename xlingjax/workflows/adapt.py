"""`xlingjax adapt`: a released model goes on learning on one's own text, and becomes a folder that
`AutoModel` opens.

Everything lies in one folder: `start` (the model as it came), `heldout`, `recipe.gin` (all that was
decided, to be read, changed and run again), `run`, `model` (the export), `adapted.json`. The same
command goes on where it was stopped.
"""

import contextlib
import dataclasses
import json
import math
import os
import re
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import bindings, read_recipe
from xlingjax.convert import import_model
from xlingjax.convert.export_model import export_model, require_exportable
from xlingjax.data.check import Findings, check
from xlingjax.data.held_out_pairs import PIVOT
from xlingjax.data.holdout import BLOCK, held_out_of
from xlingjax.data.sampling import Sampling, format_table
from xlingjax.data.sources import Pair, Text, find_pairs, find_text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import Stopped, UserError
from xlingjax.inference.run import open_run
from xlingjax.inference.sentences import sentences_of
from xlingjax.model import memory
from xlingjax.model.config import ModelConfig
from xlingjax.model.partition import make_mesh
from xlingjax.report.run import Run, read_run
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.training.checkpoint import find_checkpoint
from xlingjax.training.run_record import read_run_record, run_and_checkpoint
from xlingjax.training.workdir import require_empty, whole, write_workdir
from xlingjax.workflows.launch import evaluate, launch

# What --objectives knows: the gin names that a file of gin/objectives makes.
OBJECTIVES = {
    **{name: (name,) for name in ("mlm", "tlm", "camlm", "btmlm", "clwr", "clpc")},
    "veco": ("veco_text", "veco"),
}
ADDING = ("clwr", "clpc", "veco")
"""Those with parameters that a released model has not."""
OF_TEXT = ("mlm", "btmlm", "veco_text")
HELDOUT_LINES = 200
"""Wanted of the smallest text; at most a tenth of it."""
SAFE_SECONDS = 1200
"""Of training that a lost machine costs at most."""
CHUNK = 1024
TOLD = "adapted.json"
TRIAL_TURNS = 6
EVALUATIONS = 5


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
    files: tuple[str, ...]
    overrides: tuple[str, ...]

    def __post_init__(self):
        for name in self.objectives:
            if name not in OBJECTIVES:
                raise UserError(f"--objectives {name}: there are {', '.join(OBJECTIVES)}")
            if name != "mlm" and not self.parallel:
                raise UserError(
                    f"--objectives {name} needs pairs: give --parallel, or leave {name} out"
                )
        if len({*self.objectives}) != len(self.objectives) or not self.objectives:
            raise UserError("--objectives: name each once, and at least one")
        if (self.hours is None) == (self.steps is None):
            raise UserError("give --hours or --steps: how long may it take?")
        if self.hours is not None and not self.hours > 0:
            raise UserError(f"--hours {self.hours} must be above 0")
        for option, macro in (("batch", "BATCH"), ("length", "LENGTH"), ("steps", "TRAIN_STEPS")):
            if macro in self.given:
                raise UserError(
                    f"--gin.{macro}: give --{option} instead, from which the memory is planned"
                )
        for pattern in map(_absolute, (*self.mono, *self.parallel)):
            if set(pattern) & set(" ,"):
                raise UserError(
                    f"{pattern!r}: a recipe separates patterns by spaces and commas; rename the"
                    " path"
                )

    @property
    def given(self) -> dict[str, str]:
        """{macro: value} of --gin."""
        return dict(override.split("=", 1) for override in self.overrides)

    @property
    def text(self) -> tuple[str, ...]:
        """Monolingual text; the sides of the pairs where there is no other."""
        return self.mono or self.parallel


def adapt(
    request: Request,
    output: str,
    machine: RuntimeConfig,
    verify: bool = True,
    language: str = "",
    licence: str = "",
    base: str = "",
) -> int:
    """The exit status: 0 done; that of the training where it was asked to stop. verify, language,
    licence, base: of `export_model`. Raises UserError."""
    folder = Path(output).absolute()
    if set(str(folder)) & set(" ,"):
        raise UserError(
            f"--to {folder}: a recipe separates paths by spaces and commas; give another"
        )
    stand_ins = ["INIT_FROM=start", "VOCABULARY=start", "MONO=text"]
    bound = bindings([*_files(request), *request.files], [*stand_ins, *request.overrides])
    record = _begun(request, folder, bound)
    export = {
        "--unverified": not verify,
        "--language": language,
        "--license": licence,
        "--base": base,
    }
    if (folder / "model").is_dir() and (
        differing := _differing(record.get("export", export), export)
    ):
        raise UserError(
            f"{folder / 'model'} was written with {differing}; another one: xlingjax export --from"
            f" {folder / 'run'} --to DIR, with the new options"
        )
    if "settings" not in record:
        record |= _prepare(
            request, folder, machine, lambda start: require_exportable(start, verify, language)
        )
        record["bound"] = bound
        write_json(folder / TOLD, record)
    recipe = read_recipe([str(folder / "recipe.gin")], ())
    if status := launch(recipe, folder / "run", "pretrain", machine):
        return status
    record["before_after"] = compared(read_run(folder / "start"), read_run(folder / "run"))
    if not (folder / "model").is_dir():
        record["export"] = export
    write_json(folder / TOLD, record)
    print(
        table(record["before_after"])
        if record["before_after"]
        else "nothing was measured: no text was held out"
    )
    if not (folder / "model").is_dir():
        told = {"name": folder.name, "before_after": record["before_after"]}
        of_hub = (
            not Path(request.source).exists()
            and not (run_and_checkpoint(request.source)[0] / "run.json").is_file()
        )
        base = base or (request.source if of_hub else "")
        print(
            export_model(
                str(folder / "run"), str(folder / "model"), verify, language, licence, base, **told
            )
        )
    print(
        f"{folder / 'model'} opens with AutoModel; {folder / 'run' / 'report.html'} shows the run;"
        f" to train it again: xlingjax pretrain --gin_file {folder / 'recipe.gin'} --workdir DIR"
    )
    return 0


def _begun(request: Request, folder: Path, bound: Mapping[str, str]) -> dict[str, Any]:
    """adapted.json of the folder, which is new, or was begun with the same options and gin files
    that bind the same."""
    plain = json.loads(json.dumps(dataclasses.asdict(request)))
    if (folder / TOLD).is_file():
        record = json.loads((folder / TOLD).read_text(encoding="utf-8"))
        if "settings" not in record:  # nothing was decided yet
            return {"asked": plain}
        files = ("files", "overrides") if "bound" in record else ()  # then what they bind says more
        then, now = (
            {
                "--from" if name == "source" else f"--{name}": value
                for name, value in each.items()
                if name not in files
            }
            for each in (record["asked"], plain)
        )
        if differing := _differing(then | record.get("bound", {}), now | (bound if files else {})):
            raise UserError(
                f"{folder} was begun with {differing}; give the old to go on, or another --to"
            )
        return record
    require_empty(str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    record = {"asked": plain}
    write_json(folder / TOLD, record)
    return record


def _differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The options and names of gin that differ, with both values, in one line."""

    def said(value: Any) -> str:
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        return "nothing" if value in (None, "", []) else text

    found = [
        f"{name} {said(then.get(name))}, now {said(now.get(name))}"
        for name in {**then, **now}
        if then.get(name) != now.get(name)
    ]
    return "; ".join(found[:4]) + (f" (and {len(found) - 4} more)" if len(found) > 4 else "")


# ---- what is decided before ----------------------------------------------------------------------


def _prepare(
    request: Request, folder: Path, machine: RuntimeConfig, check_start: Callable[[str], None]
) -> dict[str, Any]:
    """Everything that the training needs, and what it begins from measured."""
    _check_paths(request)
    for name in ("start", "heldout", "trial"):  # of a preparation that was stopped
        shutil.rmtree(folder / name, ignore_errors=True)
    start = folder / "start"
    _first_model(request.source, start)
    check_start(str(start))
    config, vocabulary = ModelConfig(**read_run_record(start)["model"]), Vocabulary.load(start)
    if request.length > (room := config.max_positions - config.position_offset):
        raise UserError(
            f"--length {request.length}: the model has {room} positions; give at most so many"
        )
    found = _checked(request, vocabulary)
    share = _heldout_shares(found, request)
    held = write_heldout(request.text, request.parallel, share, folder / "heldout")
    print(
        "held out:"
        f" {', '.join(f'{name} {lines} lines' for name, lines in held.items()) or 'nothing'}"
    )
    _say_unmeasured(found, held, share)
    values = _settings(request, config, start, held)
    recipe = folder / "recipe.gin"
    recipe.write_text(_recipe(request, values, share), encoding="utf-8")
    values["MICROBATCHES"] = _microbatches(request, read_recipe([str(recipe)], ()).bound)
    recipe.write_text(_recipe(request, values, share), encoding="utf-8")

    began = time.monotonic()
    first = folder / "before.gin"  # without the parameters that only some objectives have
    plain = tuple(name for name in request.objectives if name not in ADDING) or ("mlm",)
    first.write_text(
        _recipe(dataclasses.replace(request, objectives=plain), values, share), encoding="utf-8"
    )
    if measured := bool(
        held
        or request.gold
        or {"HELDOUT_TEXT", "HELDOUT_PAIRS", "HELDOUT_ALIGNMENTS"} & {*request.given}
    ):
        print("before:", flush=True)
        evaluate(read_recipe([str(first)], ()), start, machine)
    first.unlink()
    speed = {"seconds_per_evaluation": time.monotonic() - began}
    if not (steps := request.steps):
        speed |= _trial(request, folder, machine)
        steps = _steps_within(request.hours, speed)
        print(
            f"measured in a trial: {speed['tokens_per_second']:,.0f} tokens/s,"
            f" {speed['seconds_per_step']:.3g} s a step, {speed['peak_memory_bytes'] / 1e9:.2f} GB;"
            f" {speed['seconds_per_evaluation']:.0f} s an evaluation; {request.hours:g} hours are"
            f" {steps:,} steps"
        )
    for name, lines in found.tables.items():
        print(
            f"{name}, epochs of all steps on"
            f" it:\n{format_table(lines, _steps_of(name, request.objectives, steps))}"
        )
    often = -(-steps // EVALUATIONS)
    saved = min(1000, often, int(SAFE_SECONDS / speed.get("seconds_per_step", 0.1)) + 1)
    values |= {
        "TRAIN_STEPS": steps,
        "WARMUP_STEPS": steps // 16,
        "EVAL_EVERY": often * measured,
        "CHECKPOINT_EVERY": saved,
    }
    recipe.write_text(_recipe(request, values, share), encoding="utf-8")
    return {"speed": speed, "settings": values, "held_out_share": share}


def _check_paths(request: Request) -> None:
    """Raise UserError for what is not there, before the model is fetched."""
    if not request.mono and (
        tables := [name for name in request.parallel if name.endswith((".tsv", ".jsonl"))]
    ):
        raise UserError(
            f"--parallel {tables[0]}: the sides of a table are not read as text; give --mono too"
        )
    texts, pairs = find_text(request.text), find_pairs(request.parallel) if request.parallel else []
    missing = {code for pair in pairs for code in pair.languages} - {
        text.language for text in texts
    }
    if missing and not request.mono:
        raise UserError(
            f"--parallel names one side of its pairs, and the text of {', '.join(sorted(missing))}"
            " would be left out: name both ('pairs/de-en.*'), or give --mono"
        )
    if request.gold and not Path(request.gold).is_dir():
        raise UserError(f"--gold {request.gold}: no such folder")


def _first_model(source: str, start: Path) -> None:
    """The workdir `start` with the model `source`: a run of ours, or one of Hugging Face, which is
    imported."""
    if (run_and_checkpoint(source)[0] / "run.json").is_file():
        step = find_checkpoint(source).name
        write_workdir(source, str(start), step, open_run(source).params, "adapt", {})
        print(f"{start}: checkpoint {step} of {source}")
        return
    found = import_model.found(source)
    if found.is_file():
        raise UserError(
            f"--from {source}: run `xlingjax import --from {source} --to RUN --unverified`, then"
            " --from RUN"
        )
    made = Path(import_model.imported(str(found)))  # once for every folder to adapt in
    with whole(str(start)) as partial:
        shutil.copytree(made, partial, copy_function=_same_file, dirs_exist_ok=True)
    print(f"{start}: the import in {made}")


def _same_file(source: str, target: str) -> None:
    """A checkpoint is not written to again, so it need not stand on the disk twice."""
    with contextlib.suppress(OSError):  # another disk, or one that has no links
        if "checkpoints" in Path(source).parts:
            return os.link(source, target)
    shutil.copy2(source, target)


def _checked(request: Request, vocabulary: Vocabulary) -> Findings:
    sampling = Sampling(alpha=float(request.given.get("ALPHA", 0.7)))
    found = check(
        request.text,
        request.parallel,
        vocabulary,
        batch=request.batch,
        length=request.length,
        sampling=sampling,
    )
    print(found.text())
    if found.errors:
        raise UserError(
            f"the text has {found.errors} errors (above): repair them first; `xlingjax data check`"
            " shows all"
        )
    return found


def _heldout_shares(found: Findings, request: Request) -> dict[str, float]:
    """{"text", "pairs": share}: one for both where they are the same files, so that no line is on
    both sides."""
    smallest = {
        name: min(row["sentences"] for row in rows) for name, rows in found.tables.items() if rows
    }
    if not request.mono:
        smallest = dict.fromkeys(("text", "pairs"), min(smallest.values()))
    return {
        name: min(0.1, HELDOUT_LINES / max(smallest.get(name, 1), 1)) for name in ("text", "pairs")
    }


def _say_unmeasured(found: Findings, held: Mapping[str, int], share: Mapping[str, float]) -> None:
    """Of which texts, and pairs with English, nothing is held out."""
    measured = [{*name.rpartition(".")[0].split("-")} for name in held]
    for kind, macro in (("text", "HELDOUT_TEXT='xx=FILE'"), ("pairs", "HELDOUT_PAIRS=DIR")):
        names = [
            row["name"]
            for row in found.tables.get(kind, ())
            if kind == "text" or {PIVOT} < {*row["name"].split("-")}
        ]
        if without := [name for name in names if {*name.split("-")} not in measured]:
            print(
                f"not measured: {', '.join(without)}: a share of {share[kind]:.2%} takes nothing of"
                f" less than about {math.ceil(BLOCK / share[kind])} lines; give more, or lines"
                f" apart: --gin.{macro}"
            )


def write_heldout(
    mono: Sequence[str], parallel: Sequence[str], share: Mapping[str, float], folder: Path
) -> dict[str, int]:
    """Writes the lines that objectives with such a `holdout` leave out: `text/XX.txt`, and of pairs
    with English `pairs/XX-en.XX` beside `.en`. Returns {file: lines}; of a text too short for the
    share there is none.
    """
    texts: dict[str, list[Text]] = {}
    pairs: dict[tuple[str, ...], list[Pair]] = {}
    for text in find_text(mono):
        texts.setdefault(text.language, []).append(text)
    for pair in find_pairs(parallel) if parallel else ():
        if PIVOT in pair.languages and pair.translates:
            pairs.setdefault(pair.languages, []).append(pair)
    written = {}

    def write(path: Path, lines: Sequence[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        written[path.name] = len(lines)

    for language, files in texts.items():
        if any(lines := _held(files, share["text"])):
            write(folder / "text" / f"{language}.txt", lines)
    for languages, files in pairs.items():
        if lines := [line for line in _held(files, share["pairs"]) if all(line)]:
            (other,) = {*languages} - {PIVOT}
            for code, side in zip(languages, zip(*lines, strict=True), strict=True):
                write(folder / "pairs" / f"{other}-{PIVOT}.{code}", side)
    return written


def _held(files: Sequence[Any], share: float) -> list[Any]:
    masks = held_out_of(files, [sum(1 for _ in file.lines()) for file in files], share)
    kept = zip(files, masks, strict=True)
    return [
        line for file, mask in kept for keep, line in zip(mask, file.lines(), strict=True) if keep
    ]


def _settings(
    request: Request, config: ModelConfig, start: Path, held: Mapping[str, int]
) -> dict[str, Any]:
    """{macro: value}."""
    import jax

    cpu = jax.default_backend() == "cpu"
    heldout = start.parent / "heldout"
    texts = [name.removesuffix(".txt") for name in held if name.endswith(".txt")]
    values = {
        "INIT_FROM": str(start),
        "VOCABULARY": str(start),
        "MONO": " ".join(map(_absolute, request.text)),
        "PARALLEL": " ".join(map(_absolute, request.parallel)) or None,
        "BATCH": request.batch,
        "LENGTH": request.length,
        "MICROBATCHES": 1,
        "LOSS_CHUNK": CHUNK,
        "DTYPE": "float32" if cpu else "bfloat16",
        "UNROLL": 0 if cpu else 1,
        "TRAIN_STEPS": request.steps or 1000,
        "WARMUP_STEPS": 10,
        "EVAL_EVERY": 0,
        "HELDOUT_TEXT": " ".join(f"{code}={heldout / 'text' / code}.txt" for code in texts) or None,
        "HELDOUT_PAIRS": str(heldout / "pairs") if (heldout / "pairs").is_dir() else None,
        "PROBE_PAIRS": 1000,
        "HELDOUT_ALIGNMENTS": request.gold and str(Path(request.gold).absolute()),
    }
    if config.has_languages:
        values["LANGUAGES"] = " ".join(read_run_record(start)["languages"])
    return values


def _microbatches(request: Request, bound: Mapping[str, Any]) -> int:
    """How many a batch is cut into, so that what the recipe binds fits the devices."""
    config, mesh, slots = bound["model"], make_mesh(bound["mesh"]), -(-request.length // 5)
    parts = memory.microbatches_for(config, mesh, request.batch, request.length, slots, CHUNK)
    rows = request.batch // memory.row_devices(mesh) // parts
    print(
        f"memory of a device, {rows} rows of {request.length} tokens at a time ({parts}"
        " microbatches):"
    )
    print(memory.table(memory.estimate(config, rows, request.length, slots, CHUNK, mesh)))
    return parts


def _absolute(pattern: str) -> str:
    """So that the recipe is read from anywhere. pattern: as on the command line, "de=text/x*.txt"
    too."""
    named = re.fullmatch(r"([A-Za-z]{2,3}(?:[_-][A-Za-z]+)*=)?(.+)", pattern)
    return f"{named[1] or ''}{Path(named[2]).expanduser().absolute()}"


def _recipe(request: Request, values: Mapping[str, Any], share: Mapping[str, float]) -> str:
    names = [name for objective in request.objectives for name in OBJECTIVES[objective]]
    lines = ["# Written by `xlingjax adapt`: all that it decided."]
    lines += [f'include "{file}"' for file in _files(request)]
    lines += [
        f"train.objectives = [{', '.join(f'@{name}()' for name in names)}]",
        'train.schedule = "alternate"',
        "",
    ]
    lines += [f"{macro} = {value!r}" for macro, value in values.items()]
    of = {name: share["text" if name in OF_TEXT else "pairs"] for name in names}
    lines += [f"{name}.holdout = {of[name]!r}  # the lines of heldout/" for name in names]
    if (own := sentences_of(read_run_record(values["INIT_FROM"]))) and own.pooling:
        lines += [f"retrieval.poolings = ({own.pooling!r},)", f"retrieval.prefix = {own.prefix!r}"]
    lines += [f'include "{Path(file).absolute()}"' for file in request.files]
    lines += [override.replace("=", " = ", 1) for override in request.overrides]
    return "\n".join(lines) + "\n"


def _files(request: Request) -> list[str]:
    return [
        "recipes/adapt.gin",
        *(f"objectives/{name}.gin" for name in request.objectives if name != "mlm"),
    ]


def _trial(request: Request, folder: Path, machine: RuntimeConfig) -> dict[str, float]:
    """{"seconds_per_step", "tokens_per_second", "peak_memory_bytes"} of a few steps."""
    count = sum(len(OBJECTIVES[name]) for name in request.objectives)
    short: dict[str, Any] = {
        "TRAIN_STEPS": TRIAL_TURNS * count,
        "LOG_EVERY": 1,
        "CHECKPOINT_EVERY": 0,
    }
    short |= {"WARMUP_STEPS": 0, "train.evaluators": "[]"}
    short |= {
        name: 0 for name in ("EMBEDDINGS_ONLY", "FIRST_PHASE") if name in request.given
    }  # steps of all parameters
    overrides = [f"{name}={value}" for name, value in short.items()]
    trial = folder / "trial"
    if launch(read_recipe([str(folder / "recipe.gin")], overrides), trial, "pretrain", machine):
        raise Stopped("stopped while it was prepared; the same command begins again")
    run = read_run(trial)
    shutil.rmtree(trial)
    ends = [(0, 0.0, 0)] + sorted(
        {(line["step"], line["seconds"], line["tokens_seen"]) for line in run.metrics}
    )
    steps = [(b[1] - a[1], b[2] - a[2]) for a, b in pairwise(ends)][
        2 * count :
    ]  # the first are slower
    seconds = [
        statistics.median(steps[i::count][j][0] for j in range(len(steps[i::count])))
        for i in range(count)
    ]
    tokens = sum(tokens for _, tokens in steps) / len(steps)
    per_step = statistics.mean(seconds)
    return {
        "seconds_per_step": per_step, "tokens_per_second": tokens / per_step,
        "peak_memory_bytes": run.result["peak_memory_bytes"],
        "seconds_to_compile": sum(run.result["compile_seconds"].values()),
    }  # fmt: skip


def _steps_within(hours: float, speed: Mapping[str, float]) -> int:
    left = (
        3600 * hours - EVALUATIONS * speed["seconds_per_evaluation"] - speed["seconds_to_compile"]
    )
    steps = int(left / speed["seconds_per_step"])
    if steps < 1:
        raise UserError(
            f"--hours {hours:g} is too little: {EVALUATIONS} evaluations take"
            f" {EVALUATIONS * speed['seconds_per_evaluation']:.0f} s, compiling"
            f" {speed['seconds_to_compile']:.0f} s, a step {speed['seconds_per_step']:.3g} s; give"
            " more, or fewer objectives"
        )
    return steps


def _steps_of(table: str, objectives: Sequence[str], steps: int) -> int:
    """How many of the steps read this table's texts: objectives take turns."""
    names = [name for objective in objectives for name in OBJECTIVES[objective]]
    reading = sum(name not in OF_TEXT for name in names)
    return steps * (reading if table == "pairs" else len(names) - reading) // len(names)


# ---- what came of it -----------------------------------------------------------------------------


def compared(before: Run, after: Run) -> list[dict[str, Any]]:
    """Rows {"figure", "before", "after"} of the last measurements of both."""
    figures = [_figures(run) for run in (before, after)]
    return [
        {"figure": name, "before": figures[0].get(name), "after": value}
        for name, value in figures[1].items()
    ]


def _figures(run: Run) -> dict[str, float]:
    found: dict[str, float] = {}
    if values := run.last("perplexity"):
        by_language = dict(sorted(values["by_language"].items()))
        found |= {f"perplexity {code}": value for code, value in by_language.items()}
        found["perplexity, mean"] = values["mean"]
    if values := run.last("translation_perplexity"):
        found["perplexity beside the translation, mean"] = values["visible_mean"]
    if values := run.last("retrieval"):
        found["retrieval en to xx, mean, best layer"] = values["retrieval_mean"]
        found["the same, each language's mean subtracted"] = values["retrieval_mean_centred"]
    if values := run.last("alignment"):
        found["alignment error rate"] = values["alignment_error"]
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Before and after, for the terminal."""
    lines = [f"{'':<44}{'before':>12}{'after':>12}"]
    for row in rows:
        before = "" if row["before"] is None else f"{row['before']:.4f}"
        lines.append(f"{row['figure']:<44}{before:>12}{row['after']:>12.4f}")
    return "\n".join(lines)
