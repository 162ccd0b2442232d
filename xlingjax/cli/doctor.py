"""`xlingjax doctor`: is this installation sound? Every finding carries the command that repairs it.

Looks at: the Python version, every requirement against what is installed, folders that two
distributions both wrote into (t5 0.9.4 requires seqio-nightly and tfds-nightly, whose files replace
those of seqio and tensorflow-datasets), the optional extras, devices, the compile cache, and
whether the heavy packages import together.
"""

import argparse
import importlib
import importlib.metadata as metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from xlingjax.cli.verb import Verb
from xlingjax.runtime.quiet import quiet_stderr

MARKS = {"ok": "ok    ", "note": "note  ", "broken": "BROKEN"}
# What each extra is for, and the module that shows it is there.
EXTRAS = {
    "dev": ("tests and linter", "pytest"),
    "search": ("approximate search of `mine`", "faiss"),
    "interop": ("make bench beside transformers", "transformers"),
    "beam": ("cleaning and caching large corpora with Beam", "apache_beam"),
    "clean": ("data clean", "mwxml"),
    "kenlm": ("perplexities by KenLM files", "kenlm"),
}
# NVIDIA's release notes: the first driver of each CUDA, and the first compute capability (that of
# Turing) of CUDA 13.
OLDEST_DRIVER = {"cuda12": 525, "cuda13": 580}
CUDA_13_CARDS = (7, 5)
# Of two distributions that own one folder, the one to keep.
KEEP = {
    "seqio": "seqio",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow": "tensorflow",
    "tensorflow_text": "tensorflow-text",
    "jax": "jax",
    "t5": "t5",
}
# Of lines of RECORD: a package with an __init__.py of its own, at the top. Namespace packages have
# none, and several distributions may share those.
_TOP_PACKAGE = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)/__init__\.py,", re.MULTILINE)


@dataclass(frozen=True)
class Finding:
    level: str
    """"ok", "note" (works, could be better) or "broken"."""
    subject: str
    text: str
    repair: str = ""


def normalised(name: str) -> str:
    """PEP 503: the form under which two spellings of one distribution name are equal."""
    return re.sub(r"[-_.]+", "-", name).lower()


def shared_packages(distributions: Iterable[metadata.Distribution]) -> dict[str, list[str]]:
    """{top-level package: distributions whose file lists both claim its __init__.py}, where there
    are at least two."""
    owners: dict[str, set[str]] = {}
    for distribution in distributions:
        # Not every installer writes one.
        record = distribution.read_text("RECORD") or ""
        for package in _TOP_PACKAGE.findall(record):
            owners.setdefault(package, set()).add(normalised(distribution.metadata["Name"]))
    shared = {}
    for package, names in sorted(owners.items()):
        if len(names) > 1:
            shared[package] = sorted(names)
    return shared


def check_python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    # As pyproject.toml says; pip checks it only when it installs.
    if (3, 11) <= sys.version_info[:2] < (3, 13):
        yield Finding("ok", "python", f"{version} at {sys.executable}")
    else:
        yield Finding(
            "broken",
            "python",
            f"{version}: 3.11 or 3.12 is needed",
            "rm -rf .venv && make setup PYTHON=python3.11",
        )


def check_requirements(requires: Iterable[str] | None = None) -> Iterator[Finding]:
    """Each requirement without an extra marker, against what is installed."""
    from packaging.requirements import Requirement

    if requires is None:
        requires = metadata.requires("xlingjax") or []
    for text in requires:
        requirement = Requirement(text)
        # Those of extras are optional, see `check_extras`.
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        repair = f'pip install "{requirement.name}{requirement.specifier}"'
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Finding("broken", requirement.name, "not installed", repair)
            continue
        # Without it a specifier holds no pre-release, whatever its number.
        if requirement.specifier.contains(version, prereleases=True):
            yield Finding("ok", requirement.name, version)
        else:
            yield Finding(
                "broken", requirement.name, f"{version} is outside {requirement.specifier}", repair
            )


def check_shared_packages(
    distributions: Iterable[metadata.Distribution] | None = None,
) -> Iterator[Finding]:
    if distributions is None:
        distributions = metadata.distributions()
    for package, names in shared_packages(distributions).items():
        # Both are taken out and one is installed anew, since neither has all of its files any more.
        keep = KEEP.get(package, names[0])
        others = [name for name in names if name != keep]
        yield Finding(
            "broken",
            f"folder {package}/",
            f"{' and '.join(names)} both wrote into it: which files are there depends on the order"
            " of installation",
            f"pip uninstall -y {' '.join(others)} && pip install --force-reinstall --no-deps"
            f" {keep}{_pin(keep)}",
        )


def _pin(name: str) -> str:
    try:
        return f"=={metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return ""


def check_t5() -> Iterator[Finding]:
    try:
        yield Finding(
            "ok",
            "t5",
            f"{metadata.version('t5')} (installed without its own requirements, on purpose)",
        )
    except metadata.PackageNotFoundError:
        yield Finding(
            "note",
            "t5",
            "not installed; only its own preprocessors and metrics need it",
            "pip install --no-deps t5==0.9.4",
        )


def check_extras(find: Callable[[str], object] | None = None) -> Iterator[Finding]:
    # Found and not imported: torch and transformers take seconds.
    find = find or importlib.util.find_spec
    for extra, (purpose, module) in EXTRAS.items():
        if find(module):
            yield Finding("ok", f"extra {extra}", f"{module} is there ({purpose})")
        else:
            yield Finding(
                "note",
                f"extra {extra}",
                f"not installed ({purpose})",
                f"pip install -c constraints.txt -e '.[{extra}]'",
            )


def check_devices() -> Iterator[Finding]:
    import jax

    from xlingjax.runtime.machine import NO_PLATFORM, first_line

    try:
        devices = jax.devices()
    except NO_PLATFORM as error:
        reason = f"platform {jax.config.jax_platforms!r} is not available: {first_line(error)}"
        yield Finding(
            "broken",
            "devices",
            reason,
            "unset JAX_PLATFORMS, or set it to a platform that is there (cpu)",
        )
        return
    kinds = sorted({device.device_kind for device in devices})
    yield Finding(
        "ok", "devices", f"{len(devices)} x {', '.join(kinds)} (platform {devices[0].platform})"
    )
    # JAX uses an accelerator, so none is left unused.
    if devices[0].platform != "cpu":
        return
    # The plugin of an accelerator must be of JAX's own version.
    version = metadata.version("jax")
    if Path("/dev/nvidia0").exists():
        extra, why = cuda_of(_cards())
        repair = f'pip install "jax[{extra}]=={version}"'
        if not extra:
            repair = "update the driver of NVIDIA"
        yield Finding(
            "note", "devices", f"an NVIDIA GPU is there and JAX does not use it{why}", repair
        )
    # TPU VMs show their chips as one or the other, by generation.
    if Path("/dev/accel0").exists() or Path("/dev/vfio/0").exists():
        yield Finding(
            "note",
            "devices",
            "a TPU seems to be there and JAX does not use it",
            f'pip install "jax[tpu]=={version}"',
        )


def _cards() -> list[str]:
    """Of each NVIDIA GPU its compute capability and the driver: "7.0, 535.183.01"."""
    asked = "--query-gpu=compute_cap,driver_version"
    try:
        done = subprocess.run(
            ["nvidia-smi", asked, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def cuda_of(cards: Iterable[str]) -> tuple[str, str]:
    """(JAX's extra for these cards, what decides it), of lines as `_cards` gives them; the extra is
    "" where the driver is older than both."""
    for card in cards:
        numbers = re.findall(r"\d+", card)
        if len(numbers) < 3:
            continue
        capability = (int(numbers[0]), int(numbers[1]))
        driver = int(numbers[2])
        if driver < OLDEST_DRIVER["cuda12"]:
            least = OLDEST_DRIVER["cuda12"]
            return "", f": its driver is {driver}, CUDA 12 needs {least}"
        if capability < CUDA_13_CARDS:
            major, minor = capability
            return "cuda12", f": CUDA 13 has no card of {major}.{minor}"
        if driver < OLDEST_DRIVER["cuda13"]:
            least = OLDEST_DRIVER["cuda13"]
            return "cuda12", f": its driver is {driver}, CUDA 13 needs {least}"
    return "cuda13", ""


def check_compile_cache() -> Iterator[Finding]:
    """The folder that runs use for compiled programs must be writable, or every start compiles
    again."""
    import jax

    from xlingjax.runtime.machine import set_compile_cache

    # As a run sets it, so that it is the folder of runs that is looked at.
    set_compile_cache()
    folder = Path(jax.config.jax_compilation_cache_dir)
    # By writing there: the rights of a folder do not tell of a full or read-only disk.
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield Finding(
            "broken",
            "compile cache",
            f"{folder}: {error.strerror}",
            "export JAX_COMPILATION_CACHE_DIR=$HOME/.cache/xlingjax/jax",
        )
        return
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    yield Finding("ok", "compile cache", f"{folder} ({size / 2**20:.0f} MiB)")


def check_imports() -> Iterator[Finding]:
    """The packages whose compiled parts clash when their versions do not fit each other."""
    # Read when TensorFlow is imported: its notices would stand between the findings.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for module in (
        "tensorflow",
        "tensorflow_text",
        "sentencepiece",
        "seqio",
        "flax.linen",
        "optax",
        "orbax.checkpoint",
    ):
        try:
            with quiet_stderr():
                importlib.import_module(module)
        # Whatever a broken installation raises is the finding.
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0]
            yield Finding(
                "broken",
                f"import {module}",
                f"{type(error).__name__}: {reason}",
                "pip install --force-reinstall -c constraints.txt -e .",
            )
            # Those that follow would fail by the same clash.
            return
    yield Finding(
        "ok", "imports", "tensorflow, sentencepiece, seqio, flax, optax and orbax import together"
    )


# Findings are written as they come: what needs no import stands before what an import may crash.
CHECKS = (
    check_python,
    check_requirements,
    check_shared_packages,
    check_t5,
    check_extras,
    check_devices,
    check_compile_cache,
    check_imports,
)


def doctor(
    checks: Iterable[Callable[[], Iterable[Finding]]] = CHECKS, write: Callable[[str], None] = print
) -> int:
    """Write every finding as it comes; 1 when something is broken, else 0."""
    broken = 0
    for check in checks:
        for finding in check():
            broken += finding.level == "broken"
            write(f"{MARKS[finding.level]}  {finding.subject:<22} {finding.text}")
            if not finding.repair:
                continue
            label = "to add it:"
            if finding.level == "broken":
                label = "repair:"
            write(f"        {label:<22} {finding.repair}")
    if broken:
        write(f"{broken} broken")
        return 1
    write("all is well")
    return 0


def options(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(args: argparse.Namespace) -> int:
    return doctor()


VERB = Verb(
    "doctor",
    "check this installation; every finding carries the command that repairs it",
    options,
    run,
)
