"""What code does, as a hash: that of a function, of what it closes over and of what it reads."""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
_STANDARD = sysconfig.get_path("stdlib")
_INSTALLED = ("site-packages", "dist-packages")


class _NotTold(Exception):
    """Nothing tells whether a value is the same in another process."""


def fingerprint(value: Any) -> str | None:
    """A hash that is equal where a value (a preprocessor, its settings) does the same, in any
    process; None where that cannot be told, as of an object of C++.

    A function goes by its code, defaults, closure and the globals it reads, other functions of its
    user among them; one of an installed package by its name and the package's version.
    """
    try:
        said = _said(value, ())
    except _NotTold:
        return None
    return hashlib.sha256(repr(said).encode()).hexdigest()


def _said(value: Any, above: tuple[Any, ...]) -> Any:
    """above: the values that this one is part of."""
    if isinstance(value, _PLAIN):
        return type(value).__name__, repr(value)
    # Functions call themselves, and objects know their owners.
    for depth, one in enumerate(above):
        if one is value:
            return "above", depth
    above = (*above, value)
    if isinstance(value, types.ModuleType):
        return "module", value.__name__
    # tf.DType, without TensorFlow.
    if isinstance(value, re.Pattern) or hasattr(value, "as_numpy_dtype"):
        return _name(type(value)), str(value)
    if _is_library(value) and _found_by_name(value):
        package = sys.modules[value.__module__.partition(".")[0]]
        return _name(value), str(getattr(package, "__version__", ""))
    if isinstance(value, Mapping):
        entries = [(_said(k, above), _said(v, above)) for k, v in value.items()]
        return _name(type(value)), sorted(entries, key=repr)
    if isinstance(value, Set):
        return _name(type(value)), sorted(map(repr, _all(value, above)))
    if isinstance(value, Sequence):
        return _name(type(value)), _all(value, above)
    if isinstance(value, types.CodeType):
        # Not where it stands: a line above it changes nothing.
        return value.co_code.hex(), _all(value.co_consts, above), value.co_names
    if isinstance(value, types.FunctionType):
        return _function(value, above)
    if isinstance(value, type):
        return _name(value), _methods(value, above)
    return _object(value, above)


def _all(values: Any, above: tuple[Any, ...]) -> list[Any]:
    return [_said(one, above) for one in values]


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _is_library(value: Any) -> bool:
    """Whether it is code of an installed package or of Python itself."""
    if isinstance(value, types.FunctionType):
        file = value.__code__.co_filename
    # ufuncs, functions compiled by others.
    elif callable(value) and hasattr(value, "__qualname__"):
        # Python's own, in C, have no file.
        if value.__module__ in sys.stdlib_module_names:
            return True
        file = getattr(sys.modules.get(value.__module__), "__file__", "")
    else:
        return False
    parts = Path(file or "").parts
    inside = any(folder in parts for folder in _INSTALLED)
    return inside or str(file).startswith((_STANDARD, "<frozen"))


def _found_by_name(value: Any) -> bool:
    """Whether its name leads to it: no closure that another call made, like a decorator's."""
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _function(value: types.FunctionType, above: tuple[Any, ...]) -> Any:
    cells = []
    for cell in value.__closure__ or ():
        try:
            cells.append(_said(cell.cell_contents, above))
        # Not set yet, by a function that is being defined.
        except ValueError:
            cells.append("empty")
    read = {}
    if not _is_library(value):
        for name in sorted({*_names(value.__code__)}):
            if name in value.__globals__:
                read[name] = _said(value.__globals__[name], above)
    return (
        _name(value),
        _said(value.__code__, above),
        _said(value.__defaults__, above),
        _said(value.__kwdefaults__, above),
        cells,
        read,
    )


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that code reads, that of functions within it too."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _names(one)


def _methods(value: type, above: tuple[Any, ...]) -> Any:
    """What a class of the user's does and holds, and those that it is derived from."""
    parts: list[Any] = []
    for one in value.__mro__:
        if _is_library(one):
            parts.append(_name(one))
            continue
        for name, member in sorted(vars(one).items()):
            if isinstance(member, (staticmethod, classmethod)):
                member = member.__func__
            if isinstance(member, property):
                member = member.fget
            if isinstance(member, (types.FunctionType, *_PLAIN)):
                parts.append((name, _said(member, above)))
    return parts


def _object(value: Any, above: tuple[Any, ...]) -> Any:
    # A `tf.function`, a cached function, or any other wrapper.
    for name in ("python_function", "__wrapped__"):
        inner = getattr(value, name, None)
        if callable(inner):
            return _name(type(value)), _said(inner, above)
    # Eager tensors, JAX's arrays.
    if (
        hasattr(value, "__array__")
        and hasattr(value, "dtype")
        and not isinstance(value, np.ndarray)
    ):
        return _said(np.asarray(value), above)
    # Our own vocabularies, whose model is an object of C++.
    for vocabulary in (value, getattr(value, "vocabulary", None)):
        if isinstance(getattr(vocabulary, "sha256", None), str):
            return _name(type(value)), vocabulary.sha256
    try:
        made, given, *rest = value.__reduce_ex__(2)
        # Lists and mappings that are more than that have their entries last.
        parts = [list(one) if isinstance(one, Iterator) else one for one in rest]
    # It may be of anyone's; of a file or a lock it says TypeError.
    except Exception:
        raise _NotTold from None
    kind = _said(type(value), above)
    return kind, _name(made), _all(given, above), _all(parts, above)
