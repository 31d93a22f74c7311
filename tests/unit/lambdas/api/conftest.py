"""The API's function as API Gateway calls it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lambdas.api import subscriptions as handler
from tests.unit.lambdas.support import INTEREST, SUBSCRIPTIONS, TABLE, Cloud, LambdaContext, deploy

INBOXES = {
    name: f"arn:aws:sqs:us-east-1:000000000000:eventplane-dev-{name}-inbox"
    for name in ("carers", "family-app")
}


@dataclass(frozen=True)
class Answer:
    """What the function answered."""

    status: int
    headers: dict[str, str]
    body: Any


Call = Callable[..., Answer]


@pytest.fixture
def call(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Sends a request to the path of `participant`'s subscriptions, or of the one with `id`."""
    settings = {
        "CONTRACTS_TABLE": TABLE,
        "INTEREST_TABLE": INTEREST,
        "CONTRACT_REFRESH_S": "30",
        "SUBSCRIPTIONS_TABLE": SUBSCRIPTIONS,
        "INBOXES": INBOXES,
        "WEBHOOK_ORIGIN": "eventplane-dev",
        "WEBHOOK_SECRET": "webhook",
        "SINKS": "anywhere",
    }
    deploy(monkeypatch, tmp_path, cloud.contract, settings)
    monkeypatch.setattr(handler, "system_clock", cloud.clock)
    handler.service.cache_clear()

    def call(
        method: str, id: str | None = None, body: Any = None, *, participant: str = "carers", **headers: str
    ) -> Answer:
        path = f"/participants/{participant}/subscriptions" + (f"/{id}" if id is not None else "")
        raw = body if body is None or isinstance(body, str) else json.dumps(body)
        return send(method, path, raw, headers)

    yield call
    handler.service.cache_clear()


def send(method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
    """One request in API Gateway's payload format 2.0; `_` in a header's name stands for `-`."""
    sent = {"content-type": "application/json"} if body is not None else {}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    event = {
        "version": "2.0",
        "routeKey": f"ANY {path}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": sent,
        "requestContext": {
            "http": {"method": method, "path": path},
            "stage": "$default",
            "authorizer": {"iam": {"userArn": "arn:aws:iam::000000000000:user/carers"}},
        },
        "body": body,
        "isBase64Encoded": False,
    }
    answer = handler.handle(event, LambdaContext())
    text = answer["body"]
    return Answer(answer["statusCode"], answer.get("headers", {}), json.loads(text) if text else None)
