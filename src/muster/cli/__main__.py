"""`python -m muster.cli`: the command line."""

import sys

from ..__main__ import main

sys.exit(main())
