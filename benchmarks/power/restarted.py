"""A process that starts after a kill: `python -m benchmarks.power.restarted SPOOL`.

It says what the spool holds, and is killed as well.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks.power.workload import state
from edge.spool import Spool


def main(path: Path) -> None:
    """Open the spool and leave it as it is."""
    spool = Spool(path)
    os.write(1, json.dumps({"state": state(spool)}).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
