"""Measure the audit: its verdicts on archives whose truth is known, and its speed beside DuckDB."""
