"""`--jobs`: one command as several that share its work, each on its part of the devices."""

import argparse
import os
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from xlingjax.cli.types import positive
from xlingjax.errors import UserError


def jobs_options(group: Any) -> None:
    group.add_argument(
        "--jobs",
        type=positive,
        metavar="N",
        help="trainings side by side, each on its part of the devices (default 1)",
    )
    # Of a command that another one started: it prints no card, and says whether it waits for the
    # work that others are at.
    group.add_argument("--worker", choices=("wait", "leave"), help=argparse.SUPPRESS)


def groups_of(args: Namespace) -> list[Any]:
    """The devices of each of --jobs commands; none where this command does the work itself. Raises
    UserError."""
    from xlingjax.runtime.machine import slurm_tasks
    from xlingjax.workflows.side_by_side import device_groups

    if (args.jobs or 1) == 1:
        return []
    several = getattr(args, "num_processes", 0) or getattr(args, "coordinator", "")
    for name in ("XLINGJAX_COORDINATOR", "XLINGJAX_NUM_PROCESSES"):
        several = several or os.environ.get(name)
    if several or slurm_tasks() > 1:
        raise UserError(
            f"--jobs {args.jobs}: several processes are one training (--coordinator,"
            " --num_processes), which has none beside it; leave it out"
        )
    groups = device_groups(args.jobs, args.platform, args.devices)
    # This process only starts the others, and leaves them the devices.
    args.platform = "cpu"
    return groups


def run_beside(args: Namespace, groups: Sequence[Any]) -> int:
    """Run this command once for each group. Raises UserError and Stopped, see `run_groups`."""
    from xlingjax.workflows.side_by_side import run_groups

    # What stands last counts, wherever the options were.
    words = [*args.words, "--jobs", "1", "--worker", "wait"]
    return run_groups(args.name, words, groups)
