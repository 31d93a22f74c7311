"""Whether the audit is right, against archives whose truth is known; how fast it is, beside DuckDB."""
