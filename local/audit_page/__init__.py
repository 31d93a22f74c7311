"""An audit's report as a page for people: `python -m local.audit_page build/audit`."""
