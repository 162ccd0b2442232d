"""What vocabulary surgery gives: a language in a script that a trained model's vocabulary lacks.

    python -m benchmarks.vocabulary_surgery OUT DATA [--new hi] [--old de en ru] [--steps 1800]
    [--continued 700]

DATA: a folder of one folder (or file CODE.txt) per language. A small masked LM learns the old
languages, `xlingjax vocab extend` adds pieces for the new one, and a run goes on with all of them,
at first with nothing trained but the rows of the vocabulary. Beside it, with the same steps: new
rows as in an untrained model and no such stage; and the
old model on its old languages alone. Prints Markdown, and writes OUT/extend.md; runs that are there
already are not done again.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

PIECES, NEW_PIECES, HELD_OUT, LINES = 3000, 1200, 800, 20_000
MODEL = {"model.layers": 2, "BATCH": 8, "LENGTH": 64, "MASK_RATE": 0.3, "model.dropout": 0.0}
RATE = {"LEARNING_RATE": 4e-3, "WARMUP_STEPS": 50, "LOG_EVERY": 100, "CHECKPOINT_EVERY": 0}
MEASURED = {"perplexity.limit": 200}  # rows of each language


def xlingjax(*line: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "xlingjax", *map(str, line)], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"xlingjax {' '.join(map(str, line))}\n{done.stderr}")
    return done.stdout


def lay_out(data: Path, out: Path, codes: list[str]) -> None:
    """OUT/text/CODE/text.txt and OUT/heldout/CODE.txt: of every language as many sentences."""
    for code in codes:
        files = sorted((data / code).glob("*.txt"))
        if (data / f"{code}.txt").is_file():
            files = [data / f"{code}.txt"]
        lines = []
        for file in files:
            for line in file.read_text("utf-8").splitlines():
                if len(line) > 20:
                    lines.append(line)
        lines = list(dict.fromkeys(lines))
        lines = lines[:: max(1, len(lines) // (LINES + HELD_OUT))][: LINES + HELD_OUT]
        step = len(lines) // HELD_OUT
        for where, part in (
            (out / "heldout" / f"{code}.txt", lines[::step][:HELD_OUT]),
            (out / "text" / code / "text.txt", [line for i, line in enumerate(lines) if i % step]),
        ):
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_text("\n".join(part) + "\n", encoding="utf-8")


def pretrain(
    out: Path, name: str, steps: int, languages: list[str], *more: object, **bindings: object
) -> None:
    given = {
        **MODEL,
        **RATE,
        **MEASURED,
        "PARALLEL": None,
        "TRAIN_STEPS": steps,
        "MONO": " ".join(str(out / "text" / code) for code in languages),
        "LANGUAGES": " ".join(languages),
        "HELDOUT_TEXT": " ".join(str(out / "heldout" / f"{code}.txt") for code in languages),
        **bindings,
    }
    parts = ("recipes/xlm_text", "models/mini", "optim/muon_linear", "objectives/mlm")
    files: list[object] = []
    for part in parts:
        files += ["--gin-file", f"gin/{part}.gin"]
    files += more
    if not (out / name / "result.json").is_file():
        xlingjax(
            "pretrain",
            *files,
            *(f"--gin.{k}={v}" for k, v in given.items()),
            "--to",
            out / name,
        )


def perplexities(run: Path) -> list[tuple[int, dict[str, float]]]:
    rows = map(json.loads, (run / "evaluations.jsonl").read_text("utf-8").splitlines())
    return [
        (row["step"], row["values"]["by_language"]) for row in rows if row["name"] == "perplexity"
    ]


def evaluated(out: Path, run: str, languages: list[str]) -> dict[str, float]:
    held_out = " ".join(str(out / "heldout" / f"{code}.txt") for code in languages)
    files = ["--gin-file", out / run / "config.gin", "--gin.LANGUAGES=" + " ".join(languages)]
    xlingjax("evaluate", out / run, *files, f"--gin.HELDOUT_TEXT={held_out}")
    return perplexities(out / run)[-1][1]


def extension(out: Path, old: list[str], new: str, steps: int, continued: int) -> list[str]:
    everything, stage = sorted([*old, new]), continued // 8
    if not (out / "vocab").is_dir():
        xlingjax(
            "vocab",
            "--mono",
            *(out / "text" / code for code in old),
            "--size",
            PIECES,
            "--to",
            out / "vocab",
        )
    pretrain(out, "base", steps, old, VOCABULARY=out / "vocab")
    initialised = {"extended": "mean", "extended-random": "random"}
    for name, how in initialised.items():
        if not (out / name).is_dir():
            given = ["--initialise", how, "--old-mono", *(out / "text" / code for code in old)]
            files = ["--mono", out / "text" / new, "--pieces", NEW_PIECES]
            print(
                xlingjax("vocab", "extend", out / "base", *files, *given, "--to", out / name),
                flush=True,
            )
    record = json.loads((out / "extended" / "run.json").read_text("utf-8"))["surgery"][-1]
    every = {"EVAL_EVERY": continued // 5, "SEED": 1}
    first = ("--gin-file", "gin/runs/embeddings_first.gin", f"--gin.EMBEDDINGS_ONLY={stage}")
    of_new = {"VOCABULARY": out / "extended", **every}
    began = {name: evaluated(out, name, everything) for name in initialised}
    pretrain(out, "continued", continued, everything, *first, **of_new, INIT_FROM=out / "extended")
    pretrain(
        out, "continued-random", continued, everything, **of_new, INIT_FROM=out / "extended-random"
    )
    pretrain(
        out, "old-alone", continued, old, VOCABULARY=out / "vocab", INIT_FROM=out / "base", **every
    )

    unknown = [record[when][new]["unknown_rate"] for when in ("before", "after")]
    rows = [("the old model, its own vocabulary", perplexities(out / "base")[-1][1])]
    rows += [("after `extend`, nothing trained", began["extended"])]
    rows += [("the same, new rows `random`", began["extended-random"])]
    rows += [
        (f"the first goes on, step {step}", values)
        for step, values in perplexities(out / "continued")
    ]
    step, values = perplexities(out / "continued-random")[-1]
    rows += [(f"the second goes on, without a stage of rows alone, step {step}", values)]
    rows += [
        (
            f"the old model goes on without it, step {continued}",
            perplexities(out / "old-alone")[-1][1],
        )
    ]
    table = [
        f"| perplexity on held-out text | {' | '.join(everything)} |",
        "|---" * (len(everything) + 1) + "|",
    ]

    def cell(values, code):
        if code in values:
            return f"{values[code]:,.1f}"
        return "-"

    for name, values in rows:
        cells = [cell(values, code) for code in everything]
        table.append(f"| {name} | {' | '.join(cells)} |")
    told = [
        f"unknown pieces of {new}: {unknown[0]:.2%} -> {unknown[1]:.2%}",
        "rows {} -> {}".format(*record["pieces"]),
    ]
    told += [
        record["rows"],
        *record["told"],
        f"the rows of the vocabulary alone for the first {stage} steps",
    ]
    return ["; ".join(told), "", *table]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--old", nargs="+", default=["de", "en", "ru"])
    parser.add_argument("--new", default="hi")
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("--continued", type=int, default=700)
    args = parser.parse_args()
    lay_out(args.data, args.out, [*args.old, args.new])
    lines = extension(args.out, sorted(args.old), args.new, args.steps, args.continued)
    (args.out / "extend.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
