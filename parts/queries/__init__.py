"""The archive as tables for Amazon Athena."""
