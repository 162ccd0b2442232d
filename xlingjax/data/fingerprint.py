"""What code does, as a hash: that of its pickled form and of the files of the user's modules."""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import pickletools
import sys
import sysconfig
from collections.abc import KeysView
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import xlingjax

_STANDARD = sysconfig.get_path("stdlib")


def fingerprint(value: Any) -> str | None:
    """A hash that is equal where a value (a preprocessor, its settings) does the same, in any
    process; None where that cannot be told, as of a lambda, a closure, an open file.

    A function goes by its name and the file that defines it, with those of all modules of the
    user's that this one reads; of installed packages by name alone, of this one by its code.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol=4)
    # Without references to what came before: equal values would differ by what they share.
    pickler.fast = True
    try:
        pickler.dump(value)
    # It may be of anyone's: PicklingError, TypeError, AttributeError ...
    except Exception:
        return None
    # Names of modules are among the strings of a pickle.
    content = buffer.getvalue()
    words = {word for _, word, _ in pickletools.genops(content) if isinstance(word, str)}
    digest = hashlib.sha256(content + _own_code())
    for file in sorted(_files_of(words).values()):
        if not file.is_file():
            # Of a notebook.
            return None
        digest.update(file.read_bytes())
    return digest.hexdigest()


def code_of(*values: Any) -> dict[str, str]:
    """{name: hash} of the code of this package, and of users' modules that define these values."""
    files = _files_of({type(value).__module__ for value in values})
    code = {
        name: hashlib.sha256(file.read_bytes()) for name, file in files.items() if file.is_file()
    }
    own = {xlingjax.__name__: hashlib.sha256(_own_code())}
    return {name: digest.hexdigest()[:12] for name, digest in (own | code).items()}


class _Pickler(pickle.Pickler):
    def persistent_id(self, one: Any) -> str | None:
        # Our vocabularies, whose model is an object of C++.
        known = getattr(one, "sha256", None)
        return known if isinstance(known, str) else None

    def reducer_override(self, one: Any) -> Any:
        # SeqIO's sources hold these: names of splits, and functions that close over settings.
        if isinstance(one, KeysView):
            return list, ([*one],)
        is_closure = isinstance(one, FunctionType) and one.__closure__
        if is_closure and _is_library(one.__code__.co_filename):
            return tuple, ([one.__qualname__, *(cell.cell_contents for cell in one.__closure__)],)
        return NotImplemented


def _files_of(names: set[str]) -> dict[str, Path]:
    """{name: file} of the user's modules of these names, and of those whose names they hold."""
    files = {}
    waiting = [*names]
    known: set[str] = set()
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in known or module is None or name.partition(".")[0] == xlingjax.__name__:
            continue
        known.add(name)
        file = getattr(module, "__file__", None)
        if name != "__main__" and (file is None or _is_library(file)):
            continue
        files[name] = Path(file or "<notebook>")
        for one in [*vars(module).values()]:
            named = "__name__" if isinstance(one, ModuleType) else "__module__"
            waiting.append(str(getattr(one, named, "")))
    return files


def _is_library(file: str) -> bool:
    return file.startswith(_STANDARD) or not {"site-packages", "dist-packages"}.isdisjoint(
        Path(file).parts
    )


@functools.cache
def _own_code() -> bytes:
    folder = Path(xlingjax.__file__).parent
    if _is_library(str(folder)):
        return xlingjax.__version__.encode()
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()
