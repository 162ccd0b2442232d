"""`xlingjax`, and `python -m xlingjax`."""

import os
import sys

from xlingjax.errors import INTERRUPTED


def main() -> int:
    try:
        from xlingjax.cli.main import main as command

        status = command()
    # In the imports.
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    if status == INTERRUPTED:
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads that compile or write would be waited for.
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
