"""Exact and approximate search of `xlingjax mine`: time and growth, recall, memory.

python -m benchmarks.mining time --pairs 10000 100000 1000000
python -m benchmarks.mining recall --data $XLINGJAX_DATA
python -m benchmarks.mining memory --pairs 100000 1000000
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xlingjax.data.text.sources import find_pairs
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.inference import mine
from xlingjax.inference.nearest import Search, nearest
from xlingjax.inference.negatives import NegativesConfig, write_negatives
from xlingjax.inference.search import unit_rows
from xlingjax.inference.vector_files import read_shards, write_shards
from xlingjax.inference.wrong_partners import Meanings, nearest_wrong

DIM = 256
IVF = Search("ivf")
FEW = 10_000
"""Queries that are timed; the cost of more is in proportion."""


def vectors(rows: int, part: int = 0) -> list[np.ndarray]:
    """float32 [rows, DIM] of two sides, which are near each other and in clusters of like size, as
    sentences of a subject are; part: another one of the same clusters."""
    # As many clusters whatever is asked for: more text has more rows in each.
    middles = np.random.default_rng(0).normal(size=(20_000, DIM))
    rng = np.random.default_rng([1, part])
    first = middles[rng.integers(len(middles), size=rows)]
    first = first + 0.7 * rng.normal(size=first.shape)
    second = first + 0.5 * rng.normal(size=first.shape)
    return [unit_rows(side).astype(np.float32) for side in (first, second)]


def timed(pairs: int, k: int) -> dict[str, float]:
    """Seconds to find the k nearest of every sentence in the other side."""
    first, second = vectors(pairs)
    # Two numbers of queries, which differ by the cost of queries; the rest is that of the index.
    some, more = min(pairs, FEW // 2), min(pairs, FEW)
    exact, ivf = [], []
    for count in (some, more):
        started = time.perf_counter()
        _, right = nearest(first[:count], second, k)
        exact.append(time.perf_counter() - started)
    for count in (some, more):
        started = time.perf_counter()
        _, found = nearest(first[:count], second, k, IVF)
        ivf.append(time.perf_counter() - started)
    seconds = {}
    for name, (less, most) in {"exact": exact, "ivf": ivf}.items():
        each = (most - less) / (more - some)
        seconds[f"{name}_seconds"] = round(most + (pairs - more) * each, 1)
        seconds[f"{name}_ms_each_query"] = round(1000 * each, 3)
    return {
        "pairs": pairs,
        "queries": more,
        **seconds,
        f"recall@{k}": round(recall(found, right), 4),
    }


def recall(found_QK: np.ndarray, right_QK: np.ndarray) -> float:
    """Share of the right rows that were found; -1 is none."""
    hits = (found_QK[:, :, None] == right_QK[:, None, :]) & (right_QK[:, None, :] >= 0)
    return float(hits.any(axis=1).sum() / (right_QK >= 0).sum())


def real_pairs(data: Path, folder: Path, count: int) -> str:
    """So many pairs of English and all other languages, as one file of each side."""
    found = find_pairs([str(data / "pretrain/parallel/*/*")])
    pairs = [pair for pair in found if "en" in pair.languages]
    left = count
    with (
        open(folder / "en-xx.en", "w", encoding="utf-8") as english,
        open(folder / "en-xx.xx", "w", encoding="utf-8") as other,
    ):
        for pair in pairs:
            which = pair.languages.index("en")
            for lines in pair.lines():
                if left and all(lines):
                    print(lines[which], file=english)
                    print(lines[1 - which], file=other)
                    left -= 1
    if left:
        print(f"{data} has {count - left} pairs with English", file=sys.stderr)
    return str(folder / "en-xx.*")


def on_real_text(data: Path, count: int, steps: int, probes_of: list[int]) -> Iterator[dict]:
    """Neighbours and wrong partners by vectors of the deep averaging network of `mine
    --negatives`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parallel = real_pairs(data, folder, count)
        vocabulary = train_vocabulary(folder / "vocabulary", parallel=parallel, size=16000)
        rows = {}
        for search in ("exact", "ivf"):
            config = NegativesConfig(steps=steps, search=search)
            started = time.perf_counter()
            (table,) = write_negatives(
                [parallel],
                vocabulary,
                folder / "out",
                config,
                say=lambda line: print(line, file=sys.stderr),
            )
            seconds = time.perf_counter() - started
            rows[search] = [
                line.split("\t")[2] for line in table.read_text(encoding="utf-8").splitlines()[1:]
            ]
            # The second time the network is there.
            yield {"search": search, "table_seconds": round(seconds, 1)}
        same = np.mean(np.array(rows["exact"]) == np.array(rows["ivf"]))
        yield {"chosen_alike_with_32_probes": round(float(same), 4)}
        (run,) = (folder / "out").glob("dan/*/run-*")
        sides = read_shards(run / "vectors", ("en", "xx")) or []
        meanings = Meanings.of([lines for lines, _ in sides])
        first, second = (rows[:] for _, rows in sides)
        right = nearest_wrong(meanings, first, second, 10)
        for probes in probes_of:
            search = Search("ivf", probes=probes)
            started = time.perf_counter()
            found = nearest_wrong(meanings, first, second, 10, search)
            yield {
                "pairs": len(first),
                "probes": probes,
                "seconds": round(time.perf_counter() - started, 1),
                "recall@10": round(recall(found, right), 4),
                "hardest_found": round(recall(found, right[:, :1]), 4),
            }


def peak_memory(pairs: int) -> dict:
    """`mine` over vectors on disk, in this process; run it in a fresh one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.perf_counter()

        def encode(numbers: list[int]) -> list[np.ndarray]:
            return vectors(len(numbers), numbers[0])

        shards = write_shards(
            folder / "vectors",
            ("en", "xx"),
            range(pairs),
            encode,
            lambda i: (f"sentence {i}", f"Satz {i}"),
            lambda _: None,
        )
        written = _peak()
        source, target = (rows for _, rows in shards)
        # Few probes: they take time and no memory.
        search = Search("ivf", probes=4)
        mined = mine.mine(source, target, search=search, folder=folder / "found")
        right = float((mined.source == mined.target).mean())
        return {
            "pairs": pairs,
            "peak_rss_mb": _peak(),
            "peak_rss_mb_of_writing": written,
            "vectors_mb": round(2 * pairs * DIM * 4 / 1e6),
            "seconds": round(time.perf_counter() - started, 1),
            "mined": len(mined.scores),
            "right": round(right, 4),
        }


def _peak() -> int:
    # KiB on Linux.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("time", "recall", "memory", "one"))
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000])
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--probes", type=int, nargs="+", default=[8, 16, 32, 64])
    args = parser.parse_args()
    if args.what == "time":
        for pairs in args.pairs:
            print(json.dumps(timed(pairs, args.k)), flush=True)
    elif args.what == "recall":
        if args.data is None:
            parser.error("recall reads real text: give --data")
        rows = on_real_text(args.data, args.pairs[0], args.steps, args.probes)
        for row in rows:
            print(json.dumps(row), flush=True)
    elif args.what == "one":
        print(json.dumps(peak_memory(args.pairs[0])), flush=True)
    else:
        for pairs in args.pairs:
            command = [sys.executable, "-m", "benchmarks.mining", "one"]
            # A process of its own: the peak of an earlier size would stay.
            subprocess.run([*command, "--pairs", str(pairs)], check=True)


if __name__ == "__main__":
    main()
