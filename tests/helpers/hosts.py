"""One process that reads as one of several would."""

import contextlib

import jax
import pytest


@contextlib.contextmanager
def as_host(index: int, count: int):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jax, "process_count", lambda: count)
        patched.setattr(jax, "process_index", lambda: index)
        yield
