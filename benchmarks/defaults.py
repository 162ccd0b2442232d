"""Which settings of `own_text` serve which text? Retrieval after pretraining on German-English and
on eight languages, from 2,000 pairs to all there are, beside TF-IDF and LSI.

    python -m benchmarks.defaults DATA OUT CELL ...
    python -m benchmarks.defaults DATA OUT

DATA: folder of SOURCE/aa-bb.aa beside SOURCE/aa-bb.bb. CELL: TEXT or TEXT/VARIANT, of `TEXTS` and
`VARIANTS` or `RIVALS`; they are trained one after the other, and a finished one stays as it is.
Without any: floors of all texts that are there, and tables of what is finished.
"""

import argparse
import dataclasses
import json
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from xlingjax.data.held_out_pairs import pairs_with_pivot, read_pairs
from xlingjax.evaluation.floors import floors
from xlingjax.report.run import read_run
from xlingjax.report.summary import summarise

ROOT = Path(__file__).parents[1]
HELD = 500
"""Pairs of each language with English that are searched, the same for all sizes of a text."""
LSI_PAIRS = 20_000
"""Of each language: as many as a run's `FLOORS=True` takes."""
SIZE = 16_000
"""Of the vocabulary, or as many pieces as the text has: README's."""


Pair = tuple[str, str]  # foreign, English
ByLanguage = dict[str, list[Pair]]


@dataclasses.dataclass(frozen=True)
class Text:
    sources: tuple[str, ...]
    languages: tuple[str, ...]
    pairs: int = 0
    """To train on, in all languages together; 0: all there are."""


# fmt: off
GERMAN = (
    "multi30k", "multinli_mt", "bible_nt", "xed_subtitles", "progit", "ntrex_a", "opensource_guide",
    "flores_sib_train",
)
SEVEN = ("ar", "de", "es", "sw", "tr", "ur", "zh")
# fmt: on
TEXTS = {
    "captions-2k": Text(("multi30k",), ("de",), 2_000),
    "captions": Text(("multi30k",), ("de",)),
    "german": Text(GERMAN, ("de",)),
    "eight-2k": Text(("multinli_mt",), SEVEN, 2_000),
    "eight-7k": Text(("multinli_mt",), SEVEN, 7_000),
    "eight-29k": Text(("multinli_mt",), SEVEN, 29_000),
    "eight-100k": Text(("multinli_mt",), SEVEN, 100_000),
}
BEFORE = ("HARDEST_WEIGHT=2.0", "RETRIEVAL_BATCH=32", "WARMUP_STEPS=150")
"""Two steps of five against the hardest of 32 negatives."""
SHORT = "TRAIN_STEPS=1500"
BRIEF = ("TRAIN_STEPS=600", "WARMUP_STEPS=30")
TOGETHER = ("WARMUP_STEPS=150", "RETRIEVAL_BATCH=128")
WIDE = ("model.dim=256", "model.heads=8", "model.ffn=512", "LAYERS=2")
VARIANTS: dict[str, list[str]] = {
    "as it is": [],
    "600 steps": [*BRIEF],
    "600 steps, 15 % masked": [*BRIEF, "MASK_RATE=0.15"],
    "600 steps, AdamW at 1e-3": ["optim/adamw_linear.gin", *BRIEF, "LEARNING_RATE=1e-3"],
    "4,000 steps": ["TRAIN_STEPS=4000", "WARMUP_STEPS=200"],
    "2 layers of 256": [*WIDE],
    "950 steps, 2 layers of 256": ["TRAIN_STEPS=950", "WARMUP_STEPS=50", *WIDE],
    "1,900 steps, 2 layers of 256": ["TRAIN_STEPS=1900", *WIDE],
    "6,000 steps, 2 of 5, 32 negatives": ["TRAIN_STEPS=6000", *BEFORE],
    "1,500 steps, 4 of 5": [SHORT, *TOGETHER, "HARDEST_WEIGHT=12.0"],
    "1,500 steps, 2 of 5": [SHORT, *TOGETHER, "HARDEST_WEIGHT=2.0"],
    "1,500 steps, 2 of 5, 32 negatives": [SHORT, *BEFORE],
    "1,500 steps, 2 of 5, 32 negatives, random tokens": [SHORT, *BEFORE, "LSI_TOKENS=False"],
    "1,500 steps, 2 of 5, 32 negatives, bias 0": [SHORT, *BEFORE, "SIMILARITY_BIAS=0.0"],
    "1,500 steps, 2 of 5, 32 negatives, bias 0, tokens frozen": [
        SHORT,
        *BEFORE,
        "SIMILARITY_BIAS=0.0",
        'FROZEN=["^embeddings/tokens/"]',
    ],
    "1,500 steps, 2 of 5, 32 negatives, pairs to 128": [SHORT, *BEFORE, "RETRIEVAL_LENGTH=128"],
    "1,500 steps, 2 of 5, 32 negatives, 2 layers of 256": [SHORT, *BEFORE, *WIDE],
    "3,500 steps, 2 of 5, 32 negatives, bias 0": [
        "TRAIN_STEPS=3500",
        *BEFORE,
        "SIMILARITY_BIAS=0.0",
    ],
    "3,500 steps, 2 of 5, 32 negatives, bias 0, random tokens": [
        "TRAIN_STEPS=3500",
        *BEFORE,
        "SIMILARITY_BIAS=0.0",
        "LSI_TOKENS=False",
    ],
    "pairs to 128": ["RETRIEVAL_LENGTH=128"],
}
"""{name: gin files and NAME=VALUE that differ from the recipe}."""
RIVALS = {"run_mlm, rate 5e-4": 5e-4, "run_mlm, rate 2e-3": 2e-3}
"""{name: learning rate} of `benchmarks.run_mlm`: the shape, vocabulary and CPU time of the run of
that text and seed as it is."""


# ---- text ----------------------------------------------------------------------------------------


def prepare(name: str, data: Path, folder: Path) -> None:
    """folder/pairs, folder/held and folder/vocab."""
    if not (folder / "vocab").exists():
        searched, kept = split(data, TEXTS[name])
        for code, pairs in kept.items():
            write(folder / "pairs", code, pairs)
            write(folder / "held", code, searched[code])
        # As README's command has it.
        command(
            [
                *("vocab", "--parallel", f"{folder}/pairs/*"),
                *("--size", SIZE, "--to", folder / "vocab"),
            ]
        )


def measure_floors(folder: Path) -> None:
    if (folder / "floors.json").exists():
        return
    trained = pairs_with_pivot([f"{folder}/pairs/*"])
    # Beside other work threads of BLAS wait for each other most of the time.
    with threadpool_limits(1):
        found = floors(read_pairs(folder / "held"), trained, limit=LSI_PAIRS)
    found["pairs"] = sum(map(len, trained.values()))
    (folder / "floors.json").write_text(json.dumps(found), encoding="utf-8")


def split(data: Path, text: Text) -> tuple[ByLanguage, ByLanguage]:
    """The pairs that are searched, and those to train on, in random order."""
    everything = {code: list(read(data, text, code)) for code in text.languages}
    searched = held_out(everything)
    english = {pair[1] for pairs in searched.values() for pair in pairs}
    share = text.pairs // len(text.languages)
    kept = {}
    for code, pairs in everything.items():
        foreign = {pair[0] for pair in searched[code]}
        # No side of a pair that is searched is read in any language's training text.
        others = [pair for pair in pairs if pair[0] not in foreign and pair[1] not in english]
        random.Random(f"{code} train").shuffle(others)
        kept[code] = others[: share or None]
    return searched, kept


def read(data: Path, text: Text, code: str) -> Iterator[Pair]:
    """(foreign, English) of all sources, none with an empty side, none twice."""
    seen = set()
    for source in text.sources:
        stem = "-".join(sorted((code, "en")))
        sides = []
        for side in (code, "en"):
            path = data / source / f"{stem}.{side}"
            sides.append(path.read_text(encoding="utf-8").split("\n"))
        for pair in zip(*sides, strict=True):
            if all(map(str.strip, pair)) and pair not in seen:
                seen.add(pair)
                yield pair


def held_out(everything: ByLanguage) -> ByLanguage:
    """{language: `HELD` pairs drawn at random}: the same English sentences in every language, each
    sentence of either side once."""
    by_english = {}
    for code, pairs in everything.items():
        by_english[code] = {english: foreign for foreign, english in pairs}
    # Sorted, since a set has no order of its own.
    common = sorted(set.intersection(*map(set, by_english.values())))
    random.Random(0).shuffle(common)
    seen: dict[str, set[str]] = {code: set() for code in everything}
    searched: ByLanguage = {code: [] for code in everything}
    for english in common:
        translations = {code: of[english] for code, of in by_english.items()}
        if any(line in seen[code] for code, line in translations.items()):
            continue
        for code, line in translations.items():
            seen[code].add(line)
            searched[code].append((line, english))
        if len(seen[code]) == HELD:
            break
    return searched


def write(folder: Path, code: str, pairs: list[Pair]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for side, ending in enumerate((code, "en")):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        path = folder / f"{code}-en.{ending}"
        path.write_text(lines, encoding="utf-8")


# ---- runs ----------------------------------------------------------------------------------------


def run(folder: Path, variant: str, seed: int) -> None:
    """Trains, if it has not, and writes what it cost beside the run."""
    workdir = run_folder(folder, variant, seed)
    if (workdir / "cost.json").exists():
        return
    # One that was cut short begins again: what it cost is of one sitting.
    shutil.rmtree(workdir, ignore_errors=True)
    gin_files = ["--gin-file", ROOT / "gin/recipes/own_text.gin"]
    settings = {
        "MONO": f"{folder}/pairs/*",
        "PARALLEL": f"{folder}/pairs/*",
        "VOCABULARY": folder / "vocab",
        "HELDOUT_PAIRS": folder / "held",
        "SEED": seed,
        # In floors.json, once for all runs.
        "FLOORS": False,
    }
    for entry in VARIANTS[variant]:
        if entry.endswith(".gin"):
            gin_files += ["--gin-file", ROOT / "gin" / entry]
        else:
            macro, _, value = entry.partition("=")
            settings[macro] = value
    began = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command(
        [
            *("pretrain", *gin_files, "--to", workdir),
            *(f"--gin.{name}={value}" for name, value in settings.items()),
        ]
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = {
        "seconds": time.monotonic() - began,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }
    (workdir / "cost.json").write_text(json.dumps(cost), encoding="utf-8")


def run_rival(folder: Path, variant: str, seed: int) -> None:
    workdir = run_folder(folder, variant, seed)
    if (workdir / "cost.json").exists():
        return
    ours = run_folder(folder, "as it is", seed)
    model = folder / "shape"
    if not model.exists():
        command(["export", ours, "--to", model])
    allowed = json.loads((ours / "cost.json").read_text(encoding="utf-8"))
    words = [
        *(sys.executable, "-m", "benchmarks.run_mlm", model, folder),
        *(allowed["cpu_seconds"], "--rate", RIVALS[variant], "--seed", seed),
    ]
    done = subprocess.run([*map(str, words)], check=True, cwd=ROOT, stdout=subprocess.PIPE)
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "cost.json").write_bytes(done.stdout)


def run_folder(folder: Path, variant: str, seed: int) -> Path:
    name = variant.replace(" ", "_").replace(",", "")
    return folder / "runs" / f"{name}-{seed}"


def command(words: list[Any]) -> None:
    xlingjax = Path(sys.executable).with_name("xlingjax")
    subprocess.run([xlingjax, *map(str, words)], check=True)


# ---- tables --------------------------------------------------------------------------------------


def tables(out: Path) -> str:
    """Markdown: what every finished run reached; on the way."""
    ends = [
        "| text | pairs | settings | seed | parameters | tokens | minutes | CPU minutes | raw"
        " | centred | TF-IDF | LSI raw / centred |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    courses = ["| text | settings | seed | raw, by steps |", "|---|---|--:|---|"]
    for name in TEXTS:
        folder = out / name
        if not (folder / "floors.json").exists():
            continue
        floor = json.loads((folder / "floors.json").read_text(encoding="utf-8"))
        for variant in (*VARIANTS, *RIVALS):
            for seed in range(10):
                workdir = run_folder(folder, variant, seed)
                if (workdir / "cost.json").exists():
                    row = [name, f"{floor['pairs']:,}", variant, str(seed)]
                    ends.append(line([*row, *figures(workdir, floor)]))
                    course = on_the_way(workdir)
                    courses.append(line([name, variant, str(seed), course]))
    return "\n".join([*ends, "", *courses, ""])


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def figures(workdir: Path, floor: Mapping[str, Any]) -> list[str]:
    cost = json.loads((workdir / "cost.json").read_text(encoding="utf-8"))
    if "by_layer" in cost:
        found = {
            "parameters": cost["parameters"],
            "tokens_seen": cost["tokens"],
            "retrieval_mean": cost["best"]["raw_en_to_xx"]["value"],
            "retrieval_mean_centred": cost["best"]["centred_en_to_xx"]["value"],
        }
    else:
        found = summarise(read_run(workdir), {}, ())
    lsi = []
    for score in ("raw_en_to_xx", "centred_en_to_xx"):
        values = [scores[score] for scores in floor["lsi"].values()]
        lsi.append(f"{100 * sum(values) / len(values):.1f}")
    return [
        f"{found['parameters'] / 1e6:.1f} M",
        f"{found['tokens_seen'] / 1e6:.1f} M",
        f"{cost['seconds'] / 60:.1f}",
        f"{cost['cpu_seconds'] / 60:.1f}",
        f"{100 * found['retrieval_mean']:.1f}",
        f"{100 * found['retrieval_mean_centred']:.1f}",
        f"{100 * floor['mean']['char_tfidf']:.1f}",
        " / ".join(lsi),
    ]


def on_the_way(workdir: Path) -> str:
    if not (workdir / "evaluations.jsonl").exists():
        return ""
    evaluated = read_run(workdir).evaluated("retrieval")["retrieval"]
    said = []
    for step, values in evaluated:
        said.append(f"{step:,}: {100 * values['retrieval_mean']:.1f}")
    return ", ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("cells", nargs="*", metavar="CELL")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    out = args.out.absolute()
    for cell in args.cells:
        name, _, variant = cell.partition("/")
        prepare(name, args.data, out / name)
        train = run
        if variant in RIVALS:
            train = run_rival
        train(out / name, variant or "as it is", args.seed)
    if not args.cells:
        for name in TEXTS:
            if (out / name / "vocab").exists():
                measure_floors(out / name)
        print(tables(out))


if __name__ == "__main__":
    main()
