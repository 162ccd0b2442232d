"""The options that say which machine a verb runs on, alone or as several commands, and what is done
about them before JAX starts."""

import argparse
import logging
import os
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from xlingjax.cli.types import count, positive
from xlingjax.cli.verb import option
from xlingjax.errors import UserError

MACHINE = (
    option("--platform", "cpu, gpu or tpu (default: what JAX finds)", default=""),
    option("--devices", "make the CPU look like N devices", positive, "N"),
)
RECIPE = (
    option("--gin_file", "a recipe; may repeat", action="append", default=[], metavar="FILE"),
    option("--trust", "the config.gin of a run may import modules, which may do anything", bool),
    *MACHINE,
)
PROCESSES = (
    option(
        "--coordinator", "process 0 (SLURM, TPU pods need none)", metavar="HOST:PORT", default=""
    ),
    option("--num_processes", "of all hosts together", count, "N", default=0),
    option("--process_id", "of this one, from 0", count, "I", default=-1),
)
JOBS = (
    option("--jobs", "side by side, each on its part of the devices (default 1)", positive, "N"),
    # Of a command that another one started: no card; whether it waits for others' work.
    option("--worker", argparse.SUPPRESS, choices=("wait", "leave")),
)


def prepare_machine(args: Namespace) -> None:
    """Before JAX starts: libraries that log only errors, and as many CPU devices as requested."""
    # TensorFlow reads it once, when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("absl").setLevel(logging.ERROR)
    if not getattr(args, "devices", None):
        return
    import jax

    try:
        jax.config.update("jax_num_cpu_devices", args.devices)
    # JAX runs already, as it does in tests.
    except RuntimeError:
        if jax.local_device_count() != args.devices:
            raise UserError(
                f"--devices {args.devices}: JAX runs already on {jax.local_device_count()} devices"
            ) from None


def machine_of(args: Namespace):
    """The `RuntimeConfig` of the command line."""
    from xlingjax.runtime.machine import RuntimeConfig

    # Verbs that run in one process have no options for several, and not all train.
    names = ("platform", "coordinator", "num_processes", "process_id")
    given = {name: getattr(args, name, None) for name in names}
    return RuntimeConfig(**{name: value for name, value in given.items() if value is not None})


def machine_words(args: Namespace) -> list[str]:
    """The machine's options, and --trust, as words for commands started as processes."""
    # Only what was given: the others are found anew in each process.
    words = []
    if args.platform:
        words += ["--platform", args.platform]
    if args.devices:
        words += ["--devices", str(args.devices)]
    if getattr(args, "trust", False):
        words.append("--trust")
    return words


# ---- --jobs: one command as several that share its work, each on its part of the devices ---------


def groups_of(args: Namespace) -> list[Any]:
    """The devices of each of --jobs commands; none where this does the work. Raises UserError."""
    from xlingjax.runtime.machine import slurm_tasks
    from xlingjax.workflows.side_by_side import device_groups

    if (args.jobs or 1) == 1:
        return []
    several = getattr(args, "num_processes", 0) or os.environ.get("XLINGJAX_NUM_PROCESSES")
    if several or slurm_tasks() > 1:
        raise UserError(
            f"--jobs {args.jobs}: several processes are one training (--num_processes), which has"
            " none beside it; leave it out"
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
