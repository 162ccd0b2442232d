"""What reaches a terminal, and what is one line for every program."""

import io

import pytest

from xlingjax.runtime.quiet import Printed, as_line

HOSTILE = "\x1b]0;name\x07 \x9b31m \x1b[8m x\ry \x1b[31;1mred\x1b[0m ж\n"


class Stream(io.TextIOWrapper):
    is_terminal = False

    def isatty(self):
        return self.is_terminal


@pytest.mark.parametrize("is_terminal", [False, True])
def test_control_characters_are_shown_and_not_obeyed(is_terminal):
    stream = Stream(io.BytesIO(), "ascii", newline="\n")
    stream.is_terminal = is_terminal
    printed = Printed(stream)
    print(HOSTILE, end="", file=printed, flush=True)
    found = stream.buffer.getvalue().decode()
    # rich's colours are for terminals alone.
    red = "\x1b[31;1mred\x1b[0m" if is_terminal else r"\x1b[31;1mred\x1b[0m"
    assert found == rf"\x1b]0;name\x07 \x9b31m \x1b[8m x\x0dy {red} \u0436" + "\n"


def test_a_line_is_one_for_every_program():
    ends = "a\nb\rc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i\0j\tk"
    assert len(as_line(ends).splitlines()) == 1 and as_line(ends).split(" ")[-1] == "j\tk"
