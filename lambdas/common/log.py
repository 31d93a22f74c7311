"""The functions' structured log: one JSON object a line, for CloudWatch Logs Insights."""

from __future__ import annotations

from aws_lambda_powertools import Logger

# POWERTOOLS_SERVICE_NAME and POWERTOOLS_LOG_LEVEL, which the stacks set, say the rest.
logger = Logger()
