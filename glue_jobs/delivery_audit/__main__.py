"""`python -m glue_jobs.delivery_audit --INPUT build/demo/run/archive --OUTPUT build/audit [--DATE all]`."""

from __future__ import annotations

import sys
from itertools import accumulate
from pathlib import Path

from eventplane.archive_layout import COMPACTED
from eventplane.errors import EventPlaneError
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from glue_jobs.common.hours import Days, day_of_folder
from glue_jobs.common.session import local_run
from glue_jobs.delivery_audit.main import main, read_arguments
from glue_jobs.delivery_audit.verdict import lines

SMALL_BYTES = 32 * 2**20
"""How large an archive is at most whose audit is a short run: some 300,000 events."""


def is_small(archive: Path, days: Days) -> bool:
    """Return whether little was written on `days`; their folders are all that is listed."""
    if not archive.is_dir():
        return False
    # Of an hour that was compacted the raw objects may be gone.
    roots = [archive / root / each for root in ("", COMPACTED) for each in (TAP, LEDGER, HANDOVERS)]
    folders = (day for root in roots if root.is_dir() for day in root.iterdir() if holds(days, day.name))
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return all(total < SMALL_BYTES for total in accumulate(path.stat().st_size for path in files))


def holds(days: Days, folder: str) -> bool:
    """Return whether `folder` is that of one of the days."""
    day = day_of_folder(folder)
    return day is not None and days.holds(day)


def run() -> int:
    """Exit status 0 for an audit that was made, whatever it found; 1 when it could not be."""
    arguments = read_arguments(sys.argv[1:])  # a wrong argument is told before Java starts
    # Spark starts for seconds and a large archive takes minutes: somebody waits who does not know that.
    window = str(arguments.window.day or "all days")
    print(f"auditing {arguments.archive}, {window} ...", file=sys.stderr, flush=True)
    try:
        with local_run(is_short=is_small(Path(arguments.archive), arguments.window.folders)):
            document = main(sys.argv[1:])
    except EventPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    print(*lines(document), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(run())
