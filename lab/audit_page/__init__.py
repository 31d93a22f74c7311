"""An audit's report as a page for people: `python -m lab.audit_page build/audit`."""
