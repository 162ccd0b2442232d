"""The options that say which machine a verb runs on, and what they do before JAX starts."""

import logging
from argparse import Namespace

from xlingjax.cli.types import count, positive
from xlingjax.cli.verb import option
from xlingjax.errors import UserError
from xlingjax.runtime.tensorflow import prepare_tensorflow

MACHINE = (
    option("--platform", "cpu, gpu or tpu (default: what JAX finds)", default=""),
    option("--devices", "make the CPU look like N devices", positive, "N"),
)
RECIPE = (
    option("--gin-file", "a recipe; may repeat", action="append", default=[], metavar="FILE"),
    option("--trust", "the config.gin of a run may import modules, which may do anything", bool),
    *MACHINE,
)
PROCESSES = (
    option(
        "--coordinator", "process 0 (SLURM, TPU pods need none)", metavar="HOST:PORT", default=""
    ),
    option("--num-processes", "of all hosts together", count, "N", default=0),
    option("--process-id", "of this one, from 0", count, "I", default=-1),
)


def prepare_machine(args: Namespace) -> None:
    """Before JAX starts: libraries that log only errors, and as many CPU devices as requested."""
    prepare_tensorflow()
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
