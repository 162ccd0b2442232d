"""The machine a run stands on: platform, processes, compile cache, a folder that can be written."""

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from xlingjax.errors import UserError
from xlingjax.runtime.lock import IN_USE, alone_in
from xlingjax.runtime.numerals import is_whole

HEARTBEAT = 100  # seconds without a sign of life after which a process of several counts as dead
BACKENDS = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
INSTALL = {
    "cpu": "unset JAX_PLATFORMS",
    "gpu": "install xlingjax[cuda] and check nvidia-smi",
    "tpu": "install xlingjax[tpu]",
}
# What JAX raises where a platform cannot be used. The assertion, which says nothing: it knows the
# platform and is installed without the plugin for it.
NO_PLATFORM = (RuntimeError, AssertionError)


@dataclass(frozen=True)
class RuntimeConfig:
    """Empty values: take what the environment says."""

    platform: str = ""
    """"cpu", "gpu" or "tpu"; empty: what JAX finds. One that is asked for and not there is an
    error, never a silent CPU."""
    coordinator: str = ""
    """host:port of process 0, for several processes (or XLINGJAX_COORDINATOR)."""
    num_processes: int = 0
    """Number of processes (or XLINGJAX_NUM_PROCESSES)."""
    process_id: int = -1
    """This process's number from 0 (or XLINGJAX_PROCESS_ID)."""


def start(config: RuntimeConfig = RuntimeConfig()) -> str:
    """Prepare JAX; to be called before anything else uses it (a second call changes nothing).
    Returns one line that describes the machine. Raises UserError for a platform that is not there
    and for processes that do not find each other."""
    if config.platform and config.platform not in BACKENDS:
        raise UserError(f"platform {config.platform!r} is not one of {', '.join(BACKENDS)}")
    # First what JAX reads when it begins: a backend that has begun takes no other options.
    set_compile_cache()
    keep_freed_memory()
    # Before the platform is looked at, which starts a backend: processes join before that or never.
    join_processes(config)
    require_platform(config.platform)
    if jax.process_count() > 1:
        # A first collective: processes out of reach hang here, under a line that says so.
        print(
            f"process {jax.process_index()} of {jax.process_count()}: waiting for the others",
            flush=True,
        )
        multihost_utils.sync_global_devices("start")
    device = jax.devices()[0]
    return (
        f"{jax.device_count()} x {device.device_kind} ({device.platform}), {jax.process_count()}"
        f" process{'es' if jax.process_count() > 1 else ''} x {jax.local_device_count()} devices"
    )


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next step, where it can be told to (glibc).

    XLA takes a step's buffers from malloc and frees them after it. By default glibc returns large
    ones to the system each time and gets them back page by page, zeroed: a third of a step on CPU.
    It can be told to keep them, but only the main thread's, so a step on CPU runs in the thread
    that calls it. The process then holds its peak memory until it ends.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4  # <malloc.h>
    # Large blocks by mmap go back to the system when they are freed, whatever the threshold.
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, -1)
    mallopt(m_top_pad, 64 << 20)


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of <malloc.h>."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def give_back_memory(kept: int = 0) -> None:
    """Have the C library give back what it keeps, where that is more than so many bytes (glibc
    2.33). A small block in the place of a large one that was freed, and the next large one no
    longer fits: without this a process would come to hold several times what it uses."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return
    library.mallinfo2.restype = _Mallinfo
    if library.mallinfo2().fordblks > kept:
        library.malloc_trim(0)


def set_compile_cache() -> None:
    """Keep compiled programs on disk, so that the second start of a run compiles nothing. What a
    user has set in the environment (JAX_COMPILATION_CACHE_DIR) stays."""
    folder = os.path.expanduser("~/.cache/xlingjax/jax")
    # As it stands where there is no home: a folder "~" would be made.
    if not jax.config.jax_compilation_cache_dir and not folder.startswith("~"):
        jax.config.update("jax_compilation_cache_dir", folder)
        # Those of one second, JAX's limit, too: encoding has a program for each length.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def number_in(variable: str, default: int) -> int:
    value = os.environ.get(variable, "")
    if not value:
        return default
    try:
        return int(value)
    except ValueError:
        raise UserError(f"{variable}={value!r} is not a whole number") from None


def join_processes(config: RuntimeConfig) -> None:
    """Join the processes of one run: by the configuration, by XLINGJAX_* variables, or as SLURM and
    TPU pods announce them. If one dies or ends in an error, JAX ends the others within twice
    XLINGJAX_HEARTBEAT seconds, and its message names it."""
    if jax.distributed.is_initialized():
        return
    coordinator = config.coordinator or os.environ.get("XLINGJAX_COORDINATOR", "")
    count = config.num_processes or number_in("XLINGJAX_NUM_PROCESSES", 0)
    index = config.process_id
    if index < 0:
        index = number_in("XLINGJAX_PROCESS_ID", -1)
    # Under SLURM and on TPU pods JAX finds the coordinator by itself; elsewhere it has to be named.
    slurm = slurm_tasks() > 1
    pod = "," in os.environ.get("TPU_WORKER_HOSTNAMES", "")
    if not (coordinator or count > 1 or slurm or pod):
        return
    # Half of the three would have processes wait for each other for ever.
    if (coordinator or count > 1) and not (coordinator and count > 0 and 0 <= index < count):
        raise UserError(
            "several processes need coordinator (host:port), num_processes and process_id"
            f" together; got coordinator={coordinator!r} num_processes={count} process_id={index}"
        )
    if index == 0 and coordinator:
        _require_free(coordinator)
    heartbeat = number_in("XLINGJAX_HEARTBEAT", HEARTBEAT)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    timeouts = {
        "heartbeat_timeout_seconds": heartbeat,
        # A process that ends in an error waits so long for the others, which wait for it.
        "shutdown_timeout_seconds": heartbeat,
    }
    try:
        if coordinator:
            jax.distributed.initialize(coordinator, count, index, **timeouts)
        else:
            jax.distributed.initialize(**timeouts)
    except RuntimeError as error:
        raise UserError(
            f"process {index} could not join coordinator {coordinator or 'of the cluster'}:"
            f" {first_line(error)}"
        ) from error


def _require_free(coordinator: str) -> None:
    """Raises UserError where another program listens at the port: JAX may crash then."""
    port = coordinator.rpartition(":")[2]
    if not is_whole(port) or int(port) > 65535:
        raise UserError(f"coordinator={coordinator}: give host:port")
    try:
        socket.create_server(("", int(port))).close()
    except OSError as error:
        raise UserError(
            f"coordinator={coordinator}: {os.strerror(error.errno)}, by another program or an"
            " earlier run; choose another port"
        ) from None


def slurm_tasks() -> int:
    """Processes that `srun` has started beside this one, itself included; 1: it has not. In the
    shell of a batch job, whose variables tell of the whole job, a process is alone."""
    if "SLURM_PROCID" in os.environ and "SLURM_STEP_NODELIST" in os.environ:
        return number_in("SLURM_NTASKS", 1)
    return 1


def require_platform(platform: str) -> None:
    """Raise UserError unless JAX runs on `platform` (empty: on whatever it finds)."""
    if platform:
        # JAX would fall back to the CPU in silence where a GPU cannot be used.
        jax.config.update("jax_platforms", BACKENDS[platform])
    try:
        backend = jax.default_backend()
    except NO_PLATFORM as error:
        raise UserError(
            f"platform {platform or os.environ.get('JAX_PLATFORMS')!r} is not available:"
            f" {first_line(error)}; {INSTALL.get(platform, 'unset JAX_PLATFORMS')} or choose"
            " another platform"
        ) from error
    if platform and backend != platform:
        raise UserError(
            f"platform {platform!r} was asked for, JAX runs on {backend!r}; {INSTALL[platform]}"
        )


def devices_found(platform: str) -> int:
    """How many devices a process would have, asked in one of its own: who asks holds them. Raises
    UserError where it finds none of the platform."""
    environment = os.environ | ({"JAX_PLATFORMS": BACKENDS[platform]} if platform else {})
    count = "import jax; print(jax.device_count())"
    asked = subprocess.run(
        [sys.executable, "-c", count], env=environment, capture_output=True, text=True
    )
    if asked.returncode:
        said = first_line(asked.stderr.strip().rpartition("\n")[2])
        raise UserError(
            f"platform {platform or os.environ.get('JAX_PLATFORMS')!r} is not available: {said};"
            f" {INSTALL.get(platform, 'unset JAX_PLATFORMS')} or choose another platform"
        )
    return int(asked.stdout)


def is_primary() -> bool:
    """Whether this process writes logs."""
    return jax.process_index() == 0


def all_agree(ok: bool) -> bool:
    """Whether `ok` holds in every process."""
    if jax.process_count() == 1:
        return ok
    return bool(np.all(multihost_utils.process_allgather(np.array(ok))))


def primary_says(decision: bool) -> bool:
    """What the first process has decided, in every process."""
    return bool(multihost_utils.broadcast_one_to_all(np.array(decision)))


def of_processes(value: Any) -> list[Any]:
    """A value of JSON of every process, in their order."""
    if jax.process_count() == 1:
        return [value]
    content = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.array(len(content)))
    # Arrays that are gathered are of one size.
    padded = np.pad(content, (0, sizes.max() - len(content)))
    rows = multihost_utils.process_allgather(padded)
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def barrier(name: str) -> None:
    multihost_utils.sync_global_devices(name)


def require_room(workdir: Path, needed_bytes: int) -> None:
    """Raise UserError now, not after hours, if the disk of the folder has too little room."""
    free = shutil.disk_usage(workdir).free
    if free < needed_bytes:
        raise UserError(
            f"workdir {workdir} has {free / 1e6:,.1f} MB free, the checkpoints of this run take "
            f"{needed_bytes / 1e6:,.1f} MB; make room or choose another --to"
        )


@contextlib.contextmanager
def one_run_in(workdir: Path) -> Iterator[None]:
    """While it is open no other run is in `workdir`; one of several processes is one run. Raises
    UserError where another is, and where the processes do not see one folder."""
    with contextlib.ExitStack() as stack:
        refused = None
        if is_primary():
            try:
                stack.enter_context(alone_in(workdir, "choose another --to"))
            except UserError as error:
                refused = error
        if not all_agree(refused is None):
            raise refused or UserError(
                f"{workdir} is in use: the first process of this run says by whom"
            )
        # A folder of the network may take so long to show what another host has written.
        until = time.monotonic() + 90
        while not (seen := (workdir / IN_USE).exists()) and time.monotonic() < until:
            time.sleep(1)
        if not all_agree(seen):
            raise UserError(
                f"{workdir} is not the same folder in every process: give a --to on a disk"
                " that all of them see"
            )
        yield


@contextlib.contextmanager
def out_of_memory_explained() -> Iterator[None]:
    """A device that runs out of memory becomes a UserError that names what to change."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise UserError(
            f"out of device memory: {first_line(error)}; raise MICROBATCHES (same batch, less at a"
            " time), set REMAT=full, spread the parameters (--gin-file gin/mesh/fsdp.gin), or lower"
            " LENGTH or BATCH; `xlingjax plan --search` names the fastest settings that fit"
        ) from error


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
