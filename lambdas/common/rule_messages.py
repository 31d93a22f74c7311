"""Messages that an IoT rule wrote to a queue, or its error action to the queue's dead-letter queue."""

from __future__ import annotations

import json
from typing import Any

from eventplane.rule_failure import original_of


def read_rule_message(body: str) -> Any:
    """The JSON of a message; of what the error action made of one, that which the rule was given.

    So a redrive brings in what SQS did not take. What the rule's SQL renames has its own names there: readers
    know both. Raises `ValueError`, `TypeError`, `RecursionError`.
    """
    members = json.loads(body)
    original = original_of(members)
    return members if original is None else json.loads(original)
