"""What a corpus costs a process that reads it: time to the first batch, batches a second, memory.

python -m benchmarks.growth --mono 'text/*/*.txt' --vocabulary vocab [--batch 64] [--length 256]

The first call on a text tokenises it (cold), the second finds its shards (warm): a process each,
since the peak of memory is a process's.
"""

import argparse
import json
import resource
import time


def measure(
    mono: list[str], vocabulary_path: str, batch: int, length: int, seconds: float
) -> dict[str, float]:
    """Of MLM's rows on one thread: `import_s` (xlingjax), `first_batch_s`
    after that, `batches_per_s`, `peak_rss_gb` of this process (pages of mapped files among them)
    and `children_rss_gb`, the largest of those that tokenise."""
    began = time.perf_counter()
    from xlingjax.data.batches.loader import BatchSettings, file_batches
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary
    from xlingjax.preprocessors.xlm import MlmFeatures

    imported = time.perf_counter()
    source = file_batches(
        MlmFeatures(),
        Vocabulary.load(vocabulary_path),
        batch,
        length,
        BatchSettings(seed=1),
        mono=mono,
    )
    source.next()
    first = time.perf_counter()
    count = 0
    cpu = time.process_time()
    while time.perf_counter() - first < seconds:
        source.next()
        count += 1
    spent = time.perf_counter() - first
    cpu = time.process_time() - cpu
    source.close()
    kilobytes = 1e6
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / kilobytes
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "import_s": imported - began,
        "first_batch_s": first - imported,
        "batches_per_s": count / spent,
        "cpu_ms_per_batch": 1e3 * cpu / count,
        "peak_rss_gb": own,
        "children_rss_gb": children / kilobytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mono", nargs="+", required=True)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    result = measure(args.mono, args.vocabulary, args.batch, args.length, args.seconds)
    print(json.dumps({name: round(x, 3) for name, x in result.items()}))


if __name__ == "__main__":
    main()
