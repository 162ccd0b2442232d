"""What a run costs: seconds that count, peak memory."""

import contextlib
import resource
import sys
import time
from collections.abc import Iterator

import jax


class Stopwatch:
    """Seconds of training, without what happens inside `paused()` (compilation, evaluation)."""

    def __init__(self):
        self._total = 0.0
        self._since = time.perf_counter()
        self._lap = 0.0

    def seconds(self) -> float:
        """Counted seconds since the start."""
        return self._total + time.perf_counter() - self._since

    def lap(self) -> float:
        """Counted seconds since the last lap."""
        before = self._lap
        self._lap = self.seconds()
        return self._lap - before

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        # What has been counted so far is put by; counting begins again behind the pause.
        self._total += time.perf_counter() - self._since
        try:
            yield
        finally:
            self._since = time.perf_counter()


def peak_memory_bytes() -> int:
    """The largest peak over this process's devices; on CPU, where devices keep no count, the
    process's own peak."""
    peaks = []
    for device in jax.local_devices():
        # CPU devices have None.
        stats = device.memory_stats() or {}
        if "peak_bytes_in_use" in stats:
            peaks.append(stats["peak_bytes_in_use"])
    if peaks:
        return max(peaks)
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
