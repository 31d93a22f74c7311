"""The cloud's functions: one folder each, and `common` for the AWS adapters they share."""
