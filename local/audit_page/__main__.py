"""`python -m local.audit_page build/audit`: writes build/audit/audit.html from build/audit/report.json."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from local.audit_page.page import write_page


def main() -> None:
    """Write the page, and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m local.audit_page", description=__doc__)
    parser.add_argument("audit", type=Path, help="the folder that the audit wrote")
    arguments = parser.parse_args()
    page = arguments.audit / "audit.html"
    write_page(json.loads((arguments.audit / "report.json").read_text(encoding="utf-8")), page)
    print(page)


if __name__ == "__main__":
    main()
