"""What vocabulary surgery costs and gives: a language in a script that a trained model's vocabulary
lacks, and half of a table of 250 002 rows dropped.

    python -m benchmarks.vocabulary_surgery OUT DATA [--new hi] [--old de en ru] [--steps 1800]
    [--continued 700]

DATA: a folder of one folder (or file CODE.txt) per language. A small masked LM learns the old
languages, `xlingjax vocab extend` adds pieces for the new one, and a run goes on with all of them,
at first with nothing trained but the rows of the vocabulary. Beside it, with the same steps: new
rows as in an untrained model and no such stage; and the
old model on its old languages alone. Prints Markdown, and writes OUT/trim.md and OUT/extend.md;
what is there already is not done again.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

PIECES, NEW_PIECES, HELD_OUT, LINES = 3000, 1200, 800, 20_000
MODEL = {"model.layers": 2, "BATCH": 8, "LENGTH": 64, "MASK_RATE": 0.3, "model.dropout": 0.0}
RATE = {"LEARNING_RATE": 4e-3, "WARMUP_STEPS": 50, "LOG_EVERY": 100, "CHECKPOINT_EVERY": 0}
MEASURED = {"perplexity.limit": 200}  # rows of each language
ROWS = 250_002


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
        files += ["--gin_file", f"gin/{part}.gin"]
    files += more
    if not (out / name / "result.json").is_file():
        xlingjax(
            "pretrain",
            *files,
            *(f"--gin.{k}={v}" for k, v in given.items()),
            "--workdir",
            out / name,
        )


def perplexities(run: Path) -> list[tuple[int, dict[str, float]]]:
    rows = map(json.loads, (run / "evaluations.jsonl").read_text("utf-8").splitlines())
    return [
        (row["step"], row["values"]["by_language"]) for row in rows if row["name"] == "perplexity"
    ]


def evaluated(out: Path, run: str, languages: list[str]) -> dict[str, float]:
    held_out = " ".join(str(out / "heldout" / f"{code}.txt") for code in languages)
    files = ["--gin_file", out / run / "config.gin", "--gin.LANGUAGES=" + " ".join(languages)]
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
            "--output",
            out / "vocab",
        )
    pretrain(out, "base", steps, old, VOCABULARY=out / "vocab")
    initialised = {"extended": "mean", "extended-random": "random"}
    for name, how in initialised.items():
        if not (out / name).is_dir():
            given = ["--initialise", how, "--old_mono", *(out / "text" / code for code in old)]
            files = ["--mono", out / "text" / new, "--pieces", NEW_PIECES]
            print(
                xlingjax("vocab", "extend", out / "base", *files, *given, "--to", out / name),
                flush=True,
            )
    record = json.loads((out / "extended" / "run.json").read_text("utf-8"))["surgery"][-1]
    every = {"EVAL_EVERY": continued // 5, "SEED": 1}
    first = ("--gin_file", "gin/runs/embeddings_first.gin", f"--gin.EMBEDDINGS_ONLY={stage}")
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


def large_run(out: Path, words: int) -> tuple[list[str], list[str]]:
    """OUT/large: a run of one layer over 250 002 rows in layout `xlmr`, random weights: pieces of
    real text and invented words. Returns those words and sentences of real text."""
    import dataclasses
    import itertools

    import jax
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    from xlingjax.data.vocabulary.sentencepiece import Vocabulary
    from xlingjax.model.build import build_model
    from xlingjax.model.config import preset
    from xlingjax.model.parameter_count import count_parameters
    from xlingjax.training.workdir import write_trained

    files = sorted((out / "text").glob("*/text.txt"))
    sentences = []
    for file in files:
        sentences += file.read_text("utf-8").splitlines()[:4000]
    stem = str(out / "real")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_prefix=stem,
        vocab_size=16_000,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        minloglevel=2,
    )
    proto = sentencepiece_model_pb2.ModelProto.FromString(Path(stem + ".model").read_bytes())
    known = {piece.piece for piece in proto.pieces}
    syllables = ["".join(pair) for pair in itertools.product("bdfgklmnprstvz", "aeiou")]
    made = ("\u2581q" + "".join(parts) for parts in itertools.product(syllables, repeat=3))
    invented = list(
        itertools.islice(
            (piece for piece in made if piece not in known), ROWS - 2 - len(proto.pieces)
        )
    )
    lowest = min(piece.score for piece in proto.pieces)
    proto.pieces.extend(type(proto).SentencePiece(piece=piece, score=lowest) for piece in invented)
    vocabulary = Vocabulary(proto.SerializeToString(), "xlmr")
    config = preset("xlmr_base", layers=1, attention_dropout=0.0, vocab_size=vocabulary.size)
    model = dataclasses.asdict(config)
    record = {
        "model": model,
        "identity": {"model": model, "data": {"made": {"vocabulary": vocabulary.sha256}}},
    }
    record |= {"languages": [], "parameters": count_parameters(config)}
    if not (out / "large").is_dir():
        params = jax.jit(build_model(config).init)(jax.random.key(0))
        write_trained(str(out / "large"), record, 0, params, vocabulary.files())
    return [piece[1:] for piece in invented[:words]], sentences


def logits(run: Path, sentences: list[str]):
    """(vocabulary, float32 [B, L, V]) of the sentences."""
    import jax
    import numpy as np

    from xlingjax.evaluation.perplexity import sentence_rows
    from xlingjax.inference.run import open_run
    from xlingjax.model.attention import AttentionSpec
    from xlingjax.model.masks import bidirectional

    opened = open_run(run)
    batch = sentence_rows(sentences, opened.vocabulary, 64, 0)

    def compute(params):
        g, table, bias = opened.model.vocab_head(
            params, opened.model.encode(params, batch, AttentionSpec(bidirectional))
        )
        return g @ table.T + bias

    return opened.vocabulary, np.asarray(jax.jit(compute)(opened.params))


def trimming(out: Path) -> list[str]:
    import numpy as np

    from xlingjax.data.vocabulary.surgery import source_rows

    words, sentences = large_run(out, words=ROWS)
    used = words[: ROWS // 2 - 17_000]
    lines = sentences + [" ".join(used[i : i + 20]) for i in range(0, len(used), 20)]
    (out / "used.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    began = time.perf_counter()
    said = ""
    if not (out / "trimmed").is_dir():
        given = ["--mono", f"en={out}/used.txt", "--size", ROWS // 2]
        said = xlingjax("vocab", "trim", out / "large", *given, "--to", out / "trimmed")
    took, peak = (
        time.perf_counter() - began,
        resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20,
    )
    old, was = logits(out / "large", sentences[::2000])
    new, now = logits(out / "trimmed", sentences[::2000])
    difference = np.abs(was[..., source_rows(old, new)] - now[..., : new.size]).max()
    told = (
        f"{old.size:,} -> {new.size:,} rows in {took:.0f} s, at most {peak:.1f} GiB; logits of the"
        " pieces that stay: "
    )
    return [
        said,
        (
            f"{told}largest difference {difference:.1e} of values up to"
            f" {np.abs(now[..., : new.size]).max():.1f}"
        ),
    ]


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
    for name, lines in (
        ("trim", lambda: trimming(args.out)),
        (
            "extend",
            lambda: extension(args.out, sorted(args.old), args.new, args.steps, args.continued),
        ),
    ):
        if not (path := args.out / f"{name}.md").is_file():
            path.write_text("\n".join(lines()) + "\n", encoding="utf-8")
        print(path.read_text("utf-8"), flush=True)


if __name__ == "__main__":
    main()
