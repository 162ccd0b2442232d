"""All cases, by what is wrong."""

from benchmarks.faults import disks, hostile, settings  # noqa: F401
from benchmarks.faults.cases import CASES

GROUPS = CASES
