"""All cases, by what is wrong."""

from benchmarks.faults import (  # noqa: F401
    checkpoints,
    disks,
    hostile,
    runs,
    settings,
    texts,
)
from benchmarks.faults.cases import CASES

GROUPS = CASES
