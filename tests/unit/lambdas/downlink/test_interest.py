"""The cloud's interest is published to devices when the contract in force changes it."""

from collections.abc import Callable
from os import urandom
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contract import load_contract
from eventplane.contract import ContractError
from eventplane.contract.publication import contract_id
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.device_reports import UPLINK_KEY
from eventplane.downlink import table as desired
from eventplane.downlink.addressing import Addressed, addressed
from eventplane.downlink.wire import ALL
from eventplane.envelope import Envelope, parse_event
from eventplane.interest import uplink
from eventplane.interest.table import PUBLISHED
from eventplane.interest.uplink import TooManyFiltersError, read_uplink_interest
from eventplane.records import Records
from lambdas.common import system
from lambdas.downlink import interest as handler
from lambdas.downlink.interest import UplinkInterest
from lambdas.router.payload import PayloadCheck
from tests.dynamodb import create_desired_table
from tests.small_contract import with_changes
from tests.unit.lambdas.downlink.world import DESIRED
from tests.unit.lambdas.support import SUBSCRIPTIONS, TABLE, Cloud, LambdaContext, deploy, with_route

NEWS = "org.example.news.v1"
SPORT = "org.example.sport.v1"


class World:
    """The function; `sent` is what went into the outbox."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.contract = cloud, cloud.contract
        self.sent: list[Envelope] = []
        self.on_send: Callable[[], None] = int
        create_desired_table(cloud.dynamodb, DESIRED)

    def function(self, subscriptions: str = SUBSCRIPTIONS) -> UplinkInterest:
        return UplinkInterest(
            bundled=self.contract,
            contracts=self.cloud.contracts,
            subscriptions=SubscriptionTable(self.cloud.tables, subscriptions),
            record=Records(self.cloud.tables, DESIRED, PUBLISHED),
            send=self._send,
            clock=self.cloud.clock,
            random_bytes=urandom,
        )

    def publish(self) -> bool:
        """A minute later, in a process of its own."""
        self.cloud.clock.advance(60)
        return self.function().publish()

    def subscribe(self, type: str) -> None:
        self.cloud.subscribe(type.split(".")[2], type, "carers")

    def unsubscribe(self, type: str) -> None:
        self.cloud.unsubscribe(type.split(".")[2], "carers")

    def addressed(self, event: Envelope) -> Addressed:
        return addressed(event, self.contract.downlink(event.type), 10**13)

    def wants(self, type: str) -> bool:
        """Whether devices that have the newest of what was sent send `type`."""
        newest = max(self.sent, key=lambda each: self.addressed(each).message.version)
        return read_uplink_interest(newest).matches({"type": type})

    def _send(self, event: Envelope) -> None:
        self.sent.append(event)
        self.on_send()


@pytest.fixture
def world(cloud: Cloud) -> World:
    return World(cloud)


def test_the_interest_is_published_once_as_a_valid_state(world: World) -> None:
    assert world.publish()
    assert not world.publish()
    (event,) = world.sent
    told = world.addressed(event)
    assert (told.key, told.target.thing, told.target.group) == (UPLINK_KEY, None, None)
    assert PayloadCheck(world.contract, cpu_time=system.cpu_time).of_message()(event) is None
    assert world.wants("org.eventplane.climate.reading.v1")
    assert not world.wants(NEWS)


def test_a_candidate_that_cannot_be_used_changes_nothing(world: World) -> None:
    world.publish()
    candidate = with_route(world.contract, "new", type=NEWS)
    world.cloud.offer(candidate)
    world.cloud.contracts.contracts.discard(contract_id(candidate.version))
    assert not world.publish()
    world.subscribe(SPORT)
    assert world.publish()
    assert world.wants(SPORT)


@pytest.mark.parametrize(
    "begin",
    [
        lambda world: world.subscribe(NEWS),
        lambda world: world.cloud.publish(with_route(world.contract, "new", type=NEWS)),
        lambda world: world.cloud.offer(with_route(world.contract, "new", type=NEWS)),
    ],
    ids=["subscription", "published contract", "candidate"],
)
def test_a_new_interest_and_its_end_are_published(world: World, begin: Callable[[World], None]) -> None:
    world.publish()
    begin(world)
    assert world.publish()
    assert world.wants(NEWS)
    world.unsubscribe(NEWS)
    world.cloud.withdraw()
    assert world.publish()
    assert not world.wants(NEWS)
    assert not world.publish()


@pytest.mark.parametrize(("is_there", "problem"), [(False, "0000"), (True, r"nobody\.inbox has no queue")])
def test_an_unaccepted_contract_is_ignored(world: World, is_there: bool, problem: str) -> None:
    if is_there:
        route = {"filter": {"exact": {"type": NEWS}}, "to": "nobody.inbox"}
        nobody = {"kind": "cloud_service", "description": "Has no queue."}
        changes = {"participants/nobody": nobody, "routes/lost": route}
        world.cloud.publish(with_changes(world.contract, changes))
    else:
        world.cloud.name("0" * 16)
    with pytest.raises(ContractError, match=problem):
        world.publish()
    assert world.sent == []


def test_unreadable_subscriptions_are_not_taken_for_none(world: World) -> None:
    world.subscribe(NEWS)
    world.publish()
    with pytest.raises(ClientError):
        world.function(subscriptions="away").publish()
    assert len(world.sent) == 1


def test_a_crash_publishes_interest_again(world: World) -> None:
    world.subscribe(NEWS)
    world.publish()

    def crash() -> None:
        raise KeyboardInterrupt  # the function ends here

    world.unsubscribe(NEWS)
    world.on_send = crash
    with pytest.raises(KeyboardInterrupt):
        world.publish()
    world.on_send = int
    assert not world.wants(NEWS)
    world.subscribe(NEWS)
    assert world.publish()
    assert world.wants(NEWS)


def test_of_two_concurrent_publications_the_one_in_use_is_recorded(world: World) -> None:
    def overtaken() -> None:
        world.on_send = int
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


def test_versions_grow_when_the_clock_goes_back(world: World) -> None:
    world.publish()
    world.cloud.clock.advance(-3_600)
    world.subscribe(NEWS)
    world.publish()
    assert world.wants(NEWS)


def test_an_oversized_interest_is_withdrawn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish()
    monkeypatch.setattr(uplink, "MAX_DOWNLINK_EVENT_BYTES", 1_000)
    for _ in range(2):
        with pytest.raises(TooManyFiltersError):
            world.publish()
    _, withdrawal = world.sent
    assert world.addressed(withdrawal).message.is_deleted
    monkeypatch.undo()
    assert world.publish()
    assert world.wants("org.eventplane.climate.reading.v1")


def test_the_record_of_the_publication_belongs_to_no_device(world: World) -> None:
    world.publish()
    (item,) = world.cloud.dynamodb.items(DESIRED)
    assert not {desired.INDEX_KEY, desired.INDEX_SORT_KEY} & set(item)
    assert item[desired.PARTITION_KEY] == {"S": ALL}


@pytest.mark.parametrize("name", ["outbox", "outbox.fifo"])
@pytest.mark.lost_answers
def test_the_schedule_calls(world: World, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    outbox = world.cloud.sqs.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"]
    settings = {
        "CONTRACTS_TABLE": TABLE,
        "SUBSCRIPTIONS_TABLE": SUBSCRIPTIONS,
        "DESIRED_TABLE": DESIRED,
        "OUTBOX_QUEUE": outbox,
    }
    deploy(monkeypatch, tmp_path, load_contract(), settings)
    assert handler.handle({}, LambdaContext()) == {"published": True}
    assert handler.handle({}, LambdaContext()) == {"published": False}
    (body,) = world.cloud.sqs.bodies(outbox)
    assert parse_event(body).attributes["statekey"] == UPLINK_KEY
