"""An audit's `report.json` as a page for people: `python -m local.audit_page build/audit`."""
