"""Every test sees 8 host CPU devices, one persistent compile cache, and the same tiny model and
batches."""

import gc
import os
import re
from collections import Counter
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# As many workers as cores: each keeps to one, or the threads of the compilers get in each other's
# way.
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
if hasattr(os, "sched_setaffinity") and WORKERS > 1:
    CORES = sorted(os.sched_getaffinity(0))
    if len(CORES) == WORKERS:
        worker = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        os.sched_setaffinity(0, {CORES[worker]})

# XLINGJAX_TEST_PLATFORM=cuda: the tests that need one, on a machine with an accelerator.
os.environ["JAX_PLATFORMS"] = os.environ.get("XLINGJAX_TEST_PLATFORM", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    flags = ["--xla_force_host_platform_device_count=8"]
    if metadata.version("jaxlib").startswith("0.10."):
        # A test compiles more than it computes: this compiler makes slower code in a sixth of the
        # time.
        flags += ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
        flags += ["--xla_cpu_use_fusion_emitters=false"]
        # A program in one piece: these are too small to be worth cutting up.
        flags += ["--xla_cpu_parallel_codegen_split_count=1"]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault(
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none"
)  # they put the cache's path into its keys
os.environ.setdefault(
    "JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0"
)  # programs are lowered a little faster without
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Tracing makes many small objects that live: looking for garbage among them is a tenth of the time.
gc.set_threshold(100_000, 20, 100)

import pytest  # noqa: E402

from tests.helpers import tiny  # noqa: E402

LONG = frozenset((Path(__file__).parent / "long.txt").read_text(encoding="utf-8").splitlines())


# Before -m leaves out what is marked.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid in LONG:
            item.add_marker(pytest.mark.long)


# {what may be missing: (in which words a test says that it is, the remedy)}. An extra of
# pyproject.toml is installed by its own target.
MISSING = {
    "interop": ("'(torch|transformers|huggingface_hub)'", "make setup-interop"),
    "clean": (
        "'(sentencex|datasketch|mwxml|mwparserfromhell|fasttext)'|extra clean",
        "make setup-clean",
    ),
    "beam": ("'apache_beam'", "make setup-beam"),
    "browser": ("extra browser", "make setup-browser"),
    "chromium": ("no browser on this machine", "install it, as with apt-get install chromium"),
    "TPU compiler": ("compiler of TPUs", "make test-tpu"),
    "GPU compiler": ("compiler of cuda", "make test-cuda"),
    "GPU": ("NVIDIA GPU", "a machine that has one"),
    "XLINGJAX_DATA": ("XLINGJAX_DATA", "export XLINGJAX_DATA=FOLDER"),
    "XLINGJAX_RELEASED": ("XLINGJAX_RELEASED", "export XLINGJAX_RELEASED=FOLDER"),
}
SKIPPED = ROOT / ".cache" / "skipped.txt"
"""Tests and files of tests that this run skipped for want of something; `make test-skipped` runs
them again."""


def pytest_terminal_summary(terminalreporter):
    """One line: what was skipped for want of what, and the remedies."""
    missing, other, remedies, again = Counter(), Counter(), {}, []
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        for name, (words, remedy) in MISSING.items():
            if re.search(words, reason):
                missing[name] += 1
                remedies[remedy] = None
                again.append(report.nodeid)
                break
        else:
            other[reason] += 1
    parts = []
    if missing:
        counted = ", ".join(f"{name} {count}" for name, count in missing.most_common())
        makes = [remedy.removeprefix("make ") for remedy in remedies if remedy.startswith("make ")]
        steps = [remedy for remedy in remedies if not remedy.startswith("make ")]
        if makes:
            steps.insert(0, "make " + " ".join(makes))
        parts += [f"for want of {counted} (files of tests count as one)", "; ".join(steps)]
    parts += [f"{reason} {count}" for reason, count in other.items()]
    if parts:
        terminalreporter.write_line(f"skipped: {'; '.join(parts)}")
    SKIPPED.parent.mkdir(exist_ok=True)
    SKIPPED.write_text("".join(f"{test}\n" for test in again), encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_config():
    """A two-layer float32 model without dropout: what is compared across meshes and microbatches
    must not be noise."""
    from xlingjax.model.config import preset

    return preset(
        "tiny",
        layers=2,
        dim=32,
        heads=4,
        ffn=64,
        vocab_size=tiny.VOCAB,
        max_positions=32,
        num_languages=len(tiny.LANGUAGES),
        dropout=0.0,
        attention_dropout=0.0,
        dtype="float32",
        unroll=1,
    )


@pytest.fixture(scope="session")
def tiny_encoder(tiny_config):
    from xlingjax.model.encoder import Encoder

    return Encoder(tiny_config)


@pytest.fixture(scope="session")
def tiny_params(tiny_encoder):
    return tiny.params(tiny_encoder)


@pytest.fixture(scope="session")
def tiny_finished(tmp_path_factory):
    """(workdir, Result) of a run of two steps; for reading, not for continuing."""
    from tests.helpers import tiny_run

    workdir = tmp_path_factory.mktemp("finished")
    return workdir, tiny_run.run(workdir, steps=2)


@pytest.fixture(scope="session")
def official(tmp_path_factory):
    """The folder of `official_files.write`: xtreme, xtreme_labels, xglue. For reading."""
    from tests.helpers import official_files

    return official_files.write(tmp_path_factory.mktemp("official"))


@pytest.fixture(scope="session")
def tiny_batches():
    """`tiny_batches["mlm"]` is one NumPy batch; `tiny.batch(name, seed)` makes others."""
    return {name: tiny.batch(name) for name in (*tiny.OBJECTIVES, *tiny.LABELLED)}
