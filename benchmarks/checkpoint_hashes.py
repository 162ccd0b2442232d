"""What checking a checkpoint's hashes costs beside restoring it: seconds of both, and the share.

`python -m benchmarks.checkpoint_hashes --millions 110`

Both take turns, and the shortest of each counts, by the clock and in processor time: what else the
machine does makes single rounds longer, and none shorter.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from xlingjax.training.checkpoint_hashes import HashedPath, damage


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=110)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    # Tables as an encoder's, of random numbers: zeros would be compressed.
    draw = np.random.default_rng(0)
    params = {}
    for number in range(args.millions):
        table = draw.standard_normal((1024, 1024), np.float32)
        params[f"table_{number:03}"] = jax.device_put(table)
    with tempfile.TemporaryDirectory() as folder:
        item = Path(folder) / "params"
        with ocp.Checkpointer(
            ocp.StandardCheckpointHandler(), temporary_path_class=HashedPath
        ) as writer:
            writer.save(item, args=ocp.args.StandardSave(params))
        wanted = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), params
        )
        del params
        checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())

        def restore() -> None:
            made = checkpointer.restore(item, args=ocp.args.StandardRestore(wanted))
            jax.block_until_ready(made)

        def check() -> None:
            assert not damage(item)

        rounds = [
            (_measured(restore), _measured(check))
            # The first fills the cache of the system.
            for _ in range(args.repeats + 1)
        ][1:]
        size = sum(file.stat().st_size for file in item.rglob("*"))
    (restoring, restoring_cpu), (checking, checking_cpu) = (
        [min(values) for values in zip(*times, strict=True)] for times in zip(*rounds, strict=True)
    )
    print(
        f"{size / 2**20:,.0f} MiB: restored in {restoring:.3f} s, checked in {checking:.3f} s:"
        f" {checking / restoring:.1%}; processor time {restoring_cpu:.3f} s and"
        f" {checking_cpu:.3f} s: {checking_cpu / restoring_cpu:.1%} (the least of"
        f" {args.repeats} rounds each)"
    )


def _measured(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock and of the processors, of all threads."""
    begun, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun, time.process_time() - cpu


if __name__ == "__main__":
    main()
