"""What each of several hosts opens of a corpus, and that their rows make the batches of one.

python -m benchmarks.hosts --mono 'text/*.txt' --vocabulary vocab --hosts 1 2 4 [--data_shards 8]

A process a host makes its own part of the same batches. Printed: a hash of all batches, and for
each host the files (plans of blocks, ids of blocks) that it opened and their bytes.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from typing import Any

from xlingjax.data import row_plans


class Counting(row_plans.Opened):
    """Counts what is opened for the first time."""

    def __init__(self):
        super().__init__()
        self.sizes: dict[Any, int] = {}

    def get(self, key: Any, make: Any) -> Any:
        found = super().get(key, make)
        self.sizes[key] = found.nbytes
        return found


def host(args: argparse.Namespace) -> dict[str, Any]:
    """The part of host `args.host` of `args.hosts[0]`."""
    from xlingjax.data.batches.text import BatchSettings, file_batches
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary
    from xlingjax.preprocessors.xlm import MlmFeatures

    row_plans.OPENED = Counting()
    share = args.data_shards // args.hosts[0]
    first = args.host * share
    source = file_batches(
        MlmFeatures(),
        Vocabulary.load(args.vocabulary),
        args.batch,
        args.length,
        BatchSettings(
            seed=1,
            data_shards=args.data_shards,
            shards=tuple(range(first, first + share)),
            prefetch=1,
        ),
        mono=args.mono,
    )
    rows = []
    for _ in range(args.batches):
        fields = source.next()
        for number in range(len(fields["input_ids"])):
            digest = hashlib.sha256()
            for name in sorted(fields):
                digest.update(fields[name][number].tobytes())
            rows.append(digest.hexdigest())
    source.close()
    sizes = row_plans.OPENED.sizes
    return {"rows": rows, "files": len(sizes), "bytes": sum(sizes.values())}


def all_hosts(count: int, batches: int) -> None:
    """Prints what `count` hosts opened, and the hash of what they made."""
    processes = []
    for number in range(count):
        command = [sys.executable, "-m", "benchmarks.hosts", *sys.argv[1:]]
        command += ["--hosts", str(count), "--host", str(number)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    parts = []
    for process in processes:
        output, _ = process.communicate()
        if process.returncode:
            sys.exit("error: a host ended; see above")
        parts.append(json.loads(output))
    whole = hashlib.sha256()
    for step in range(batches):
        for part in parts:
            share = len(part["rows"]) // batches
            for row in part["rows"][step * share : (step + 1) * share]:
                whole.update(row.encode())
    opened = []
    for part in parts:
        opened.append(f"{part['files']} files, {part['bytes'] / 1e6:,.1f} MB")
    print(f"{count} hosts: {whole.hexdigest()[:16]}; " + "; ".join(opened))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mono", nargs="+", required=True)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--hosts", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--host", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--data_shards", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batches", type=int, default=50)
    args = parser.parse_args()
    if args.host is not None:
        print(json.dumps(host(args)))
        return
    for count in args.hosts:
        if args.data_shards % count:
            parser.error(f"{args.data_shards} data shards, {count} hosts")
        all_hosts(count, args.batches)


if __name__ == "__main__":
    main()
