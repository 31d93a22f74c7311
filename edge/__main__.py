"""Run the forwarder's command line: `python -m edge` in a checkout, `__main__` of the device's artifact."""

from __future__ import annotations

import sys

from edge.command_line import end, main

if __name__ == "__main__":
    end(main(sys.argv[1:]))
