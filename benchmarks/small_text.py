"""`xlingjax start` on pairs of several sizes, beside floors without a neural model.

    python -m benchmarks.small_text OUT 0,1,2 DATA/bible_nt/en-sw DATA/tico19/en-ur ...

Each is the beginning of two files' names: DATA/tico19/en-ur.en, DATA/tico19/en-ur.ur. Prints a row
of Markdown for each: raw retrieval among 500 held-out pairs (or a tenth), mean of both directions,
in percent: mean and standard deviation over the seeds; seconds of the whole command.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from xlingjax.data.held_out_pairs import pairs_with_pivot, read_pairs
from xlingjax.evaluation.floors import lsi
from xlingjax.report.run import read_run

METHODS = ("TF-IDF", "LSI of n-grams", "600 wide", "xlingjax start")


def both(scores: dict[str, float]) -> float:
    return 100 * (scores["raw_en_to_xx"] + scores["raw_xx_to_en"]) / 2


def measured(stem: str, seed: int, out: Path) -> tuple[list[float], float, int, int]:
    """(percent of each method, seconds, pairs that are trained on, pairs that are searched)."""
    name = Path(stem).name
    files = [f"{stem}.{code}" for code in name.split("-")]
    folder = out / f"{Path(stem).parent.name}_{name}_{seed}"
    began = time.monotonic()
    command = ["start", *files, "--to", str(folder), "--seed", str(seed)]
    with open(out / f"{folder.name}.log", "w") as log:
        subprocess.run([sys.executable, "-m", "xlingjax", *command], stdout=log, check=True)
    seconds = time.monotonic() - began
    ((language, test),) = read_pairs(folder / "text/held_out").items()
    train = pairs_with_pivot([str(folder / "text/train")])[language]
    run = read_run(folder / "run")
    floors = run.last("floors")
    layers = run.last("retrieval")["by_language"]["mean"][language]
    wide = lsi(test, train, dimensions=600)
    found = [floors["char_tfidf"][language], floors["lsi"][language], wide, layers["0"]]
    return [*map(both, found)], seconds, len(train), len(test)


def main(out: str, seeds: str, *stems: str) -> None:
    Path(out).mkdir(parents=True, exist_ok=True)
    print(f"| pairs | trained on | searched | {' | '.join(METHODS)} | seconds |")
    print("|---" * (len(METHODS) + 4) + "|")
    for stem in stems:
        runs = [measured(stem, int(seed), Path(out)) for seed in seeds.split(",")]
        figures = np.array([found for found, *_ in runs])
        cells = [
            f"{mean:.1f} ± {deviation:.1f}"
            for mean, deviation in zip(figures.mean(0), figures.std(0, ddof=1), strict=True)
        ]
        _, _, train, test = runs[0]
        seconds = np.mean([one[1] for one in runs])
        name = "/".join(Path(stem).parts[-2:])
        print(f"| {name} | {train:,} | {test} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
