"""What an IoT rule's error action sends (AWS IoT Core Developer Guide, error handling)."""

import base64
import json
from typing import Any


def rule_failure(original: bytes, *resources: str, **members: Any) -> str:
    """The document about `original`, which `resources` did not take; `members` are put over its own."""
    failures = [
        {"failedAction": "SqsAction", "failedResource": each, "errorMessage": "no"} for each in resources
    ]
    document = {
        "ruleName": "eventplane_dev_ingest",
        "topic": "devices/home-1/outbox",
        "cloudwatchTraceId": "7e146a2c-95b5-6caf-98b9-50e3969734c7",
        "clientId": "home-1",
        "base64OriginalPayload": base64.b64encode(original).decode(),
        "failures": failures,
    }
    return json.dumps(document | members)
