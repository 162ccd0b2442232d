"""Pages: templates that escape all they are given, one stylesheet, no script, nothing fetched."""

import functools
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

esc = escape


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
    made.filters["number"] = number
    return made


def render(template: str, **values: Any) -> str:
    """The text of `templates/TEMPLATE.j2`."""
    return environment().get_template(f"{template}.j2").render(values)


def part(template: str, macro: str, *values: Any, **options: Any) -> Markup:
    """What a macro of `templates/TEMPLATE.html.j2` makes."""
    module = environment().get_template(f"{template}.html.j2").module
    return getattr(module, macro)(*values, **options)


def page(title: str, body: str) -> str:
    """A whole document around a body of HTML."""
    return render("page.html", title=title, body=Markup(body))


def section(anchor: str, title: str, *parts: str) -> str:
    """A section of parts in HTML, or nothing where all are empty."""
    body = "\n".join(filter(None, parts))
    return part("parts", "section", anchor, title, Markup(body)) if body else ""
