"""Which words are numbers: ASCII digits alone. Python's own `int`, `float` and `str.isdigit` also
take "1_000", "١٢", "²", "nan" and "inf", which a user never means."""

import re

LONGEST = 1000  # digits of a whole number
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def is_whole(text: str) -> bool:
    """Whether it is a whole number, 0 or more, in digits."""
    # Of thousands of digits `int` makes an error.
    return text.isascii() and text.isdigit() and len(text) <= LONGEST


def is_number(text: str) -> bool:
    """Whether it is a finite number: "3", "-0.5", "1e-4"."""
    # "1e999" is written like a number and too large for one.
    return bool(_NUMBER.fullmatch(text)) and abs(float(text)) != float("inf")
