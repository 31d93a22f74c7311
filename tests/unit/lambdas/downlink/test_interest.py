"""Devices are told what the cloud wants when it changes, by nothing but what is in force."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contract import load_contract
from eventplane.contract import Contract, ContractError, compile_contract
from eventplane.contract.publication import ContractTable, Head, contract_item, head_item, head_key
from eventplane.contract.subscription import new_subscription
from eventplane.contract.subscription_table import subscription_item, subscription_key
from eventplane.device_reports import UPLINK_KEY
from eventplane.downlink import table as desired
from eventplane.downlink.addressing import addressed
from eventplane.downlink.wire import ALL
from eventplane.envelope import Envelope, parse_event
from eventplane.interest import uplink
from eventplane.interest.table import PUBLISHED_KEY, PUBLISHED_SORT_KEY
from eventplane.interest.uplink import TooManyFiltersError, read_uplink_interest
from lambdas.common.tables import SubscriptionTable
from lambdas.downlink import interest as handler
from lambdas.downlink.interest import PublicationRecord, UplinkInterest
from lambdas.downlink.items import DesiredTable
from lambdas.router.payload import PayloadCheck
from tests.dynamodb import create_table
from tests.unit.lambdas.support import NOW_MS, SUBSCRIPTIONS, TABLE, Cloud, LambdaContext

NEWS = "org.example.news.v1"
SPORT = "org.example.sport.v1"
DESIRED = "desired"


class Crash(BaseException):
    """The function ends here."""


@dataclass
class World:
    """`sent` is what went into the outbox."""

    cloud: Cloud
    contract: Contract
    now_ms: int = NOW_MS
    sent: list[Envelope] = field(default_factory=list)
    on_send: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        create_table(self.cloud.dynamodb, DESIRED, desired.PARTITION_KEY, desired.SORT_KEY)

    def function(self, subscriptions: str = SUBSCRIPTIONS) -> UplinkInterest:
        return UplinkInterest(
            bundled=self.contract,
            contracts=ContractTable(self.cloud.dynamodb, TABLE),
            subscriptions=SubscriptionTable(self.cloud.dynamodb, subscriptions),
            record=PublicationRecord(self.cloud.dynamodb, DESIRED),
            send=self._send,
            clock=lambda: self.now_ms,
        )

    def publish(self) -> bool:
        """A minute later, in a process of its own."""
        self.now_ms += 60_000
        return self.function().publish()

    def subscribe(self, type: str) -> None:
        name = type.split(".")[2]
        own = new_subscription("carers", name, {"exact": {"type": type}}, "2026-01-01T00:00:00Z")
        self.cloud.dynamodb.put_item(TableName=SUBSCRIPTIONS, Item=subscription_item(own))

    def unsubscribe(self, type: str) -> None:
        key = subscription_key("carers", type.split(".")[2])
        self.cloud.dynamodb.delete_item(TableName=SUBSCRIPTIONS, Key=key)

    def publish_contract(self, contract: Contract) -> None:
        self.cloud.dynamodb.put_item(TableName=TABLE, Item=contract_item(contract))
        self.name(contract.version)

    def name(self, version: str) -> None:
        head = Head(self.contract.version, version, None, "2026-01-01T00:00:00Z")
        self.cloud.dynamodb.put_item(TableName=TABLE, Item=head_item(head))

    def wants(self, type: str) -> bool:
        """Whether devices that have the newest of what was sent send `type`."""
        newest = max(
            self.sent,
            key=lambda each: addressed(each, self.contract.downlink(each.type), 10**13).message.version,
        )
        return read_uplink_interest(newest).matches({"type": type})

    def _send(self, text: str) -> None:
        self.sent.append(parse_event(text))
        self.on_send()


@pytest.fixture
def world(cloud: Cloud, contract: Contract) -> World:
    return World(cloud, contract)


def with_route(contract: Contract, type: str) -> Contract:
    document = json.loads(contract.canonical)
    document["routes"]["new"] = {"filter": {"exact": {"type": type}}, "to": "family-app.inbox"}
    return compile_contract(document, "new")


def test_all_devices_are_told_once_by_a_state_that_the_plane_takes(world: World) -> None:
    assert world.publish()
    assert not world.publish()
    (event,) = world.sent
    told = addressed(event, world.contract.downlink(event.type), 10**13)
    assert (told.key, told.target.thing, told.target.group) == (UPLINK_KEY, None, None)
    assert PayloadCheck(world.contract).of_message()(event) is None
    assert world.wants("org.eventplane.climate.reading.v1")
    assert not world.wants(NEWS)


def test_a_subscription_and_its_end_are_told(world: World) -> None:
    world.publish()
    world.subscribe(NEWS)
    assert world.publish()
    assert world.wants(NEWS)
    world.unsubscribe(NEWS)
    assert world.publish()
    assert not world.wants(NEWS)
    assert not world.publish()


def test_a_published_contract_and_its_withdrawal_are_told(world: World) -> None:
    world.publish()
    world.publish_contract(with_route(world.contract, NEWS))
    assert world.publish()
    assert world.wants(NEWS)
    world.cloud.dynamodb.delete_item(TableName=TABLE, Key=head_key(world.contract.version))
    assert world.publish()
    assert not world.wants(NEWS)


def test_a_published_contract_that_cannot_be_used_changes_nothing(world: World) -> None:
    world.name("0" * 16)
    with pytest.raises(ContractError):
        world.publish()
    assert world.sent == []


def test_a_published_contract_that_no_router_takes_changes_nothing(world: World) -> None:
    document = json.loads(world.contract.canonical)
    document["participants"]["nobody"] = {"kind": "cloud_service", "description": "Has no queue."}
    document["routes"]["lost"] = {"filter": {"exact": {"type": NEWS}}, "to": "nobody.inbox"}
    world.publish_contract(compile_contract(document, "lost"))
    with pytest.raises(ContractError, match=r"nobody\.inbox has no queue"):
        world.publish()
    assert world.sent == []


def test_subscriptions_that_cannot_be_read_are_not_taken_for_none(world: World) -> None:
    world.subscribe(NEWS)
    world.publish()
    with pytest.raises(ClientError):
        world.function(subscriptions="away").publish()
    assert len(world.sent) == 1


def test_a_crash_before_it_is_remembered_tells_again_also_what_was_before(world: World) -> None:
    world.subscribe(NEWS)
    world.publish()

    def crash() -> None:
        raise Crash

    world.unsubscribe(NEWS)
    world.on_send = crash
    with pytest.raises(Crash):
        world.publish()
    world.on_send = lambda: None
    assert not world.wants(NEWS)
    world.subscribe(NEWS)
    assert world.publish()
    assert world.wants(NEWS)


def test_of_two_at_a_time_the_one_that_devices_go_by_is_remembered(world: World) -> None:
    def overtaken() -> None:
        world.on_send = lambda: None
        world.subscribe(NEWS)
        world.publish()

    world.on_send = overtaken
    world.publish()
    assert len(world.sent) == 2
    assert world.wants(NEWS)
    assert not world.publish()
    world.subscribe(SPORT)
    world.publish()
    assert world.wants(SPORT)


def test_a_clock_that_goes_back_makes_no_older_version(world: World) -> None:
    world.publish()
    world.now_ms -= 3_600_000
    world.subscribe(NEWS)
    world.publish()
    assert world.wants(NEWS)


def test_what_does_not_fit_lets_everything_up_and_stays_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish()
    monkeypatch.setattr(uplink, "MAX_DOWNLINK_EVENT_BYTES", 1_000)
    for _ in range(2):
        with pytest.raises(TooManyFiltersError):
            world.publish()
    _, withdrawal = world.sent
    assert addressed(withdrawal, world.contract.downlink(withdrawal.type), 10**13).message.is_deleted
    monkeypatch.undo()
    assert world.publish()
    assert world.wants("org.eventplane.climate.reading.v1")


def test_its_memory_is_no_devices_and_never_due(world: World) -> None:
    world.publish()
    (item,) = world.cloud.dynamodb.scan(TableName=DESIRED)["Items"]
    assert not {desired.INDEX_KEY, desired.INDEX_SORT_KEY} & set(item)
    assert desired.key_of(ALL, PUBLISHED_SORT_KEY) == PUBLISHED_KEY
    assert DesiredTable(world.cloud.dynamodb, DESIRED).device_page("home-1", 10, None).keys == ()


def test_the_schedule_calls_it_with_its_settings(
    world: World, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "contract.json").write_bytes(load_contract().canonical)
    for name, value in {
        "LAMBDA_TASK_ROOT": str(tmp_path),
        "EVENTPLANE_CONTRACTS_TABLE": TABLE,
        "EVENTPLANE_SUBSCRIPTIONS_TABLE": SUBSCRIPTIONS,
        "EVENTPLANE_DESIRED_TABLE": DESIRED,
        "EVENTPLANE_OUTBOX_QUEUE": world.cloud.source,
    }.items():
        monkeypatch.setenv(name, value)
    handler.service.cache_clear()
    try:
        assert handler.handle({}, LambdaContext()) == {"published": True}
        assert handler.handle({}, LambdaContext()) == {"published": False}
    finally:
        handler.service.cache_clear()
    (message,) = world.cloud.sqs.receive_message(QueueUrl=world.cloud.source)["Messages"]
    assert parse_event(message["Body"]).attributes["statekey"] == UPLINK_KEY
