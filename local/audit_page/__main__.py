"""`python -m local.audit_page build/audit`: writes build/audit/audit.html from build/audit/report.json."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from local.audit_page.page import PAGE, write_page


def main() -> None:
    """Write the page, and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m local.audit_page", description=__doc__)
    parser.add_argument("audit", type=Path, help="the folder that the audit wrote")
    parser.add_argument(
        "--archive", help="the archive that was audited, for the commands that the page tells"
    )
    arguments = parser.parse_args()
    report = json.loads((arguments.audit / "report.json").read_text(encoding="utf-8"))
    page = arguments.audit / PAGE
    write_page(report, page, arguments.archive)
    print(page)


if __name__ == "__main__":
    main()
