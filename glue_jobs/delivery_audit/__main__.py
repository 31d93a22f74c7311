"""`python -m glue_jobs.delivery_audit --INPUT build/demo/run/archive --OUTPUT build/audit [--DATE all]`."""

from __future__ import annotations

import sys
from typing import Any

from eventplane.errors import EventPlaneError
from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit.main import AUTO, main, read_arguments
from glue_jobs.delivery_audit.verdict import lines


def run() -> int:
    """Exit status 0 for an audit that was made, whatever it found; 1 when it could not be."""
    arguments = read_arguments(sys.argv[1:], AUTO)
    # A large archive takes minutes: somebody waits who does not know that.
    window = str(arguments.window).replace("all", "all days")
    print(f"auditing {arguments.archive}, {window} ...", file=sys.stderr, flush=True)

    def filed(document: dict[str, Any]) -> None:
        if (day := document["window"]["date"]) != str(arguments.window):
            print(f"again:    {day}, which got rows since its last verdict")
        print(*lines(document), sep="\n")

    try:
        main(sys.argv[1:], AUTO, local_session, filed)
    except EventPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
