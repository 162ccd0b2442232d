"""What ends a command without a traceback: bad input that its user can repair, and being asked to
stop."""

# EX_TEMPFAIL, "try again later": what a job script looks for to queue the run again.
EXIT_CODE = 75


class UserError(Exception):
    """Bad input. The message is one line that names the file, line, option or shape and the remedy.

    The command line prints it as `error: <message>` and exits with status 2, without a traceback.
    """


class Stopped(Exception):
    """Asked to stop by a signal; what was done is kept, and the same call goes on from there.

    The command line exits with `EXIT_CODE`.
    """
