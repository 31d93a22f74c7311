"""`python -m glue_jobs.delivery_audit --INPUT build/demo/run/archive --OUTPUT build/audit [--DATE all]`."""

from __future__ import annotations

import sys
from itertools import accumulate
from pathlib import Path

from eventplane.errors import EventPlaneError
from glue_jobs.common.session import local_run
from glue_jobs.delivery_audit.main import main, read_arguments
from glue_jobs.delivery_audit.verdict import lines

SMALL_BYTES = 32 * 2**20
"""How large an archive is at most whose audit is a short run: some 300,000 events."""


def _is_small(archive: Path) -> bool:
    if not archive.is_dir():
        return False
    # Of an hour that was compacted the raw objects may be gone.
    rows = (path for path in archive.rglob("*") if path.suffix in (".gz", ".parquet"))
    return all(total < SMALL_BYTES for total in accumulate(path.stat().st_size for path in rows))


def run() -> int:
    """Exit status 0 for an audit that was made, whatever it found; 1 when it could not be."""
    arguments = read_arguments(sys.argv[1:])  # a wrong argument is told before Java starts
    try:
        with local_run(is_short=_is_small(Path(arguments.archive))):
            document = main(sys.argv[1:])
    except EventPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    print(*lines(document), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(run())
