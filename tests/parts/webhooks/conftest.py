"""The webhook function with AWS in memory."""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from contract import load_contract
from eventplane.contract import Contract
from eventplane.envelope import parse_event
from lambdas.common.queue import QueueMessage
from parts.webhooks import webhook as handler
from parts.webhooks import wiring
from parts.webhooks.endpoint import HttpSink
from parts.webhooks.service import WebhookService
from tests.small_contract import with_changes
from tests.unit.lambdas.support import ALARM, BUCKET, ENDPOINTS, NOW_MS, Cloud, deploy, event, message

KEY = "k" * 64
TIMEOUT_S = 5
SOURCE = "alarm-centre.inbox"


@cache
def contract_with(expiry_s: int | None = None, is_ordered: bool = False, **webhook: Any) -> Contract:
    settings = {"timeout_s": TIMEOUT_S, "give_up_after_s": 600, **webhook}
    inbox = {"webhook": settings} | ({"expiry_s": expiry_s} if expiry_s else {})
    if is_ordered:
        inbox |= {"transport": "sqs_fifo", "ordering": "source"}
    return with_changes(load_contract(), {"participants/alarm-centre/inbox": inbox})


@dataclass
class Hook:
    """The function's service by its own wiring; `others` of the cloud stand for AWS where it fails."""

    cloud: Cloud
    patch: pytest.MonkeyPatch
    waits: dict[str, int] = field(default_factory=dict)
    slept: list[float] = field(default_factory=list)

    def service(self, url: str, sinks: str = "anywhere", **webhook: Any) -> WebhookService:
        self.patch.setattr(handler, "bundled_contract", lambda: contract_with(**webhook))
        for name, value in {"WEBHOOK_URL": url, "SINKS": sinks}.items():
            self.patch.setenv(f"EVENTPLANE_{name}", value)
        made: WebhookService = handler.service().process.__self__  # type: ignore[attr-defined]
        self.endpoint: HttpSink = made.delivery.endpoint
        delivery = replace(made.delivery, sleep=self._sleep)
        return replace(made, delivery=delivery, uniform=lambda _low, high: high)

    def letters(self) -> list[dict[str, Any]]:
        return [parse_event(body).data() for body in self.cloud.bodies("outbox")]

    def outcomes(self) -> list[tuple[str, str, str | None, int | None]]:
        lines = self.cloud.lines("handovers/")
        return sorted((line["id"], line["outcome"], line["reason"], line["status"]) for line in lines)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.cloud.clock.advance(seconds)


def sink_settings(cloud: Cloud, key: str) -> dict[str, Any]:
    """What the stacks give a function that posts, whose outbox and last resort are queues of `cloud`."""
    cloud.aws.secrets.create_secret(Name="webhook", SecretString=key)
    cloud.queues |= {name: cloud.queue(name) for name in ("outbox", "last-resort")}
    return {
        "SOURCE_QUEUE": cloud.source,
        "SINKS": "anywhere",
        "WEBHOOK_SECRET": "webhook",
        "WEBHOOK_ORIGIN": "plane.example",
        "CONCURRENCY": "2",
        "ARCHIVE_BUCKET": BUCKET,
        "ENDPOINTS_TABLE": ENDPOINTS,
        "OUTBOX_QUEUE": cloud.queues["outbox"],
        "DEAD_LETTER_QUEUE": cloud.queues["last-resort"],
    }


@pytest.fixture
def hook(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hook:
    deploy(monkeypatch, tmp_path, None, {"SOURCE": SOURCE, **sink_settings(cloud, KEY)})
    monkeypatch.setattr(wiring, "system_clock", cloud.clock)
    return Hook(cloud, monkeypatch)


def alarm(
    id: str, attempt: int = 1, age_s: int = 0, group: str | None = None, **attributes: Any
) -> QueueMessage:
    given = message(f"m{id}", event(id, ALARM, **attributes).json, attempt)
    return replace(given, sent_at_ms=NOW_MS - 1_000 * age_s, receipt=f"h{id}", group=group)
