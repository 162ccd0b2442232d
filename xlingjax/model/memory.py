"""How much memory a device has for a plan."""

import os
from pathlib import Path

import jax

SHARE = 0.85  # of a device's memory that a plan may fill: the compiler and the data need some too


def device_bytes() -> int:
    """Of the smallest of this process's devices; on CPU what the machine has free, shared by its
    devices."""
    devices = jax.local_devices()
    limits = []
    for device in devices:
        statistics = device.memory_stats() or {}
        if statistics.get("bytes_limit"):
            # What the allocator may take, which is less than the card has.
            limits.append(statistics["bytes_limit"])
    if limits:
        return min(limits)
    return _available() // len(devices)


def _available() -> int:
    """Of the machine, what the files that it keeps in memory give back when asked included, where
    it tells."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("MemAvailable:"):
            kilobytes = int(line.split()[1])
            return 1024 * kilobytes
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
