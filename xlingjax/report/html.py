"""Pages: templates that escape all they are given, one stylesheet, no script, nothing fetched."""

import functools
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def number(value: Any) -> str:
    """Four significant digits, thousands apart, a dash for None; anything but a number as it is."""
    if value is None:
        return "–"
    # To Python True is a number.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 10_000:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.1f}"
    return f"{value:.4g}"


def percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.1f}"


FEW = 1000  # cases, below which a share is shown with its interval


def interval(share: float, count: int = FEW) -> str:
    """In percent; of few cases with Wilson's 95 % interval."""
    if count >= FEW:
        return f"{percent(share)}"
    from scipy.stats import binomtest

    found = binomtest(round(share * count), count).proportion_ci(method="wilson")
    return f"{percent(share)} ({100 * found.low:.0f}–{100 * found.high:.0f})"


def grid(frame: Any, index: bool = True) -> str:
    """A data frame in Markdown, its texts as they are."""
    return frame.to_markdown(index=index, tablefmt="github", disable_numparse=True)


def _escapes(template: str | None) -> bool:
    # None: a macro that Python calls, all of which make HTML.
    return template is None or template.endswith(".html.j2")


@functools.cache
def environment() -> Environment:
    """The templates of this package."""
    made = Environment(
        loader=PackageLoader("xlingjax.report"),
        autoescape=_escapes,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for function in (number, percent, interval, grid):
        made.filters[function.__name__] = function
    return made


def render(template: str, **values: Any) -> str:
    """The text of `templates/TEMPLATE.j2`."""
    return environment().get_template(f"{template}.j2").render(values)


def part(template: str, macro: str, *values: Any, **options: Any) -> Markup:
    """What a macro of `templates/TEMPLATE.html.j2` makes."""
    module = environment().get_template(f"{template}.html.j2").module
    return getattr(module, macro)(*values, **options)
