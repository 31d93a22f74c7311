"""The APIs' functions as API Gateway calls them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lambdas.api import subscriptions as handler
from tests.unit.lambdas.support import TABLES, Cloud, LambdaContext, deploy

INBOXES = {
    name: f"arn:aws:sqs:us-east-1:000000000000:eventplane-dev-{name}-inbox"
    for name in ("carers", "family-app")
}
HOST = "abc.execute-api.eu-central-1.amazonaws.com"


@dataclass(frozen=True)
class Answer:
    """What a function answered."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


Call = Callable[..., Answer]


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


def send(
    handle: Callable[..., Any],
    method: str,
    path: str,
    *,
    body: str | None = None,
    query: Mapping[str, str] | None = None,
    **headers: str,
) -> Answer:
    """One request in API Gateway's payload format 2.0; `_` in a header's name stands for `-`."""
    event = {
        "version": "2.0",
        "routeKey": f"ANY {path}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}},
        "requestContext": {
            "http": {"method": method, "path": path},
            "domainName": HOST,
            "stage": "$default",
            "authorizer": {"iam": {"userArn": "arn:aws:iam::000000000000:user/carers"}},
        },
        "body": body,
        "isBase64Encoded": False,
        **({"queryStringParameters": query} if query else {}),
    }
    answer = handle(event, LambdaContext())
    return Answer(answer["statusCode"], answer["headers"], answer["body"])
