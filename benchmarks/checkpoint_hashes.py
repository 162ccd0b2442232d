"""What checking a checkpoint's hashes costs beside restoring it: seconds of both, and the share.

`python -m benchmarks.checkpoint_hashes --millions 110`
"""

import argparse
import statistics
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
            ocp.StandardCheckpointHandler(),
            temporary_path_class=HashedPath,
        ) as writer:
            writer.save(item, args=ocp.args.StandardSave(params))
        wanted = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                x.shape,
                x.dtype,
                sharding=x.sharding,
            ),
            params,
        )
        del params
        checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())

        def restore() -> None:
            made = checkpointer.restore(
                item,
                args=ocp.args.StandardRestore(wanted),
            )
            jax.block_until_ready(made)

        def check() -> None:
            assert not damage(item)

        restoring = _seconds(restore, args.repeats)
        checking = _seconds(check, args.repeats)
        size = sum(file.stat().st_size for file in item.rglob("*"))
    print(
        f"{size / 2**20:,.0f} MiB: restored in {restoring:.3f} s, checked in {checking:.3f} s:"
        f" {checking / restoring:.1%}",
    )


def _seconds(work: Callable[[], None], repeats: int) -> float:
    """The median, after one that fills the cache of the system."""
    work()
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
