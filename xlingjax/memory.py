"""What a step on CPU would spend on getting memory back from the system."""

import ctypes

import jax


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next step, where it can be told to (glibc). Returns whether it was.
    To be called before JAX starts.

    XLA takes a step's buffers from malloc and frees them after it. By default glibc returns large ones to the system
    each time and gets them back page by page, zeroed: a third of a step, and more where a neighbour took the pages. It
    can be told to keep them, but only the main thread's, so a step runs in the thread that calls it and not in one of
    XLA's. The process then holds its peak memory until it ends.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    try:
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    except AttributeError:  # a version of JAX without the option: steps are right, and slower
        return False
    m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4  # <malloc.h>
    return all([mallopt(m_mmap_max, 0), mallopt(m_trim_threshold, -1), mallopt(m_top_pad, 64 << 20)])
