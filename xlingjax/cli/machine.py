"""The options that say which machine a verb runs on, and what is done about them before JAX
starts."""

import argparse
import logging
import os
from argparse import Namespace

from xlingjax.cli.types import count, positive
from xlingjax.errors import UserError


def machine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--platform", default="", help="cpu, gpu or tpu (default: what JAX finds)")
    parser.add_argument(
        "--devices", type=positive, metavar="N", help="make the CPU look like N devices"
    )


def process_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--coordinator",
        default="",
        metavar="HOST:PORT",
        help="process 0 of several (SLURM and TPU pods need none)",
    )
    parser.add_argument(
        "--num_processes", type=count, default=0, metavar="N", help="of all hosts together"
    )
    parser.add_argument(
        "--process_id", type=count, default=-1, metavar="I", help="of this one, from 0"
    )


def prepare_machine(args: Namespace) -> None:
    """Before JAX starts: libraries that log only errors, and as many CPU devices as requested."""
    # TensorFlow reads it once, when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("absl").setLevel(logging.ERROR)
    if not args.devices:
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
    return RuntimeConfig(
        platform=args.platform or "",
        coordinator=getattr(args, "coordinator", ""),
        num_processes=getattr(args, "num_processes", 0),
        process_id=getattr(args, "process_id", -1),
    )


def machine_words(args: Namespace) -> list[str]:
    """The machine's options, and --trust, as words, for commands that are started in processes of
    their own."""
    # Only what was given: the others are found anew in each process.
    words = []
    if args.platform:
        words += ["--platform", args.platform]
    if args.devices:
        words += ["--devices", str(args.devices)]
    if getattr(args, "trust", False):
        words.append("--trust")
    return words
