"""`python -m lab.audit_page build/audit`: writes build/audit/audit.html from the last report there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lab.audit_page.page import PAGE, write_page
from lab.audits import NoReportError, last_window, read_report


def main() -> int:
    """Write the page and print where it is. Exit status 1 where no audit has written a report."""
    parser = argparse.ArgumentParser(prog="python -m lab.audit_page", description=__doc__)
    parser.add_argument("audit", type=Path, help="the folder that the audit wrote")
    parser.add_argument("--archive", help="the archive that was audited, for the commands on the page")
    parser.add_argument("--date", help="the audited UTC day, or all (default: what was audited last)")
    arguments = parser.parse_args()
    try:
        report = read_report(arguments.audit, arguments.date or last_window(arguments.audit))
    except NoReportError as error:
        print(error, file=sys.stderr)
        return 1
    page = arguments.audit / PAGE
    write_page(report, page, arguments.archive)
    print(f"page:     {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
