"""`python -m benchmarks.scale`: prints the tables of docs/scale.md, with this machine's newest figures."""

from __future__ import annotations

from benchmarks.scale.parameters import newest
from benchmarks.scale.tables import TABLES


def main() -> None:
    """Print them all."""
    measured = newest()
    for table in TABLES.values():
        head, rows = table(measured)
        for line in [head, *rows]:
            print(" | ".join(line))
        print()


if __name__ == "__main__":
    main()
