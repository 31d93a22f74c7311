"""The APIs' functions as API Gateway calls them."""

import json
from pathlib import Path
from typing import Any

import pytest

from parts.subscriptions_api import handler
from tests.http_api import Answer, Call, send
from tests.unit.lambdas.support import TABLES, Cloud, deploy

INBOXES = {
    name: f"arn:aws:sqs:us-east-1:000000000000:eventplane-dev-{name}-inbox"
    for name in ("carers", "family-app")
}


@pytest.fixture
def call(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Sends a request to the path of `participant`'s subscriptions, or of the one with `id`."""
    settings = {
        "INBOXES": INBOXES,
        "WEBHOOK_ORIGIN": "eventplane-dev",
        "WEBHOOK_SECRET": "webhook",
        "SINKS": "anywhere",
    }
    deploy(monkeypatch, tmp_path, cloud.contract, {**TABLES, **settings})
    monkeypatch.setattr(handler, "system_clock", cloud.clock)

    def call(
        method: str, id: str | None = None, body: Any = None, *, participant: str = "carers", **headers: str
    ) -> Answer:
        path = f"/participants/{participant}/subscriptions" + (f"/{id}" if id is not None else "")
        if body is not None:
            headers = {"content_type": "application/json", **headers}
            body = body if isinstance(body, str) else json.dumps(body)
        return send(handler.handle, method, path, body=body, **headers)

    return call
