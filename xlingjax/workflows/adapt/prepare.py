"""What `xlingjax adapt` does before training: the first model, its figures, text, recipe."""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax

from xlingjax.config.recipe import read_recipe
from xlingjax.convert import import_model
from xlingjax.data.check import Findings, check
from xlingjax.data.sampling import Sampling, format_table
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.inference.run import open_run
from xlingjax.inference.sentences import sentences_of, width_of
from xlingjax.model.config import ModelConfig
from xlingjax.model.partition import make_mesh, row_devices
from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures
from xlingjax.report import html
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.run_record import model_of, read_run_record
from xlingjax.training.workdir import whole, write_workdir
from xlingjax.workflows.adapt.held_out import first_lines, heldout_shares, write_heldout
from xlingjax.workflows.adapt.request import Request, absolute, is_run
from xlingjax.workflows.adapt.trial import described, measured, steps_within
from xlingjax.workflows.files.encode import encode
from xlingjax.workflows.launch import evaluate
from xlingjax.workflows.plan.programs import HERE, answer

CHUNK = 1024  # predicted tokens whose logits are in memory: vocabularies are large
EVALUATIONS = 5  # of the whole training, at most
SURE = 0.97  # of the hours: the program must begin and end, too
WRITING, MEASURING, TRIAL = 0.15, 0.1, 0.1  # shares of the hours
FEWEST = 64  # lines of a file that is measured on, where there are so many
SAFE_SECONDS = 1200  # of training that a lost machine costs at most
_HELDOUT = ("HELDOUT_TEXT", "HELDOUT_PAIRS", "HELDOUT_ALIGNMENTS")


def prepare(
    request: Request,
    folder: Path,
    machine: RuntimeConfig,
    verify: bool,
    check_start: Callable[[str], None],
) -> dict:
    """Everything that the training needs, and what it begins from measured. verify: compares what
    is imported with transformers; check_start: raises UserError for a first model that cannot be
    exported. Raises UserError."""
    began = time.monotonic()
    seconds = SURE * 3600 * (request.hours or 0)
    _check_paths(request)
    # Of a preparation that was stopped.
    for name in ("start", "heldout", "trial", "teacher"):
        shutil.rmtree(folder / name, ignore_errors=True)
    start = folder / "start"
    first_model(request.source, start, verify)
    check_start(str(start))
    # To be written and compared as it was read; where that was not now, a share.
    exporting = max(time.monotonic() - began, min(60, WRITING * seconds))
    config = model_of(start)
    if config.decoder_layers and not config.tied_self_attention:
        raise UserError(
            f"{request.source} is an encoder-decoder, and adapt goes on with encoders: train it by"
            " `xlingjax pretrain` or `finetune`, with INIT_FROM"
        )
    vocabulary = Vocabulary.load(start)
    # XLM-R's positions begin at 2: two rows of its table hold no token.
    room = config.max_positions - config.position_offset
    if request.length > room:
        raise UserError(
            f"--length {request.length}: the model has {room} positions; give at most so many"
        )
    findings = _checked(request, vocabulary)
    share = heldout_shares(findings, request)
    held = write_heldout(request.text, request.parallel, share, folder / "heldout")
    counts = ", ".join(f"{name} {lines} lines" for name, lines in held.items())
    print(f"held out: {counts or 'nothing'}")

    if request.taught_by:
        _taught(request, request.taught_by, start, folder / "teacher", verify)

    # Written three times: first to be read for the memory, then with the microbatches for the
    # trial, at last with the steps that the trial allows.
    values = settings(request, config, start, held)
    recipe = folder / "recipe.gin"
    recipe.write_text(recipe_text(request, values, share), encoding="utf-8")
    # The memory is planned for what the recipe binds, gin files of the command line among it.
    values["MICROBATCHES"] = _microbatches(request, recipe)
    recipe.write_text(recipe_text(request, values, share), encoding="utf-8")

    any_held_out = bool(held or request.gold or any(name in request.given for name in _HELDOUT))
    evaluating = _measure_start(request, values, share, any_held_out, machine, seconds)
    speed = {"seconds_per_evaluation": evaluating}
    # The number of steps is given, or is what fits into the hours at the speed that a trial shows.
    steps, evaluations = request.steps, EVALUATIONS
    training = 0.0
    if not steps:
        until = time.monotonic() + TRIAL * seconds
        given = [str(recipe)], (), folder / "trial", machine, False, until
        speed |= measured(*given)
        training = seconds - exporting - (time.monotonic() - began)
        steps, evaluations = steps_within(training, speed, EVALUATIONS)
        print(
            f"{described(speed)}; of {request.hours:g} hours {max(training, 0):.0f} s are left:"
            f" {steps:,} steps, {evaluations} evaluations",
            flush=True,
        )
    for kind, rows in findings.tables.items():
        # The recipe alternates, each objective as often as the others.
        turns = [request.text_of(name) for name in request.names]
        shown = format_table(rows, steps * turns.count(kind) // len(turns))
        print(f"{kind}, epochs of all steps on it:\n{shown}")
    often = -(-steps // evaluations)
    # Without a trial, where --steps is given, the speed is not known.
    safe_steps = int(SAFE_SECONDS / speed.get("seconds_per_step", 0.1)) + 1
    values |= {
        "TRAIN_STEPS": steps,
        "WARMUP_STEPS": steps // 16,
        "EVAL_EVERY": often * any_held_out,
        "CHECKPOINT_EVERY": min(1000, often, safe_steps),
    }
    recipe.write_text(recipe_text(request, values, share), encoding="utf-8")
    record = {"speed": speed, "settings": values, "held_out_share": share}
    return record | {"training_seconds": training - evaluating}


def _check_paths(request: Request) -> None:
    """Raise UserError for what is not there, before the model is fetched."""
    if not request.mono:
        for name in request.parallel:
            # A line of a table is no sentence of one language.
            if name.endswith((".tsv", ".jsonl")):
                raise UserError(
                    f"--parallel {name}: the sides of a table are not read as text; give --mono too"
                )
    present = {text.language for text in find_text(request.text)}
    paired = set()
    if request.parallel:
        for pair in find_pairs(request.parallel):
            paired.update(pair.languages)
    missing = sorted(paired - present)
    if missing and not request.mono:
        raise UserError(
            f"--parallel names one side of its pairs, and the text of {', '.join(missing)}"
            " would be left out: name both ('pairs/de-en.*'), or give --mono"
        )
    if request.gold and not Path(request.gold).is_dir():
        raise UserError(f"--gold {request.gold}: no such folder")


def _taught(request: Request, teacher: str, start: Path, folder: Path, verify: bool) -> None:
    """Writes the teacher's texts, `lines.txt`, and their vectors, `vectors.npy`: of each pair the
    side in the one language that all pairs share, English where they share two. Raises
    UserError."""
    pairs = find_pairs(request.parallel)
    shared = set.intersection(*(set(pair.languages) for pair in pairs))
    language = "en" if "en" in shared else min(shared, default="")
    if not language or ("en" not in shared and len(shared) > 1):
        names = ", ".join(sorted({"-".join(pair.languages) for pair in pairs}))
        raise UserError(
            f"distillation: the teacher reads the language that all pairs share, English where they"
            f" share two, and the pairs are {names}; name others, or --objectives hardest_negative"
        )
    run = teacher
    if teacher == request.source:
        run = start
    elif not is_run(teacher):
        run = import_model.imported(str(import_model.located(teacher)), verify)
    # Before the vectors of what may be millions of lines.
    theirs, ours = width_of(run), width_of(start)
    if theirs != ours:
        raise UserError(
            f"--teacher {teacher}: its vectors have {theirs} numbers, and those of the model"
            f" {ours}; choose a teacher of as many"
        )
    lines = {}
    for pair in pairs:
        (side,) = [side for side in pair.sides if side.language == language]
        lines |= dict.fromkeys(filter(None, side.lines()))
    folder.mkdir()
    text = folder / "lines.txt"
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    print(f"the teacher's vectors of {len(lines):,} lines in {language}:", flush=True)
    print(encode(str(run), str(text), language, str(folder / "vectors.npy")), flush=True)


def first_model(source: str, start: Path, verify: bool = True) -> None:
    """The workdir `start` with the model `source`: a run of ours, or one of Hugging Face, which is
    imported. Raises UserError for a file of another program."""
    if is_run(source):
        # A copy: the folder keeps the model as it came, whatever becomes of the run.
        step = find_checkpoint(source).name
        write_workdir(source, str(start), step, open_run(source).params, "adapt", {})
        print(f"{start}: checkpoint {step} of {source}")
        return
    files = import_model.located(source)
    if files.is_file():
        raise UserError(
            f"{source} is a file: run `xlingjax import {source} --to RUN --unverified`, then adapt"
            " RUN"
        )
    # Imported once, and kept for every folder that adapts this model.
    imported = Path(import_model.imported(str(files), verify))
    # A copy that was cut short must not pass for the model.
    with whole(str(start)) as partial:
        shutil.copytree(imported, partial, dirs_exist_ok=True)
    print(f"{start}: the import in {imported}")


def _checked(request: Request, vocabulary: Vocabulary) -> Findings:
    """What `xlingjax data check` finds in the text. Raises UserError where it has errors."""
    sampling = Sampling()
    # A schedule or None has no one share to show.
    with contextlib.suppress(ValueError):
        sampling = Sampling(alpha=float(request.given.get("ALPHA", 0.7)))
    findings = check(
        request.text,
        request.parallel,
        vocabulary,
        readers=(MlmFeatures(), TlmFeatures()),
        batch=request.batch,
        length=request.length,
        sampling=sampling,
    )
    print(findings.text())
    if findings.errors:
        raise UserError(
            f"the text has {findings.errors} errors (above): repair them first; `xlingjax data"
            " check` shows all"
        )
    return findings


def _microbatches(request: Request, recipe: Path) -> int:
    """The fewest that a batch can be cut into, so that the compiled steps of the recipe fit the
    devices. Raises UserError where one row a device is too much."""
    files = [str(recipe)]
    rows = request.batch // row_devices(make_mesh(read_recipe(files, ()).bound["mesh"])) or 1
    # Microbatches are equal, or a step would be compiled for two sizes.
    for parts in (n for n in range(1, rows + 1) if not rows % n):
        # A loop over the layers is compiled soonest; the number of steps is not decided yet.
        plan = answer(files, [f"MICROBATCHES={parts}", "UNROLL=1", "WARMUP_STEPS=0"], HERE)
        if all(not one["error"] and one["peak"] <= plan["room"] for one in plan["programs"]):
            break
    else:
        raise UserError(
            "one row of each objective on a device needs more memory than it has; shorten the rows"
            " (--length), or train a smaller model"
        )
    needed = max((one["peak"] for one in plan["programs"]), default=0)
    print(
        f"{needed / 1e9:.2f} GB of a device's {plan['room'] / 1e9:.2f}: {rows // parts} rows of"
        f" {request.length} tokens at a time ({parts} microbatches)"
    )
    return parts


def _measure_start(
    request: Request,
    values: Mapping,
    share: Mapping[str, float],
    any_held_out: bool,
    machine: RuntimeConfig,
    seconds: float,
) -> float:
    """Measures the first model, where anything is measured; the seconds that this took. seconds:
    of all that is to be done; 0: as many as it takes. Of held-out lines so many stay as are
    measured within a share of it."""
    start = Path(values["INIT_FROM"])
    # The first model lacks the parameters that only some objectives have.
    plain = tuple(name for name in request.objectives if not request.adds(name))
    # MLM, in the base recipe, adds nothing: it stands in where every objective adds something.
    without_added = dataclasses.replace(request, objectives=plain or ("mlm",))
    recipe = start.parent / "before.gin"
    recipe.write_text(recipe_text(without_added, values, share, True), encoding="utf-8")
    held = {path: path.read_bytes() for path in (start.parent / "heldout").glob("*/*")}
    longest = max((content.count(b"\n") for content in held.values()), default=0)
    evaluating = 0.0
    lines = FEWEST if seconds else longest
    while any_held_out:
        for path, content in held.items():
            path.write_bytes(first_lines(content, lines))
        print(f"before, on {min(lines, longest)} lines of each file that is held out:", flush=True)
        began = time.monotonic()
        evaluate(read_recipe([str(recipe)], ()), start, machine)
        evaluating = time.monotonic() - began
        # The first time programs are compiled, too.
        if lines >= longest or 4 * evaluating > MEASURING * seconds:
            break
        lines *= 4
    recipe.unlink()
    return evaluating


def settings(request: Request, config: ModelConfig, start: Path, held: Mapping[str, int]) -> dict:
    """{macro: value} before the training is planned. held: {file: lines} of what is held out."""
    # Accelerators multiply bfloat16 fastest, CPUs float32.
    dtype = "bfloat16"
    unroll = 1  # layers of a step of the scan: compiled soonest
    if jax.default_backend() == "cpu":
        dtype = "float32"
        unroll = 0  # all layers, which is faster there
    heldout = start.parent / "heldout"
    texts = []
    for name in held:
        if name.endswith(".txt"):
            code = name.removesuffix(".txt")
            texts.append(f"{code}={heldout / 'text' / code}.txt")
    heldout_pairs = None
    if (heldout / "pairs").is_dir():
        heldout_pairs = str(heldout / "pairs")
    values = {
        "INIT_FROM": str(start),
        "VOCABULARY": str(start),
        "MONO": " ".join(map(absolute, request.text)),
        "PARALLEL": " ".join(map(absolute, request.parallel)) or None,
        "BATCH": request.batch,
        "LENGTH": request.length,
        "MICROBATCHES": 1,
        "LOSS_CHUNK": CHUNK,
        "DTYPE": dtype,
        "UNROLL": unroll,
        # Until a trial has told how many fit.
        "TRAIN_STEPS": request.steps or 1000,
        "WARMUP_STEPS": 10,
        "EVAL_EVERY": 0,
        "HELDOUT_TEXT": " ".join(texts) or None,
        "HELDOUT_PAIRS": heldout_pairs,
        "PROBE_PAIRS": 1000,
        "HELDOUT_ALIGNMENTS": request.gold and str(Path(request.gold).absolute()),
    }
    own = sentences_of(read_run_record(start))
    if request.of_sentences:
        values["RETRIEVAL_PACKING"] = True
    # A model made for sentences (e5, LaBSE) has a prefix, a pooling and dense layers, which its
    # vectors need.
    if request.of_sentences and own and own.pooling in ("mean", "first"):
        values |= {
            "RETRIEVAL_LAYER": own.layer,
            "RETRIEVAL_POOLING": own.pooling,
            "RETRIEVAL_PREFIX": own.prefix,
            "RETRIEVAL_DENSE": str(start) if own.dense else None,
        }
    if request.taught_by:
        folder = start.parent / "teacher"
        values |= {
            "TEACHER_TEXT": str(folder / "lines.txt"),
            "TEACHER_VECTORS": str(folder / "vectors.npy"),
            "NORMALIZE_VECTORS": bool(own and own.normalize),
        }
    # The rows of the language embedding keep their languages, whatever the files are of.
    if config.has_languages:
        values["LANGUAGES"] = " ".join(read_run_record(start)["languages"])
    return values


def recipe_text(
    request: Request, values: Mapping, share: Mapping[str, float], first: bool = False
) -> str:
    """The recipe. share: of "text" and "pairs" that is held out; first: to measure the first model
    by."""
    return html.render(
        "adapt.gin",
        request=request,
        files=[Path(file).absolute() for file in request.files],
        values=values,
        share=share,
        own=sentences_of(read_run_record(values["INIT_FROM"])),
        first=first,
        repr=repr,
    )
