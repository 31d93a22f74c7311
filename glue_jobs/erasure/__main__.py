"""`python -m glue_jobs.erasure --INPUT build/demo/run/archive --SOURCE //home-17/ [--DRY_RUN true]`."""

from __future__ import annotations

import json
import sys

from eventplane.errors import EventPlaneError
from glue_jobs.common.session import local_session
from glue_jobs.erasure.main import main, read_arguments


def run() -> int:
    """Exit status 1 when something of the person is left. Prints the receipt."""
    try:
        read_arguments(sys.argv[1:])  # a wrong argument is reported before Java starts
        with local_session():
            receipt = main(sys.argv[1:])
    except EventPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(receipt, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(run())
