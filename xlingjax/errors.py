"""What ends a command without a traceback: bad input that its user can repair, and being asked to
stop."""

import re

# EX_TEMPFAIL, "try again later": what a job script looks for to queue the run again.
EXIT_CODE = 75
# What a shell gives for Ctrl-C: 128 and the number of SIGINT.
INTERRUPTED = 130
# What gin appends to what passes through it, line by line, about its own call stack.
_OF_GIN = re.compile(
    r"\n  (In call to configurable '|In file \"|In bindings string line |No values supplied ).*",
    re.DOTALL,
)


class UserError(Exception):
    """Bad input. The message is one line that names the file, line, option or shape and the remedy.

    The command line prints it as `error: <message>` and exits with status 2, without a traceback.
    """


def in_one_line(error: UserError) -> str:
    """The message without what gin appends; ends of line in what a user gave are shown as
    backslash n."""
    message = _OF_GIN.sub("", str(error))
    return "\\n".join(message.splitlines())


class Stopped(Exception):
    """Asked to stop by a signal; what was done is kept, and the same call goes on from there.

    The command line exits with `EXIT_CODE`.
    """
