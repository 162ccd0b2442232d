"""Files of `gs://`, `s3://` and whatever else fsspec opens, copied beside the token cache.

A file is fetched once, and again where the store says that it changed. It keeps its folders and its
name, which tell its language; so both sides of a pair lie beside each other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from xlingjax.data.store.entries import cache_root
from xlingjax.errors import UserError
from xlingjax.runtime.machine import first_line

_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "abfs": "adlfs"}
"""What fsspec needs for a store."""


def is_remote(pattern: str) -> bool:
    return "://" in pattern


def fetched(pattern: str) -> list[Path]:
    """The local copies of the files that a pattern or a folder of a store means, sorted.

    Raises UserError: no such store, a package of its own is missing, it refuses.
    """
    # Here: most runs read no store.
    import fsspec

    protocol = pattern.split("://")[0]
    try:
        store, path = fsspec.core.url_to_fs(pattern)
        names = set(store.glob(path))
        folders = [name for name in names if store.isdir(name)]
        if store.isdir(path):
            folders.append(path)
        for folder in folders:
            names.update(store.find(folder))
        files = sorted(name for name in names if store.isfile(name))
        return [_copy(store, protocol, name) for name in files]
    except ImportError:
        package = _PACKAGES.get(protocol, f"what fsspec needs for {protocol}")
        raise UserError(
            f"{pattern}: reading {protocol}:// needs a package: `pip install {package}`"
        ) from None
    # Each store has errors of its own, of rights, names and networks.
    except Exception as error:
        raise UserError(
            f"{pattern} cannot be read: {type(error).__name__}: {first_line(error)}"
        ) from None


def _copy(store: Any, protocol: str, name: str) -> Path:
    local = cache_root() / "remote" / protocol / name.strip("/")
    stamp = local.with_name(f".{local.name}.version")
    # What the store tells of a file: its size and time, or a hash where it has one.
    version = str(store.ukey(name))
    if local.is_file() and stamp.is_file() and stamp.read_text() == version:
        return local
    local.parent.mkdir(parents=True, exist_ok=True)
    partial = local.with_name(f".{local.name}.{os.getpid()}")
    store.get_file(name, str(partial))
    # First the old stamp: a crash between the two leaves a file that is fetched again.
    stamp.unlink(missing_ok=True)
    os.replace(partial, local)
    stamp.write_text(version)
    return local
