"""`python -m xlingjax`: the command `xlingjax`."""

import sys

from xlingjax.cli.main import main

sys.exit(main())
