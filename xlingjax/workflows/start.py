"""`xlingjax start`: two line-aligned files in, sentence vectors, their score and a model out.

A static model (gin/recipes/static_text.gin), whose table begins as latent semantic indexing and is
trained within minutes; or, with `source`, a released encoder that goes on learning (`adapt`).
"""

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.config.recipe import read_recipe
from xlingjax.convert.export_model import export_model
from xlingjax.data.check import check
from xlingjax.data.content_hashes import content_hash
from xlingjax.data.text.aligned import Codes, Lines, files_of, read_aligned, require_two
from xlingjax.data.text.sources import find_pairs
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.errors import UserError, require_whole
from xlingjax.report.run import read_run
from xlingjax.runtime.files import write_json, write_text
from xlingjax.runtime.lock import alone_in
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.runtime.records import ANY, read_record
from xlingjax.training.workdir import require_empty
from xlingjax.workflows.adapt.request import Request, default_objectives
from xlingjax.workflows.adapt.run import Export, adapt
from xlingjax.workflows.adapt.trial import measured
from xlingjax.workflows.launch import ended, launch

HELD_OUT = 500  # pairs that are measured on, at most a tenth
FEWEST = 100  # pairs, of which something can be learned and measured
PIECES = 16_000  # of the vocabulary: words are pieces of their own, as far as there are so many
BATCH = 512  # pairs, each other's negatives
EPOCHS = 24
TRAINING = 0.8  # of the time; the rest is for evaluations, floors and the export
UNMEASURED = 2_000_000  # tokens a minute, which any machine reads in that time
TOLD = 20  # findings of the check
RECORD = "start.json"
REMEDY = "choose another --to"


@dataclasses.dataclass(frozen=True)
class Start:
    """What the command line says; kept in start.json. inputs: two aligned files, or folders,
    patterns and tables of pairs; languages: of the two sides, where names do not tell them; source:
    a model to begin from, as of `adapt`; seed: of what is held out and of the training."""

    inputs: tuple[str, ...]
    languages: tuple[str, ...]
    minutes: float
    source: str | None
    seed: int = 0

    def __post_init__(self):
        if self.languages:
            require_two(self.languages)
        require_whole(self, "[0, 2147483647]", "seed", "--")


def start(request: Start, output: str, machine: RuntimeConfig) -> int:
    """Trains on the pairs within the minutes; writes below `output` the text that is trained on and
    held out, the vocabulary, the recipe, the run with its report, and the model for `AutoModel`.
    Returns the exit status. The same command goes on where it was stopped. Raises UserError."""
    until = time.monotonic() + 60 * request.minutes
    folder = Path(output).absolute()
    if re.search(r"[\s,]", str(folder)):
        raise UserError(
            f"--to {folder}: a recipe separates paths by spaces and commas; give another"
        )
    for one in request.inputs:
        if Path(one).absolute() in (folder, *folder.parents):
            raise UserError(f"--to {folder} lies in {one}, whose files are read; {REMEDY}")
    hashes = {os.path.abspath(one): content_hash(one) for one in files_of(request.inputs)}
    if request.source:
        # Before anything is read: a name that leads nowhere.
        default_objectives(request.source, request.inputs)
    with alone_in(folder, REMEDY):
        if not _begun(request, folder, hashes):
            lines = read_aligned(request.inputs, request.languages)
            record = {"request": _as_json(request), "inputs": hashes, "read": False}
            write_json(folder / RECORD, record)
            _write_text(lines, folder / "text", request.seed)
            _check(folder)
            write_json(folder / RECORD, record | {"read": True})
        if request.source:
            return _adapted(request, folder, machine)
        return _trained(request, folder, machine, until)


def _begun(request: Start, folder: Path, hashes: Mapping[str, str]) -> bool:
    """Whether the text is there already. hashes: of the files now. Raises UserError: it is of
    another command, or of other files."""
    path = folder / RECORD
    if not path.is_file():
        require_empty(str(folder))
        return False
    record = read_record(path, {"request": {str: ANY}, "inputs": {str: str}, "read": bool}, REMEDY)
    if not record["read"]:
        # Of a start that was stopped, or found errors in the text, here.
        shutil.rmtree(folder / "text", ignore_errors=True)
        return False
    before, now = record["request"], _as_json(request)
    if not (folder / "recipe.gin").is_file():
        # Nothing has been decided by them.
        before = before | {"minutes": now["minutes"]}
    if before != now:
        raise UserError(f"{folder} was begun with other options ({path}); {REMEDY}")
    for name in {**record["inputs"], **hashes}:
        if record["inputs"].get(name) != hashes.get(name):
            raise UserError(f"{name} has changed since {path} was written; {REMEDY}")
    return True


def _as_json(request: Start) -> Any:
    """As it is given back: tuples become lists."""
    return json.loads(json.dumps(dataclasses.asdict(request)))


def _key(line: str) -> str:
    """What near-copies have in common: letters and digits, in small letters."""
    return "".join(filter(str.isalnum, line.casefold()))


def _write_text(lines: Lines, folder: Path, seed: int) -> None:
    """Writes `train` and `held_out`, each pair once and none that lacks a side. What has the same
    letters as a side of a held-out pair, also of other languages, is in neither."""
    whole = {codes: [pair for pair in read if all(pair)] for codes, read in lines.items()}
    kept = {codes: [*dict.fromkeys(pairs)] for codes, pairs in whole.items()}
    texts = {
        codes: [{*zip(codes, map(_key, pair), strict=True)} for pair in pairs]
        for codes, pairs in kept.items()
    }
    held: dict[Codes, list[int]] = {codes: [] for codes in lines}
    held_texts: set[tuple[str, str]] = set()  # (language, text)
    for codes, pairs in kept.items():
        count = min(HELD_OUT, len(pairs) // 10)
        seen: set[tuple[str, str]] = set()
        for number in np.random.default_rng(seed).permutation(len(pairs)):
            both = texts[codes][number]
            # Two of one text would be each other's wrong answer.
            if len(held[codes]) < count and all(key for _, key in both) and not both & seen:
                held[codes].append(number)
                seen |= both
        held_texts |= seen
    for (a, b), read in lines.items():
        pairs, chosen = kept[a, b], held[a, b]
        rest = [i for i, both in enumerate(texts[a, b]) if not both & held_texts]
        for name, numbers in (("held_out", chosen), ("train", rest)):
            for side, code in enumerate((a, b)):
                path = folder / name / f"{a}-{b}.{code}"
                path.parent.mkdir(parents=True, exist_ok=True)
                text = "".join(f"{pairs[i][side]}\n" for i in numbers)
                path.write_text(text, encoding="utf-8", newline="")
        if len(pairs) < FEWEST or len(rest) < FEWEST / 2 or not chosen:
            raise UserError(
                f"{a}-{b}: {len(pairs)} different pairs with text on both sides, {len(chosen)} of"
                f" them to measure on; at least {FEWEST} are needed, of letters and digits"
            )
        left_out = {
            "that lack a side": len(read) - len(whole[a, b]),
            "that occur twice": len(whole[a, b]) - len(pairs),
            "that repeat the held-out ones": len(pairs) - len(rest) - len(chosen),
        }
        told = [f"{count:,} {why}" for why, count in left_out.items() if count]
        more = f"; left out: {', '.join(told)}" if told else ""
        print(f"{a}-{b}: {len(rest):,} pairs to learn from, {len(chosen)} held out{more}")


def _check(folder: Path) -> None:
    """Prints what is wrong with the text that was written. Raises UserError for errors."""
    findings = check(parallel=str(folder / "text/train"))
    items = [item for item in findings.items if item.severity != "note"]
    # Errors first: they end it.
    told = [item.text() for item in sorted(items, key=lambda item: item.severity != "error")]
    print("".join(f"{line}\n" for line in told[:TOLD]), end="", flush=True)
    if findings.errors:
        raise UserError(
            "the text has errors (above): repair them in your own files, of which text/train is"
            " made anew, or leave the lines out; `xlingjax data check --parallel"
            f" {folder}/text/train` shows all"
        )


def _adapted(request: Start, folder: Path, machine: RuntimeConfig) -> int:
    train = (f"{folder}/text/train/*",)
    objectives = default_objectives(request.source, train)
    pairs = [pair.languages for pair in find_pairs(str(folder / "text/train"))]
    if objectives == ("distillation",) and not all("en" in codes for codes in pairs):
        # No side of which the model is known to be the better teacher.
        objectives = ("hardest_negative",)
    verify = _has_interop()
    print(
        f"as: xlingjax adapt {request.source} --parallel '{train[0]}' --objectives"
        f" {' '.join(objectives)} --hours {request.minutes / 60!r} --to {folder / 'adapted'}"
        f" --gin.HELDOUT_PAIRS={folder}/text/held_out --gin.SEED={request.seed}"
        f"{'' if verify else ' --unverified'}",
        flush=True,
    )
    limits = request.minutes / 60, None, 32, 128
    held_out = f"HELDOUT_PAIRS={f'{folder}/text/held_out'!r}"
    overrides = held_out, f"SEED={request.seed}"
    given = Request(request.source, (), train, objectives, *limits, None, None, (), overrides)
    status = adapt(given, str(folder / "adapted"), machine, Export(unverified=not verify))
    # Where it is worse, the first model is handed over.
    if not status and not (folder / "adapted/adapted").is_dir():
        _show(folder / "adapted/run")
    return status


def _has_interop() -> bool:
    return all(map(importlib.util.find_spec, ("torch", "transformers")))


def _trained(request: Start, folder: Path, machine: RuntimeConfig, until: float) -> int:
    recipe = folder / "recipe.gin"
    if not recipe.is_file():
        train_vocabulary(
            folder / "vocab", parallel=f"{folder}/text/train", size=PIECES, character_coverage=1
        )
        values = _settings(folder) | {"SEED": request.seed}
        tokens = values["TRAIN_STEPS"] * values["BATCH"] * values["LENGTH"]
        if tokens > UNMEASURED * request.minutes:
            draft = folder / "draft.gin"
            write_text(draft, _recipe(values))
            speed = measured([str(draft)], (), folder / "trial", machine, evaluations=False)
            left = TRAINING * (until - time.monotonic()) - speed["seconds_to_compile"]
            steps = min(values["TRAIN_STEPS"], int(left / speed["seconds_per_step"]))
            if steps < 1:
                raise UserError(
                    f"--minutes {request.minutes:g} is too little: they are over before the first"
                    f" step, of {speed['seconds_per_step']:.2g} s; give more, the text is kept"
                )
            values |= _course(steps)
            print(f"{steps:,} steps of {values['BATCH']} pairs fit into the time", flush=True)
        # Whole and last: the same command goes on with it.
        write_text(recipe, _recipe(values))
    # A run that ended when its time was over has steps left, and is whole all the same.
    if not ended(folder / "run"):
        # Of a machine that became slower, fewer steps.
        latest = until - (1 - TRAINING) / 2 * 60 * request.minutes
        made = read_recipe([str(recipe)], ())
        if status := launch(made, folder / "run", "pretrain", machine, latest):
            return status
    shutil.rmtree(folder / "model", ignore_errors=True)
    print(export_model(str(folder / "run"), str(folder / "model"), verify=_has_interop()))
    _show(folder / "run")
    print(
        "\nthe same, step by step:\n"
        f"  xlingjax vocab --parallel {folder}/text/train --size {PIECES} --character-coverage 1"
        f" --to {folder}/vocab\n"
        f"  xlingjax pretrain --gin-file {recipe} --to {folder}/run\n"
        f"  xlingjax export {folder}/run --to {folder}/model"
    )
    return 0


def _settings(folder: Path) -> dict[str, Any]:
    train, vocabulary = folder / "text/train", Vocabulary.load(folder / "vocab")
    lengths, count = [], 0
    for pair in find_pairs(str(train)):
        sides = [vocabulary.encode_lines([*side.lines()])[1] for side in pair.sides]
        lengths.append(np.add(*sides) + 4)
        count += len(lengths[-1])
    longest = int(np.quantile(np.concatenate(lengths), 0.995))
    # A multiple of the devices, which share it out.
    batch = -(-max(min(BATCH, count // 4), 16) // jax.device_count()) * jax.device_count()
    steps = -(-EPOCHS * count // batch)
    return {
        "PARALLEL": str(train),
        "VOCABULARY": str(folder / "vocab"),
        "HELDOUT_PAIRS": str(folder / "text/held_out"),
        "BATCH": batch,
        # Both sides of a pair, whole but for the longest.
        "LENGTH": min(-(-longest // 16) * 16, 1024),
    } | _course(steps)


def _course(steps: int) -> dict[str, int]:
    return {
        "TRAIN_STEPS": steps,
        "WARMUP_STEPS": min(10, steps // 2),
        "EVAL_EVERY": -(-steps // 4),
    }


def _recipe(values: Mapping[str, Any]) -> str:
    lines = ["# Written by `xlingjax start`: all that it decided."]
    lines.append('include "recipes/static_text.gin"')
    lines += [f"{name} = {value!r}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def _show(run: Path) -> None:
    """Prints how many held-out sentences find their translations, and some that do and do not."""
    values = read_run(run).last("retrieval")
    by_language, *_ = values["by_language"].values()
    for language, by_layer in by_language.items():
        count = values["pairs"][language]
        share = by_layer[str(values["retrieval_layer"])]["raw_xx_to_en"]
        print(
            f"\n{language} to {values['pivot']}: the right translation is found for"
            f" {round(share * count)} of {count} held-out sentences, among these"
            f" {count}"
        )
    for one in values["examples"]:
        mark = "right" if one["right"] else "wrong"
        print(f"  {mark}  {one['sentence']:.100}\n         {one['found']:.100}")
