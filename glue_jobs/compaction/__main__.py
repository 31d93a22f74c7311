"""`python -m glue_jobs.compaction --INPUT build/demo/run/archive [--DATE all]`."""

from __future__ import annotations

import sys

from eventplane.errors import EventPlaneError
from glue_jobs.common import system
from glue_jobs.common.session import local_session
from glue_jobs.compaction.main import main, read_arguments


def run() -> int:
    """Exit status 1 when some hours, or all, could not be compacted."""
    read_arguments(sys.argv[1:], system.now())  # a wrong argument is reported before Java starts
    try:
        with local_session():
            main(sys.argv[1:])
    except EventPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
