"""The types that a function declares for what recipes bind to its parameters. No gin here."""

import collections.abc
import dataclasses
import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from xlingjax.errors import SettingError
from xlingjax.training.stages import STAGES, is_staged

_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string in quotes",
    Path: "a string in quotes",
    type(None): "None",
    None: "None",
}
_SEVERAL = {int: "whole numbers", float: "numbers", str: "strings"}
_UNIONS = (typing.Union, types.UnionType)
_SEQUENCES = (tuple, list, collections.abc.Sequence)


def checked(
    function: Callable[..., Any], require: Callable[[str, Any], None] = lambda name, value: None
) -> Callable[..., Any]:
    """`function`; an argument of another type than it declares raises SettingError. require: raises
    it for what else an argument may not be."""
    signature = inspect.signature(function, eval_str=True)

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        for name, value in arguments.items():
            require(name, value)
            annotation = signature.parameters[name].annotation
            if not fits(value, annotation):
                raise SettingError(name, value, in_words(annotation))
        return function(**arguments)

    call.__signature__ = signature
    # gin would look through it, and would not see the signature of `model`.
    del call.__wrapped__
    return call


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of a declared type."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation in (Any, inspect.Parameter.empty):
        return True
    if origin is Annotated:
        # A stage may have stages of its own.
        if STAGES in arguments and is_staged(value):
            return all(fits(stage, annotation) for stage in value.values())
        return fits(value, arguments[0])
    if origin in _UNIONS:
        return any(fits(value, one) for one in arguments)
    if annotation in (None, type(None)):
        return value is None
    # Python counts True as an integer, a recipe does not; a whole number serves as a number.
    if annotation in (int, float):
        kind = numbers.Integral if annotation is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    # gin has no literal of a path.
    if annotation is Path:
        return isinstance(value, str | Path)
    if collections.abc.Callable in (annotation, origin):
        return callable(value)
    if origin in _SEQUENCES:
        if not isinstance(value, list | tuple):
            return False
        # A tuple of fixed length, like tuple[float, int], has a type for each place.
        if origin is tuple and Ellipsis not in arguments:
            return len(value) == len(arguments) and all(map(fits, value, arguments))
        return all(fits(one, arguments[0]) for one in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping) and all(
            fits(key, arguments[0]) and fits(one, arguments[1]) for key, one in value.items()
        )
    # A plain protocol tells nothing of a value.
    if not isinstance(annotation, type) or typing.Protocol in annotation.__mro__:
        return not isinstance(value, int | float | str | list | tuple | dict | None)
    return isinstance(value, annotation)


def in_words(annotation: Any) -> str:
    """What a parameter of this type needs: "a list of strings or None"."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation in _NAMES:
        return _NAMES[annotation]
    if origin is Annotated:
        return in_words(arguments[0])
    if origin in _UNIONS:
        # `str | Path` is one thing to a user: a string in quotes.
        return " or ".join(dict.fromkeys(map(in_words, arguments)))
    if origin in _SEQUENCES:
        if origin is tuple and Ellipsis not in arguments:
            return f"a list of {len(arguments)}: {', '.join(map(in_words, arguments))}"
        return f"a list of {_SEVERAL.get(arguments[0]) or in_words(arguments[0])}"
    if origin is collections.abc.Mapping:
        return f"{{{in_words(arguments[0])}: {in_words(arguments[1])}}}"
    return f"{getattr(annotation, '__name__', annotation)} (a reference, @NAME())"


def fields_of(kind: Any, defaults: Mapping[str, Any] = {}) -> dict[str, inspect.Parameter]:
    """The fields of a dataclass that have a default and that a recipe may bind, as parameters: all
    but `name`, which what makes the object says. defaults: instead of their own."""
    hints = typing.get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if not field.init or field.name == "name" or default is dataclasses.MISSING:
            continue
        default = defaults.get(field.name, default)
        found[field.name] = parameter(field.name, hints[field.name], default)
    return found


def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def made(kind: Any, given: Mapping[str, Any]) -> Any:
    """A dataclass of those of its fields that are given."""
    return kind(
        **{one.name: given[one.name] for one in dataclasses.fields(kind) if one.name in given}
    )


def with_fields(
    function: Callable[..., Any], fields: Mapping[str, inspect.Parameter]
) -> inspect.Signature:
    """That of a function of `**given`, with these parameters in its place."""
    own = inspect.signature(function, eval_str=True)
    named = {
        name: one
        for name, one in own.parameters.items()
        if one.kind is not inspect.Parameter.VAR_KEYWORD
    }
    by_keyword = {
        name: one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in (named | fields).items()
    }
    return own.replace(parameters=[*by_keyword.values()])
