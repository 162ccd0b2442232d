"""What XNLI's translate-train-all costs a process that trains on it: memory, and time to a step.

python -m benchmarks.task_rows --xnli FOLDER --vocabulary vocab.model [--rows 392702] [--length 256]

FOLDER has XNLI in XTREME's layout (train-en.tsv, translate-train/, dev-XX.tsv). Its files are
repeated to `--rows` rows in each of 15 languages; those without a translated training set repeat
their dev set. Two steps are trained from a tiny random model with the vocabulary, in new processes
one after another: the first starts with an empty cache, the second is another seed.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LANGUAGES = (
    "ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh",
)  # fmt: skip
TESTED_ROWS = 8
"""Of a dev and a test set: what is measured here comes before them."""


def write_files(source: Path, folder: Path, rows: int) -> None:
    """XNLI below `folder` with so many training rows in each language."""
    there = folder / "xnli"
    (there / "translate-train").mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        dev = source / f"dev-{language}.tsv"
        for split in ("dev", "test"):
            _repeat(dev, there / f"{split}-{language}.tsv", TESTED_ROWS)
        name = f"translate-train/en-{language}-translated.tsv"
        if language == "en":
            name = "train-en.tsv"
        official = source / name
        if not official.is_file():
            official = dev
        _repeat(official, there / name, rows)


def _repeat(source: Path, path: Path, rows: int) -> None:
    lines = source.read_bytes().splitlines(keepends=True)
    with open(path, "wb") as file:
        file.writelines(itertools.islice(itertools.cycle(lines), rows))


def write_run(folder: Path, vocabulary: Path, text: Path) -> None:
    """A tiny pretraining run of one step with this vocabulary."""
    _xlingjax(
        "pretrain",
        "--gin_file=gin/recipes/xlm_tiny.gin",
        f"--workdir={folder}",
        f"--gin.VOCABULARY={str(vocabulary)!r}",
        f"--gin.MONO='en={text}'",
        "--gin.PARALLEL=None",
        "--gin.HELDOUT_TEXT=None",
        "--gin.HELDOUT_PAIRS=None",
        "--gin.train.objectives=[@mlm()]",
        "--gin.TRAIN_STEPS=1",
        "--gin.WARMUP_STEPS=0",
        "--gin.EVAL_EVERY=0",
        "--gin.model.layers=1",
        "--gin.model.dim=16",
        "--gin.model.heads=2",
        "--gin.model.ffn=32",
        "--gin.model.max_positions=512",
    )


def _xlingjax(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "xlingjax", *words], check=True)


def measured(run: Path, data: Path, output: Path, length: int) -> dict:
    """Of one start in a new process: seconds to the first step, of all; `_cpu`: those that cores
    computed. In GB: `largest_gb`, the peak of the largest process, and `together_gb`, that of all
    of them, a shared page once."""
    command = [
        sys.executable,
        "-m",
        "xlingjax",
        "finetune",
        str(run),
        "--task=xnli/xnli",
        "--strategy=multi_language",
        f"--data={data}",
        f"--to={output}",
        f"--gin.LENGTH={length}",
        "--gin.TRAIN_STEPS=2",
        "--gin.LOG_EVERY=1",
        "--gin.SELECT=last",
        "--gin.DTYPE='float32'",
    ]
    lines = output / "cells/xnli/xnli/multi_language/seed-0/run/metrics.jsonl"
    began = time.perf_counter()
    first_step = 0.0
    first_cpu = 0.0
    together = 0.0
    with subprocess.Popen(command) as process:
        done = 0
        while not done:
            time.sleep(0.2)
            together = max(together, sum(map(_pss, _tree(process.pid))))
            if not first_step and lines.is_file() and lines.stat().st_size:
                first_step = time.perf_counter() - began
                first_cpu = sum(map(_cpu, _tree(process.pid)))
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"ended with status {process.returncode}")
    return {
        "first_step_s": round(first_step, 1),
        "first_step_cpu_s": round(first_cpu, 1),
        "whole_s": round(time.perf_counter() - began, 1),
        # Linux counts in KiB; of the process and what it waited for.
        "whole_cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "largest_gb": round(usage.ru_maxrss * 1024 / 1e9, 2),
        "together_gb": round(together / 1e9, 2),
    }


def _tree(process: int) -> Iterator[int]:
    yield process
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return
    for child in text.split():
        yield from _tree(int(child))


def _cpu(process: int) -> float:
    """Seconds, with those of processes that it started and that have ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0.0
    # Behind the name, which may hold blanks: the fields from the third on.
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _pss(process: int) -> int:
    """Bytes, those of a page that n processes share by n."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    # It has ended.
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--xnli", type=Path, required=True)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=392_702)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=Path("runs/task_rows"))
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    data = folder / "data"
    write_files(arguments.xnli, data, arguments.rows)
    os.environ["XLINGJAX_CACHE"] = str(folder / "cache")
    text = folder / "text.en.txt"
    text.write_text("A line of text.\n" * 1000, encoding="utf-8")
    run = folder / "run"
    write_run(run, arguments.vocabulary.absolute(), text)
    for start in ("first", "second"):
        found = measured(run, data, folder / start, arguments.length)
        print(json.dumps({"start": start, **found}), flush=True)
    stored = folder / "cache/task_rows"
    if stored.is_dir():
        size = sum(path.stat().st_size for path in stored.rglob("*.bin"))
        print(json.dumps({"stored_gb": round(size / 1e9, 2)}))


if __name__ == "__main__":
    main()
