"""The planes that the tests look at: each is synthesized once in a session, as that takes seconds."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from eventplane.contract import Contract, compile_contract
from stacks.config import environment
from stacks.settings import (
    AlarmSettings,
    CostSettings,
    DeviceDomain,
    ObjectLock,
    ProtocolSettings,
    TracingSettings,
)
from tests.infrastructure.templates import Templates
from tests.plane import shipped_contract

DOMAIN = DeviceDomain(
    name="devices.example.org", certificate="arn:aws:acm:eu-central-1:111122223333:certificate/1234abcd-12ab"
)
KEY = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
URLS = {"alarm-centre": "https://events.alarm-centre.example/v1?site=7"}
NATS = ProtocolSettings(package="lab/examples/nats", url="nats://nats.example:4222", secret="nats-of-routers")
LAYER = "arn:aws:lambda:eu-central-1:123456789012:layer:collector-amd64:7"


@cache
def plane(name: str) -> Templates:
    """The plane of an environment as it is shipped."""
    return Templates(environment(name), shipped_contract())


def changed(**participants: dict[str, Any]) -> dict[str, Any]:
    """The shipped contract's document, with changes of participants."""
    document: dict[str, Any] = json.loads(shipped_contract().canonical)
    for name, settings in participants.items():
        document["participants"].setdefault(name.replace("_", "-"), {}).update(settings)
    return document


def without(document: dict[str, Any], participants: Iterable[str], routes: Iterable[str]) -> Contract:
    """The contract of a document without some participants and routes."""
    for part, names in (("participants", participants), ("routes", routes)):
        for name in names:
            del document[part][name]
    return compile_contract(document, "test")


@pytest.fixture(scope="session")
def contract() -> Contract:
    return shipped_contract()


@pytest.fixture(scope="session")
def dev() -> Templates:
    return plane("dev")


@pytest.fixture(scope="session")
def prod() -> Templates:
    return plane("prod")


@pytest.fixture(scope="session")
def local() -> Templates:
    return plane("local")


@pytest.fixture(params=["local", "dev", "prod"])
def templates(request: pytest.FixtureRequest) -> Templates:
    """Every environment, one after the other."""
    return plane(request.param)


@pytest.fixture(params=["dev", "prod"])
def released(request: pytest.FixtureRequest) -> Templates:
    """Every environment in the real cloud."""
    return plane(request.param)


@pytest.fixture(scope="session")
def full() -> Templates:
    """`dev` with everything that is optional in settings and contract, and its assets."""
    document = changed(
        alarm_centre={"inbox": {"priority": "urgent", "webhook": {}}},
        care_analytics={"inbox": {"transport": "nats"}, "outbox": {"transport": "nats"}},
    )
    document["participants"]["device"]["outbox"]["forward"] = "wanted"
    plain = environment("dev")
    settings = replace(
        plain,
        webhook_urls=URLS,
        protocols=(NATS,),
        tracing=TracingSettings(endpoint="http://localhost:4318", share=0.5, collector_layer=LAYER),
        costs=CostSettings(subscribers=("owner@example.org",), monthly_usd=120, anomaly_usd=25),
        alarms=AlarmSettings(
            page_subscribers=("https://events.example.org/integration/key/enqueue", "oncall@example.org"),
            ticket_subscribers=("team@example.org",),
        ),
        retention=replace(plain.retention, lock=ObjectLock(mode="governance", days=14)),
        router=replace(plain.router, memory_mib=1_024),
    )
    return Templates(settings, compile_contract({**document, "format": 7}, "full"), bundles=True)


@pytest.fixture(scope="session")
def guarded() -> Templates:
    """`prod` with the customer's key, a webhook, an urgent outbox, the strictest lock, and no roll-out."""
    plain = environment("prod")
    settings = replace(
        plain,
        customer_key=KEY,
        records_reads=True,
        device_domain=DOMAIN,
        webhook_urls=URLS,
        rollout_minutes=None,
        urgent_router=replace(plain.urgent_router, provisioned_concurrency=3),
        retention=replace(plain.retention, lock=ObjectLock(mode="compliance", days=14)),
    )
    inbox = {"transport": "sqs_fifo", "webhook": {}}
    hooked = changed(alarm_centre={"inbox": inbox, "outbox": {"priority": "urgent"}})
    return Templates(settings, compile_contract(hooked, "guarded"))


@pytest.fixture(scope="session")
def grown() -> Templates:
    """`dev` with one more cloud service, and all participants in another order."""
    ordered = {"transport": "sqs_fifo", "ordering": "source"}
    document = changed(
        night_watch={
            "kind": "cloud_service",
            "description": "Somebody is awake.",
            "inbox": {**ordered, "max_receives": 7, "retention_s": 3_600},
            "outbox": ordered,
        }
    )
    document["participants"] = dict(reversed(document["participants"].items()))
    document["routes"]["to-night-watch"] = {"filter": {"exact": {"type": "x"}}, "to": "night-watch.inbox"}
    return Templates(environment("dev"), compile_contract(document, "grown"))


OF_FAMILY = ("daily-life-to-family", "notices-to-relatives")
DOWN = ("down-to-devices", "answers-to-downlink")


@pytest.fixture(scope="session")
def shrunk() -> Templates:
    """`dev` without the family's app, the downlink and the subscribers."""
    leaving = ("family-app", "downlink", "subscribers")
    return Templates(environment("dev"), without(changed(), leaving, [*OF_FAMILY, *DOWN]))


@pytest.fixture(scope="session")
def retired() -> Templates:
    """`dev` in which the family's app and the downlink are retired; and without a canary."""
    document = changed(family_app={"retired": True}, downlink={"retired": True})
    down = [name for name, each in document["routes"].items() if "device.inbox" in each["to"]]
    routes = {*OF_FAMILY, *DOWN, *down, "canary-to-canary"} & document["routes"].keys()
    return Templates(environment("dev"), without(document, ["canary"], routes))
