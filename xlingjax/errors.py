"""The one exception that means: the person running this can repair it."""


class UserError(Exception):
    """Bad input. The message is one line that names the file, line, option or shape and the remedy.

    The command line prints it as `error: <message>` and exits with status 2, without a traceback.
    """
