"""`eventplane NOUN VERB`, the command line of the plane; `python -m eventplane` is the same.

The commands need more than the core has. They are looked up when they are called, so that the core depends
on none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name (default: this process's), and return its exit status."""
    try:
        status: int = import_module("operations.command_line").main(
            list(sys.argv[1:] if arguments is None else arguments)
        )
    except KeyboardInterrupt:
        return 1  # before a command has begun, which would say what became of it
    return status


if __name__ == "__main__":
    sys.exit(main())
