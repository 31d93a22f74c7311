"""Whether the audit is right, and how fast it is: against archives whose truth is known, and beside DuckDB."""
