"""`xlingjax doctor`: is this installation sound? Every finding carries the command that repairs it.

It looks at the Python version, at every requirement, at folders that two distributions both wrote
into (t5 0.9.4 requires seqio-nightly and tfds-nightly, whose files replace those of seqio and
tensorflow-datasets), at the optional extras, devices and the compile cache, and whether the heavy
packages import together.
"""

import importlib
import importlib.metadata as metadata
import re
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from xlingjax.cli.verb import Verb
from xlingjax.runtime.quiet import quiet_stderr

# What each extra is for, and the module that shows it is there.
EXTRAS = {
    "dev": ("tests and linter", "pytest"),
    "search": ("approximate search of `mine`", "faiss"),
    "interop": ("make bench beside transformers", "transformers"),
    "beam": ("cleaning and caching large corpora with Beam", "apache_beam"),
    "clean": ("data clean", "mwxml"),
}
# Of two distributions that own one folder, the one to keep; else the first.
KEEP = {"tensorflow_datasets": "tensorflow-datasets", "tensorflow_text": "tensorflow-text"}
# Those whose compiled parts clash when their versions do not fit each other.
HEAVY = (
    *("tensorflow", "tensorflow_text", "sentencepiece", "seqio", "flax.linen", "optax"),
    "orbax.checkpoint",
)
# Of lines of RECORD: a package with an __init__.py of its own, at the top. Namespace packages have
# none, and several distributions may share those.
_TOP_PACKAGE = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)/__init__\.py,", re.MULTILINE)


class Finding(NamedTuple):
    level: str  # "ok", "note" (works, could be better) or "broken"
    subject: str
    text: str
    repair: str = ""


def check_requirements(requires: Iterable[str] | None = None) -> Iterator[Finding]:
    """Each requirement without an extra marker, against what is installed; Python's own first."""
    from packaging.requirements import Requirement

    # As pyproject.toml says; pip checks it only when it installs.
    sound = (3, 11) <= sys.version_info[:2] < (3, 13)
    version = f"{sys.version.split()[0]} at {sys.executable}; 3.11 or 3.12 is needed"
    yield Finding(
        "ok" if sound else "broken",
        "python",
        version,
        "" if sound else "rm -rf .venv && make setup PYTHON=python3.11",
    )
    for text in metadata.requires("xlingjax") or [] if requires is None else requires:
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
            outside = f"{version} is outside {requirement.specifier}"
            yield Finding("broken", requirement.name, outside, repair)


def check_shared_packages(
    distributions: Iterable[metadata.Distribution] | None = None,
) -> Iterator[Finding]:
    """Top-level packages that the file lists of at least two distributions claim."""
    owners: dict[str, set[str]] = {}
    for distribution in metadata.distributions() if distributions is None else distributions:
        # Not every installer writes one.
        record = distribution.read_text("RECORD") or ""
        # The form under which two spellings of one name are equal (PEP 503).
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        for package in _TOP_PACKAGE.findall(record):
            owners.setdefault(package, set()).add(name)
    for package, names in sorted(owners.items()):
        if len(names) < 2:
            continue
        # Both are taken out and one is installed anew, since neither has all of its files any more.
        keep = KEEP.get(package, min(names))
        others = " ".join(sorted(names - {keep}))
        yield Finding(
            "broken",
            f"folder {package}/",
            f"{' and '.join(sorted(names))} both wrote into it: which files are there depends on"
            " the order of installation",
            f"pip uninstall -y {others} && pip install --force-reinstall --no-deps"
            f" -c constraints.txt {keep}",
        )


def check_extras(find: Callable[[str], object] | None = None) -> Iterator[Finding]:
    # Found and not imported: torch and transformers take seconds.
    find = find or importlib.util.find_spec
    wanted = [
        (f"extra {extra}", purpose, module, f"pip install -c constraints.txt -e '.[{extra}]'")
        for extra, (purpose, module) in EXTRAS.items()
    ]
    # Without its own requirements, on purpose.
    t5 = ("t5", "its own preprocessors and metrics", "t5", "pip install --no-deps t5==0.9.4")
    for subject, purpose, module, repair in (*wanted, t5):
        if find(module):
            yield Finding("ok", subject, f"{module} is there ({purpose})")
        else:
            yield Finding("note", subject, f"not installed ({purpose})", repair)


def check_devices() -> Iterator[Finding]:
    import jax

    from xlingjax.runtime.machine import NO_PLATFORM, first_line

    try:
        devices = jax.devices()
    except NO_PLATFORM as error:
        yield Finding(
            "broken",
            "devices",
            f"platform {jax.config.jax_platforms!r} is not available: {first_line(error)}",
            "unset JAX_PLATFORMS, or set it to a platform that is there (cpu)",
        )
        return
    kinds = sorted({device.device_kind for device in devices})
    platform = devices[0].platform
    yield Finding("ok", "devices", f"{len(devices)} x {', '.join(kinds)} (platform {platform})")
    # JAX uses an accelerator, so none is left unused.
    if platform != "cpu":
        return
    version = metadata.version("jax")
    # TPU VMs show their chips as one or the other, by generation. Plugins must be of JAX's version.
    unused = {
        "an NVIDIA GPU": (
            ("/dev/nvidia0",),
            f'pip install "jax[cuda13]=={version}" (before Turing, or a driver below 580: cuda12)',
        ),
        "a TPU": (("/dev/accel0", "/dev/vfio/0"), f'pip install "jax[tpu]=={version}"'),
    }
    for name, (places, repair) in unused.items():
        if any(Path(place).exists() for place in places):
            yield Finding("note", "devices", f"{name} is there and JAX does not use it", repair)


def check_compile_cache() -> Iterator[Finding]:
    """The folder of compiled programs must be writable, or every start compiles again."""
    import jax

    from xlingjax.runtime.machine import set_compile_cache

    # As a run sets it, so that it is the folder of runs that is looked at.
    set_compile_cache()
    if not jax.config.jax_compilation_cache_dir:
        why = "HOME is not set, and this user has no entry in passwd"
        yield Finding("broken", "compile cache", why, "export HOME=FOLDER")
        return
    folder = Path(jax.config.jax_compilation_cache_dir)
    # By writing there: the rights of a folder do not tell of a full or read-only disk.
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            yield Finding("ok", "compile cache", str(folder))
    except OSError as error:
        yield Finding(
            "broken",
            "compile cache",
            f"{folder}: {error.strerror}",
            "export JAX_COMPILATION_CACHE_DIR=$HOME/.cache/xlingjax/jax",
        )


def check_imports() -> Iterator[Finding]:
    for module in HEAVY:
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
    yield Finding("ok", "imports", f"{', '.join(HEAVY)} import together")


# Findings are written as they come: what needs no import stands before what an import may crash.
CHECKS = (
    check_requirements,
    check_shared_packages,
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
        for level, subject, text, repair in check():
            broken += level == "broken"
            write(f"{level.upper() if level == 'broken' else level:<6}  {subject:<22} {text}")
            if repair:
                label = "repair:" if level == "broken" else "to add it:"
                write(f"        {label:<22} {repair}")
    write(f"{broken} broken" if broken else "all is well")
    return 1 if broken else 0


def run(args: Namespace) -> int:
    return doctor()


DOCTOR = Verb(
    "doctor", "check this installation; every finding carries the command that repairs it", run
)
