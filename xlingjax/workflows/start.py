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
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np

from xlingjax.config.recipe import read_recipe
from xlingjax.convert.export_model import export_model
from xlingjax.data.check import check
from xlingjax.data.held_out_pairs import Pairs, read_pairs
from xlingjax.data.text.files import plain_name
from xlingjax.data.text.names import CODE, PAIR_STEM
from xlingjax.data.text.sources import find_pairs
from xlingjax.data.text.texts import Pair, Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.errors import UserError
from xlingjax.evaluation.retrieval import nearest
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.runtime.files import write_json
from xlingjax.runtime.lock import alone_in
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.runtime.records import ANY, read_record
from xlingjax.training.workdir import require_empty
from xlingjax.workflows.adapt.request import Request, default_objectives
from xlingjax.workflows.adapt.run import Export, adapt
from xlingjax.workflows.adapt.trial import measured, steps_within
from xlingjax.workflows.launch import launch

HELD_OUT = 500  # pairs that are measured on, at most a tenth
FEWEST = 100  # pairs, of which something can be learned and measured
PIECES = 16_000  # of the vocabulary: words are pieces of their own, as far as there are so many
BATCH = 512  # pairs, each other's negatives
EPOCHS = 24
UNMEASURED = 500  # steps, which take a minute or two
SHOWN = 5  # right and wrong ones, of each so many
TOLD = 20  # findings of the check
RECORD = "start.json"
TABLES = (".tsv", ".jsonl", ".tmx")

Lines = dict[tuple[str, str], list[tuple[str, str]]]
"""{two codes, sorted: the lines of both sides}."""


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
        for code in self.languages:
            if not re.fullmatch(CODE, code):
                raise UserError(f"--languages {code}: give a code like sw, kab or zh_Hans")
        if len({*self.languages}) == 1:
            raise UserError(f"--languages {' '.join(self.languages)}: give two languages")


def start(request: Start, output: str, machine: RuntimeConfig) -> int:
    """Trains on the pairs within the minutes; writes below `output` the text that is trained on and
    held out, the vocabulary, the recipe, the run with its report, and the model for `AutoModel`.
    Returns the exit status. The same command goes on where it was stopped. Raises UserError."""
    until = time.monotonic() + 60 * request.minutes
    folder = Path(output).absolute()
    if " " in str(folder) or "," in str(folder):
        raise UserError(
            f"--to {folder}: a recipe separates paths by spaces and commas; give another"
        )
    with alone_in(folder, "choose another --to"):
        if not _begun(request, folder):
            _write_text(_read(request), folder / "text", request.seed)
            _check(folder)
            # Last: what is repaired is read again.
            write_json(folder / RECORD, dataclasses.asdict(request))
        if request.source:
            return _adapted(request, folder, machine)
        return _trained(request, folder, machine, until)


def _begun(request: Start, folder: Path) -> bool:
    """Whether the text is there already. Raises UserError: it is of another command."""
    path = folder / RECORD
    if not path.is_file():
        # Of a start that was stopped here.
        shutil.rmtree(folder / "text", ignore_errors=True)
        require_empty(str(folder))
        return False
    # As JSON gives it back: tuples become lists.
    now = json.loads(json.dumps(dataclasses.asdict(request)))
    if read_record(path, {str: ANY}, "choose another --to") != now:
        raise UserError(f"{folder} was begun with other options ({path}); choose another --to")
    return True


def _read(request: Start) -> Lines:
    """The pairs of all inputs, each once, without those that lack a side. Raises UserError."""
    lines: Lines = {}
    for languages, pairs in _sources(request):
        sides = pairs if languages[0] <= languages[1] else ((y, x) for x, y in pairs)
        of_pair = lines.setdefault((min(languages), max(languages)), [])
        of_pair += [pair for pair in sides if all(pair)]
    for languages, repeated in lines.items():
        lines[languages] = pairs = [*dict.fromkeys(repeated)]
        if len(pairs) < FEWEST:
            raise UserError(
                f"{'-'.join(languages)}: {len(pairs)} different pairs with text on both sides; at"
                f" least {FEWEST} are needed"
            )
    return lines


def _sources(request: Start) -> Iterator[tuple[tuple[str, str], Iterator[tuple[str, str]]]]:
    """(languages, pairs of lines) of each input."""
    tables = any(plain_name(Path(one)).endswith(TABLES) for one in request.inputs)
    if len(request.inputs) == 2 and not tables and all(map(os.path.isfile, request.inputs)):
        first, second = map(Path, request.inputs)
        languages = _codes(request, first, second)
        yield languages, Pair(Text(first, languages[0]), Text(second, languages[1])).lines()
        return
    for pattern in request.inputs:
        path = Path(pattern)
        if plain_name(path).endswith(".tmx"):
            yield _tmx(path, request.languages)
        elif path.is_file() and not PAIR_STEM.match(plain_name(path)) and request.languages:
            a, b = request.languages
            # By the fields of a table of JSON, by place in one of tabs.
            columns = (a, b) if plain_name(path).endswith(".jsonl") else (0, 1)
            yield (a, b), Pair(Text(path, a, columns[0]), Text(path, b, columns[1])).lines()
        else:
            for pair in find_pairs(pattern):
                if pair.translates:
                    yield pair.languages, pair.lines()


def _codes(request: Start, first: Path, second: Path) -> tuple[str, str]:
    """The languages of two files: those given, else the one part in which their names differ."""
    if request.languages:
        return request.languages[0], request.languages[1]
    names = [plain_name(path).split(".") for path in (first, second)]
    if len(names[0]) == len(names[1]):
        differing = [pair for pair in zip(*names, strict=True) if pair[0] != pair[1]]
        if len(differing) == 1 and all(re.fullmatch(CODE, part) for part in differing[0]):
            return differing[0]
    raise UserError(
        f"{first.name}, {second.name}: the names do not tell the languages, as train.en and"
        " train.sw do; give --languages A B"
    )


def _tmx(path: Path, given: Sequence[str]) -> tuple[tuple[str, str], Iterator[tuple[str, str]]]:
    """The units of a translation memory that have both languages: the given, else the first two."""
    name = "{http://www.w3.org/XML/1998/namespace}lang"
    units = []
    try:
        for _, unit in ElementTree.iterparse(path):
            if unit.tag == "tu":
                sides = {}
                for side in unit.iter("tuv"):
                    # Without the region that their tools are set to.
                    code = re.sub("[-_][A-Za-z]{2}$", "", side.get(name) or side.get("lang") or "")
                    sides[code] = " ".join("".join(side.find("seg").itertext()).split())
                units.append(sides)
                unit.clear()
    except (OSError, ElementTree.ParseError, AttributeError) as error:
        raise UserError(f"{path} is no translation memory that can be read: {error}") from None
    codes = [*given] or [*dict.fromkeys(code for unit in units for code in unit)][:2]
    if len(codes) < 2 or not all(re.fullmatch(CODE, code) for code in codes):
        raise UserError(f"{path}: no units in two languages")
    a, b = codes
    return (a, b), ((unit[a], unit[b]) for unit in units if {a, b} <= {*unit})


def _key(line: str) -> str:
    """What near-copies have in common: letters and digits, in small letters."""
    return "".join(filter(str.isalnum, line.casefold()))


def _write_text(lines: Lines, folder: Path, seed: int) -> None:
    """Writes `train` and `held_out`. What has the same letters as a side of a held-out pair is in
    neither."""
    for (a, b), pairs in lines.items():
        order = np.random.default_rng(seed).permutation(len(pairs))
        count = min(HELD_OUT, len(pairs) // 10)
        keys = [(_key(x), _key(y)) for x, y in pairs]
        chosen: list[int] = []
        seen: set[tuple[int, str]] = set()
        for number in order:
            both = {*enumerate(keys[number])}
            # Two of one text would be each other's wrong answer.
            if len(chosen) < count and all(key for _, key in both) and not both & seen:
                chosen.append(number)
                seen |= both
        rest = [i for i in range(len(pairs)) if not {*enumerate(keys[i])} & seen]
        for name, numbers in (("held_out", chosen), ("train", rest)):
            for side, code in enumerate((a, b)):
                path = folder / name / f"{a}-{b}.{code}"
                path.parent.mkdir(parents=True, exist_ok=True)
                text = "".join(f"{pairs[i][side]}\n" for i in numbers)
                path.write_text(text, encoding="utf-8", newline="")
        left = len(pairs) - len(rest) - len(chosen)
        more = f", {left:,} that repeat these left out" if left else ""
        print(f"{a}-{b}: {len(rest):,} pairs to learn from, {len(chosen)} held out{more}")


def _check(folder: Path) -> None:
    """Prints what is wrong with the text that was written. Raises UserError for errors."""
    findings = check(parallel=str(folder / "text/train"))
    told = [item.text() for item in findings.items if item.severity != "note"]
    print("".join(f"{line}\n" for line in told[:TOLD]), end="", flush=True)
    if findings.errors:
        raise UserError(
            "the text has errors (above): repair them, or leave the lines out; `xlingjax data"
            f" check --parallel {folder}/text/train` shows all"
        )


def _adapted(request: Start, folder: Path, machine: RuntimeConfig) -> int:
    train = (f"{folder}/text/train/*",)
    print(
        f"as: xlingjax adapt {request.source} --parallel '{train[0]}' --hours"
        f" {request.minutes / 60:.3g} --to {folder / 'adapted'}"
        f" --gin.HELDOUT_PAIRS={folder}/text/held_out",
        flush=True,
    )
    objectives = default_objectives(request.source, train)
    limits = request.minutes / 60, None, 32, 128
    held_out = f"HELDOUT_PAIRS={f'{folder}/text/held_out'!r}"
    given = Request(request.source, (), train, objectives, *limits, None, None, (), (held_out,))
    return adapt(given, str(folder / "adapted"), machine, Export(unverified=not _has_interop()))


def _has_interop() -> bool:
    return all(map(importlib.util.find_spec, ("torch", "transformers")))


def _trained(request: Start, folder: Path, machine: RuntimeConfig, until: float) -> int:
    recipe = folder / "recipe.gin"
    if not recipe.is_file():
        train_vocabulary(
            folder / "vocab", parallel=f"{folder}/text/train", size=PIECES, character_coverage=1
        )
        values = _settings(folder) | {"SEED": request.seed}
        _write_recipe(recipe, values)
        if values["TRAIN_STEPS"] > UNMEASURED:
            speed = measured([str(recipe)], (), folder / "trial", machine, evaluations=False)
            # What evaluations, floors and the export take.
            left = 0.8 * (until - time.monotonic())
            most, _ = steps_within(left, {**speed, "seconds_per_evaluation": 0}, 1)
            steps = min(values["TRAIN_STEPS"], most)
            _write_recipe(recipe, values | {"TRAIN_STEPS": steps, "EVAL_EVERY": -(-steps // 4)})
            print(f"{steps:,} steps of {values['BATCH']} pairs fit into the time", flush=True)
    status = launch(read_recipe([str(recipe)], ()), folder / "run", "pretrain", machine)
    if status:
        return status
    shutil.rmtree(folder / "model", ignore_errors=True)
    print(export_model(str(folder / "run"), str(folder / "model"), verify=_has_interop()))
    _show(folder)
    print(
        "\nthe same, step by step:\n"
        f"  xlingjax vocab --parallel {folder}/text/train --size {PIECES} --character_coverage 1"
        f" --output {folder}/vocab\n"
        f"  xlingjax pretrain --gin_file {recipe} --workdir {folder}/run\n"
        f"  xlingjax export {folder}/run --to {folder}/model"
    )
    return 0


def _settings(folder: Path) -> dict[str, object]:
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
        "TRAIN_STEPS": steps,
        "EVAL_EVERY": -(-steps // 4),
    }


def _write_recipe(path: Path, values: dict[str, object]) -> None:
    lines = [
        "# Written by `xlingjax start`: all that it decided.",
        'include "recipes/static_text.gin"',
    ]
    lines += [f"{name} = {value!r}" for name, value in values.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _show(folder: Path) -> None:
    """Prints held-out sentences and what is found for them among the held-out translations."""
    run = open_run(folder / "run")
    for pairs in read_pairs(folder / "text/held_out").values():
        found = _found(run, pairs)
        right = int((found == np.arange(len(pairs))).sum())
        print(
            f"\n{pairs.language} to {pairs.pivot}: the right translation is found for {right} of"
            f" {len(pairs)} held-out sentences, among these {len(pairs)}"
        )
        correct = found == np.arange(len(pairs))
        for mark, those in (("right", correct), ("wrong", ~correct)):
            for i in np.nonzero(those)[0][:SHOWN]:
                print(f"  {mark}  {pairs.foreign[i]:.100}\n         {pairs.english[found[i]]:.100}")


def _found(run: TrainedRun, pairs: Pairs) -> np.ndarray:
    sides = ((pairs.foreign, pairs.language), (pairs.english, pairs.pivot))
    return nearest(*(run.embed([*texts], code)[-1] for texts, code in sides))
