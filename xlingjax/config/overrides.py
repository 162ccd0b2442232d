"""What is typed beside recipes, --gin.NAME=VALUE, and macros that they read, before gin knows of
them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.config.gin_files import MACRO, nearest
from xlingjax.errors import UserError
from xlingjax.runtime.numerals import is_number

TASKS = ("text.tasks", "corpus.tasks")
"""Whose values are modules; other parameters of this name are tasks of benchmarks."""
WARMUP_STEPS = ("WARMUP_STEPS", "optimizer.warmup_steps")
WARMUP_SHARE = ("WARMUP_SHARE", "optimizer.warmup_share")
"""A macro, and what it is bound to."""


def tasks_given(overrides: Sequence[str]) -> list[str]:
    """The modules that overrides name in TASKS or the parameters that it stands for."""
    modules: list[str] = []
    for override in overrides:
        name, _, value = override.partition("=")
        if name == "TASKS" or name.endswith(TASKS):
            modules += re.findall(r"[\w.]+", value)
    return modules


def one_warmup(overrides: Sequence[str], lines: Mapping[str, str]) -> list[str]:
    """What must be bound too, so that a warm-up in steps that is typed holds: the share of a
    recipe, which would go before it, becomes None. lines: as of `config_lines`. Raises UserError
    where both are typed."""
    typed = dict(override.partition("=")[::2] for override in overrides)
    steps = [name for name in WARMUP_STEPS if name in typed]
    shares = [name for name in WARMUP_SHARE if name in typed]
    given = [name for name in shares if typed[name] != "None"]
    if steps and given:
        raise UserError(
            f"--gin.{steps[0]} and --gin.{given[0]}: both say how long the learning rate warms up;"
            " give one"
        )
    macro, parameter = WARMUP_SHARE
    if not steps or shares or parameter not in lines:
        return []
    if lines[parameter] == f"%{macro}":
        return [f"{macro}=None"]
    return [f"{parameter}=None"]


def require_digits(where: str, value: str) -> None:
    """Raises UserError for what Python alone takes for a number: 1_000, ١٢; and for 1e999."""
    try:
        float(value)
    except ValueError:
        return
    # Of "nan" and "inf", words like others, the check of types says what is needed instead.
    has_digits = any(character.isdigit() for character in value)
    if has_digits and not is_number(value.strip()):
        raise UserError(f"{where}={value}: write a finite number, in the digits 0 to 9 alone")


def checked_number(where: str, value: str, before: Any, weighs: bool = False) -> str:
    """`value`, for a macro that was a number `before` only if it is one, or stages: 1e4 for a whole
    number is 10000. One that `weighs` an objective may be any number."""
    # Python counts True as an integer.
    was_number = isinstance(before, int | float) and not isinstance(before, bool)
    # References, macros, stages and None are no slips; types are checked once all is bound.
    if not was_number or value[:1] in "@%{" or value == "None":
        return value
    if weighs:
        before = float(before)
    if not is_number(value):
        raise UserError(f"{where}={value}: a number is needed, like {before}")
    number = float(value)
    if isinstance(before, int) and number != int(number):
        raise UserError(f"{where}={value}: a whole number is needed, like {before}")
    if isinstance(before, int):
        return str(int(number))
    return value


def require_known_macros(macros: Sequence[str], lines: Mapping[str, str]) -> None:
    """lines: as of `config_lines`. Raises UserError for a macro that is read and that nothing
    sets."""
    # gin itself finds an unset macro only when it is read, in the middle of building.
    for bound, value in lines.items():
        # Where a value or an entry begins: a percent sign within a string is none.
        for name in re.findall(rf"(?:^|[\[(,:]\s*)%({MACRO})\b", value):
            if name not in macros:
                line = f"{bound} = {value}"
                near = nearest(name, macros)
                raise UserError(f"{line!r} names a macro that no file defines{near}")
