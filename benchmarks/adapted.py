"""What sentence encoders find, by language: translations of Tatoeba and NTREX into English, topics
of SIB-200 by the nearest mean vector of its English training sentences, and with a teacher the rank
correlation of cosines between NTREX's sentences with the teacher's of the English ones.

    python -m benchmarks.adapted DATA RUN [RUN ...] --languages sw vi de [--teacher RUN]

DATA has tasks/tatoeba, tasks/sib200 and pretrain/parallel/ntrex_a. Vectors are made as the run
makes its sentence vectors. Prints a line for each run, percent.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from xlingjax.inference.run import TrainedRun, open_run


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n")


def unit_vectors(run: TrainedRun, texts: list[str], language: str) -> np.ndarray:
    """float32 [S, D], of length 1."""
    layer = run.model.config.layers
    if run.sentences and run.sentences.layer is not None:
        layer = run.sentences.layer
    (vectors_SD,) = run.embed(texts, language, layers=(layer,))
    return vectors_SD / np.linalg.norm(vectors_SD, axis=1, keepdims=True)


def found(run: TrainedRun, stem: Path, language: str) -> float:
    """Share of the sentences whose nearest English one is their translation."""
    first, english = (
        unit_vectors(run, lines(stem.with_suffix(f".{code}")), code) for code in (language, "en")
    )
    return float(((first @ english.T).argmax(axis=1) == np.arange(len(first))).mean())


def cosines(vectors_SD: np.ndarray) -> np.ndarray:
    """Of each two sentences."""
    return (vectors_SD @ vectors_SD.T)[np.triu_indices(len(vectors_SD), 1)]


def topics(run: TrainedRun, folder: Path, languages: list[str]) -> dict[str, float]:
    train = pd.read_csv(folder / "train-en.tsv", sep="\t")
    vectors_SD = unit_vectors(run, train["text"].tolist(), "en")
    names = sorted(train["category"].unique())
    means_CD = np.stack([vectors_SD[train["category"] == name].mean(axis=0) for name in names])
    means_CD /= np.linalg.norm(means_CD, axis=1, keepdims=True)
    accuracy = {}
    for language in languages:
        test = pd.read_csv(folder / f"test-{language}.tsv", sep="\t")
        vectors_SD = unit_vectors(run, test["text"].tolist(), language)
        nearest = np.array(names)[(vectors_SD @ means_CD.T).argmax(axis=1)]
        accuracy[language] = float((nearest == test["category"]).mean())
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--languages", nargs="+", required=True)
    parser.add_argument("--teacher")
    args = parser.parse_args()
    ntrex = args.data / "pretrain/parallel/ntrex_a"
    teacher = open_run(args.teacher) if args.teacher else None
    for name in args.runs:
        run = open_run(name)
        figures = {}
        for code in args.languages:
            figures[f"tatoeba {code}"] = found(run, args.data / f"tasks/tatoeba/{code}-en", code)
            figures[f"ntrex {code}"] = found(run, ntrex / "-".join(sorted((code, "en"))), code)
        by_language = topics(run, args.data / "tasks/sib200", [*args.languages, "en"])
        figures |= {f"sib200 {code}": value for code, value in by_language.items()}
        for code in [*args.languages, "en"] if teacher else ():
            stem = ntrex / "-".join(sorted((args.languages[0] if code == "en" else code, "en")))
            taught = cosines(unit_vectors(teacher, lines(stem.with_suffix(".en")), "en"))
            own = cosines(unit_vectors(run, lines(stem.with_suffix(f".{code}")), code))
            figures[f"similarity {code}"] = spearmanr(taught, own).statistic
        shown = "  ".join(f"{what} {100 * value:.1f}" for what, value in figures.items())
        print(f"{name}: {shown}", flush=True)


if __name__ == "__main__":
    main()
