"""`xlingjax`, and `python -m xlingjax`."""

import sys

from xlingjax.runtime.interrupts import command_interrupts


def main() -> int:
    # Around the imports too, in which an interrupt is no traceback.
    with command_interrupts():
        from xlingjax.cli.main import main as command

        return command()


if __name__ == "__main__":
    sys.exit(main())
