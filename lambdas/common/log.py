"""The functions' structured log: one JSON object a line, for CloudWatch Logs Insights."""

from __future__ import annotations

from aws_lambda_powertools import Logger

from eventplane.records import Item

# POWERTOOLS_SERVICE_NAME and POWERTOOLS_LOG_LEVEL, which the stacks set, say the rest.
logger = Logger()


def log_foreign(item: Item, error: Exception) -> None:
    """Log that an item of a table cannot be read."""
    logger.warning("unreadable item; correct it or delete it", item=str(item)[:200], error=str(error)[:500])
