"""One command as several, side by side on groups of this machine's devices: they share its work
through the claims on it (see `jobs.many`)."""

import dataclasses
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from xlingjax.errors import EXIT_CODE, UserError
from xlingjax.workflows.jobs.many import Command, Stop, run_all

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclasses.dataclass(frozen=True)
class Group:
    """The devices of one of several commands."""

    devices: int
    words: tuple[str, ...] = ()  # that its command line has more
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def device_groups(jobs: int, platform: str = "", devices: int | None = None) -> list[Group]:
    """A group of devices for each of so many commands. platform, devices: as the command line has
    them. JAX is not started, which would take the devices. Raises UserError where there are too few
    devices, or some that cannot be shared out."""
    if jobs < 1:
        raise UserError(f"--jobs {jobs}: must be at least 1")
    cards = []
    if devices is None and not _is_cpu(platform):
        if platform == "tpu" or (not platform and _has_tpu()):
            raise UserError(
                f"--jobs {jobs}: a TPU's chips are one process's: start the same command on each"
                " host, with one --to, and they share the work"
            )
        cards = _cards()
        if platform == "gpu" and not cards:
            raise UserError(f"--jobs {jobs}: nvidia-smi names no GPU")
    count = len(cards) or devices or jobs
    each = count // jobs
    if not each or count % jobs:
        fitting = [str(n) for n in range(1, count + 1) if count % n == 0]
        raise UserError(
            f"--jobs {jobs} does not share out {count} devices: give one of {', '.join(fitting)}"
        )
    if not cards:
        return [Group(each, ("--devices", str(each)))] * jobs
    shares = [cards[n : n + each] for n in range(0, count, each)]
    return [Group(each, (), {VISIBLE: ",".join(own)}) for own in shares]


def devices_here(platform: str = "", devices: int | None = None) -> int:
    """How many devices a command has, as told without JAX, which would take them."""
    if devices is not None:
        return devices
    if _is_cpu(platform):
        return 1
    if platform != "gpu" and _has_tpu():
        return len([*Path("/dev").glob("accel*")]) or 1
    return len(_cards()) or 1


def _is_cpu(platform: str) -> bool:
    return (platform or os.environ.get("JAX_PLATFORMS")) == "cpu"


def _cards() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if VISIBLE in os.environ:
        # CUDA takes -1, as any number that is none, for no GPU at all.
        named = os.environ[VISIBLE].split(",")
        return [one for one in named if one and not one.startswith("-")]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    names = [line for line in listed.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(names))]


def _has_tpu() -> bool:
    if importlib.util.find_spec("libtpu") is None:
        return False
    return any(Path("/dev").glob("accel*")) or Path("/dev/vfio/0").exists()


def run_groups(
    verb: str, words: Sequence[str], groups: Sequence[Group], say: Callable[[str], None] = print
) -> int:
    """Run the command `xlingjax WORDS` once for each group, to their end; what they print has the
    number of its group before it. The exit status: 0, or that of one that was asked to stop and has
    saved. Raises UserError where one failed, when all have ended; Stopped after SIGTERM, SIGINT or
    SIGHUP, when all have saved."""
    stop = Stop(verb)
    jobs = []
    for number, group in enumerate(groups):
        line = [sys.executable, "-m", "xlingjax", *words, *group.words]
        jobs.append(
            Command(
                f"job {number + 1}",
                line,
                stop,
                say,
                prefix=f"[{number + 1}] ",
                environment=group.environment,
                passed=(EXIT_CODE,),
            )
        )
    with stop.listen():
        status = run_all(jobs, len(jobs), say, stop)
        stop.leave_if_requested()
    return status
