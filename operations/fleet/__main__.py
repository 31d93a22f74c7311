"""`python -m operations.fleet`."""

from __future__ import annotations

import sys

from operations.fleet.command import main

sys.exit(main(sys.argv[1:]))
