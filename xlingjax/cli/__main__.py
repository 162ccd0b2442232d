"""`python -m xlingjax.cli`: the command `xlingjax`, as older scripts start it."""

import sys

from xlingjax.cli.main import main

sys.exit(main())
