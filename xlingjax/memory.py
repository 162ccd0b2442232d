"""What a step on CPU spends on getting memory back from the system, and how glibc is told not to.

XLA takes a step's buffers from malloc and frees them after it. By default glibc returns large ones to the system each
time and gets them back page by page, zeroed: up to a third of a step.
"""

import ctypes
import os
import sys
from pathlib import Path

HUGE_PAGES = "glibc.malloc.hugetlb"


def keep_freed_memory() -> bool:
    """Have malloc keep freed memory for the next step, where it can be told to. Returns whether it was.

    Only for the main thread's buffers: other threads' large ones are always mapped anew, for which see `huge_pages`.
    The process then holds its peak memory until it ends.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4  # <malloc.h>
    return all([mallopt(m_mmap_max, 0), mallopt(m_trim_threshold, -1), mallopt(m_top_pad, 64 << 20)])


def huge_pages() -> dict[str, str]:
    """Environment variables under which a new process takes its memory in pages of 2 MB instead of 4 kB; empty where
    that is so already or cannot be had (glibc 2.35, and a Linux that gives huge pages to those who ask)."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    try:
        glibc = [int(number) for number in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2]]
        granted = "[madvise]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except (AttributeError, IndexError, OSError, ValueError):
        return {}
    if glibc < [2, 35] or not granted or HUGE_PAGES in tunables:
        return {}
    return {"GLIBC_TUNABLES": ":".join(filter(None, [tunables, f"{HUGE_PAGES}=1"]))}


def restart_with_huge_pages() -> None:
    """Start this program again under `huge_pages`, which glibc reads only at the start; returns where there is nothing
    to gain. To be called before anything else is imported."""
    if variables := huge_pages():
        os.environ.update(variables)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
