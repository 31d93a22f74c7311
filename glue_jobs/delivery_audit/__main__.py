"""`python -m glue_jobs.delivery_audit --INPUT build/demo/run/archive --OUTPUT build/audit [--DATE all]`."""

from __future__ import annotations

import json
import sys

from eventplane.errors import EventPlaneError
from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit.main import main, read_arguments


def run() -> int:
    """Exit status 0 for an audit that was made, whatever it found; 1 when it could not be."""
    read_arguments(sys.argv[1:])  # a wrong argument is told before Java starts
    spark = local_session()
    try:
        document = main(sys.argv[1:])
    except EventPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        spark.stop()
    print(json.dumps(document["totals"], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(run())
