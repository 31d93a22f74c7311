"""Requests by the client library: in memory, and over queues that several processes share."""

import inspect
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from os import urandom
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract.publication import KEY, ContractTable, Head, published
from eventplane.contract.subscription import new_subscription
from eventplane.contract.subscription_table import PARTITION, SORT, SUBSCRIPTION
from eventplane.conversation.handlers import Handlers
from eventplane.conversation.handlers import NoAskerError as NotAskingFromCore
from eventplane.conversation.messages import Failure, Replier, Reply, Status, write_reply, write_request
from eventplane.conversation.open_requests import MAX_OPEN, OPENS_AFTER, Circuit, Replies
from eventplane.envelope import Envelope, parse_event
from eventplane.filters import Exact
from eventplane.guarantee import DELIVERY_GUARANTEE
from eventplane.interest import table as interest_table
from eventplane.interest.announcement import new_announcement
from eventplane.records import Records
from eventplane_aws.tables import DynamoDbTables
from eventplane_client import Client, ClientSettings, Mode, asker, connect, contract_in_force
from eventplane_client.aio import AsyncClient
from eventplane_client.asker import QueueAsker
from eventplane_client.connection import memory_plane
from eventplane_client.contract_in_force import ContractInForce
from eventplane_client.conversation import telling
from eventplane_client.errors import (
    ClientError,
    ClientSettingsError,
    ClosedError,
    NoRoomError,
    NotAskingError,
    NotConfirmedError,
    RequestDroppedError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnavailableError,
    UnhandleableError,
)
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.notices import DeadLettered, Notice, PeerChanged
from tests.dynamodb import create_table
from tests.eventually import eventually
from tests.fakes.aws import FakeAws
from tests.small_contract import with_changes
from tests.unit.eventplane.conversation.worlds import ASK, ask, plane

SECONDS = 30
PORTER = Replier("porter")
NOW = "2026-01-01T00:00:00Z"
ASKED = {"exact": {"type": ASK}}


class Talk:
    """`desk` asks, and whoever answers subscribes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notices: list[Notice] = []
        self._open: list[Client] = []
        self._pool = ThreadPoolExecutor(4)
        self.desk = self.client("desk")

    def client(self, participant: str, mode: Mode = Mode.EXACTLY_ONCE) -> Client:
        settings = ClientSettings(f"memory:{self.name}", participant, mode=mode)
        self._open.append(connect(settings, on_notice=self.notices.append))
        return self._open[-1]

    def answers(
        self, participant: str, handler: Callable[[Envelope], object], mode: Mode = Mode.EXACTLY_ONCE
    ) -> None:
        """From now on, with `handler`."""
        inbox = self.client(participant, mode).subscribe(ASKED)
        threading.Thread(target=inbox.handle, args=(handler,), daemon=True).start()

    def in_background(self, call: Callable[[], Replies]) -> Future[Replies]:
        return self._pool.submit(call)

    def close(self) -> None:
        for each in self._open:
            each.close()
        self._pool.shutdown()


@pytest.fixture
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    it = Talk(request.node.name)
    yield it
    it.close()


@pytest.mark.source("N2", "C3")
@pytest.mark.parametrize("mode", list(Mode))
def test_everybody_who_handles_it_replies(talk: Talk, mode: Mode) -> None:
    def fail(event: Envelope) -> None:
        raise KeyError(event.id)

    memory_plane(talk.name).max_receives = 1
    talk.answers("porter", lambda event: [event.id], mode)
    talk.answers("cook", fail, mode)
    assert talk.desk.request(ask("r"), SECONDS) == {
        "porter": Reply(PORTER, Status.HANDLED, ["r"]),
        "cook": Reply(Replier("cook"), Status.FAILED, None, Failure("KeyError", "'r'")),
    }


def test_the_asker_hears_why_nobody_can(talk: Talk) -> None:
    def refuse(event: Envelope) -> None:
        raise UnhandleableError("no_such_room", "there is nobody to call")

    talk.answers("porter", refuse)
    failure = Failure("no_such_room", "there is nobody to call")
    assert talk.desk.request(ask("r"), SECONDS)["porter"] == Reply(PORTER, Status.FAILED, None, failure)

    def letters() -> list[tuple[str, str]]:
        return [(each.id, each.reason) for each in talk.notices if isinstance(each, DeadLettered)]

    assert eventually(lambda: letters() == [("r", "no_such_room")], SECONDS)


@pytest.mark.source("C3")
def test_a_request_waits_for_300_s_unless_told_otherwise(talk: Talk) -> None:
    for call in (Client.request, AsyncClient.request):
        assert inspect.signature(call).parameters["timeout_s"].default == 300
    talk.answers("porter", lambda event: event.attributes["expirytime"])
    before = datetime.now(UTC)
    expiry = talk.desk.request(ask(), expires=True)["porter"].answer
    waited = datetime.fromisoformat(str(expiry)) - timedelta(seconds=300)
    assert before - timedelta(milliseconds=1) <= waited <= datetime.now(UTC)


def test_a_failure_that_comes_again_is_not_replied(talk: Talk) -> None:
    tries: list[str] = []

    def second_time(event: Envelope) -> int:
        tries.append(event.id)
        if len(tries) < 2:
            raise ValueError
        return len(tries)

    talk.answers("porter", second_time)
    assert talk.desk.request(ask(), SECONDS)["porter"] == Reply(PORTER, Status.HANDLED, 2)


@pytest.mark.parametrize("by", ["ack", "get", "close"])
def test_whoever_settles_an_event_replies(talk: Talk, by: str) -> None:
    inbox = talk.client("porter").subscribe(ASKED)
    asking = talk.in_background(lambda: talk.desk.request(ask(), SECONDS))
    if by == "ack":
        received = inbox.receive(SECONDS)
        assert not asking.done()
        received.ack({"at": "once"})
        assert asking.result(SECONDS)["porter"].answer == {"at": "once"}
        return
    inbox.get(SECONDS)
    assert not asking.done()
    if by == "close":
        inbox.close()
    else:
        memory_plane(talk.name).put(ask("next"), "desk")
        inbox.get(SECONDS)
    assert asking.result(SECONDS)["porter"] == Reply(PORTER, Status.HANDLED, None)


@pytest.mark.source("C3")
def test_the_error_says_who_did_not_answer(talk: Talk) -> None:
    talk.client("cook").subscribe(ASKED)
    talk.answers("porter", lambda event: event.id)
    errors = (_late(talk.desk, timeout_s) for timeout_s in (0.5, 1, 2, 4, 8, 16, 32))
    late = next(each for each in errors if each.missing == ("cook",))
    assert "no reply of cook" in str(late)
    assert late.replies["porter"].status is Status.HANDLED


def _late(client: Client, timeout_s: float) -> RequestTimeoutError:
    with pytest.raises(RequestTimeoutError) as caught:
        client.request(ask(f"within-{timeout_s}"), timeout_s)
    return caught.value


@pytest.mark.source("C3")
def test_who_leaves_releases_who_waits(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asker, "LOOK_AGAIN_S", 0.05)
    porter = talk.client("porter")
    porter.subscribe(ASKED)
    asking = talk.in_background(lambda: talk.desk.request(ask(), SECONDS))
    assert eventually(lambda: "porter" in talk.desk.peers(), SECONDS)
    porter.unsubscribe()
    assert asking.result(SECONDS) == {"porter": Reply(PORTER, Status.UNHANDLED)}


@pytest.mark.source("C7")
def test_the_silent_are_not_waited_for(talk: Talk) -> None:
    porter = talk.client("porter")
    porter.subscribe(ASKED)
    porter.announce([ASKED])
    # The number of C7 itself, whatever the product's constant says.
    for number in range(10):
        assert talk.desk.peers() != {"porter": Circuit.OPEN}
        with pytest.raises(RequestTimeoutError):
            talk.desk.request(ask(f"r{number}"), 0.0)
    not_awaited = {"porter": Reply(PORTER, Status.NOT_AWAITED)}
    assert talk.desk.request(ask("skipped"), SECONDS) == not_awaited
    porter.announce([ASKED])
    with pytest.raises(RequestTimeoutError):
        talk.desk.request(ask("probe"), 0.0)
    # The probe was left unanswered, and the same announcement is no news.
    assert talk.desk.request(ask("skipped too"), SECONDS) == not_awaited
    talk.answers("porter", lambda event: event.id)
    numbers = itertools.count()

    def is_probed() -> bool:
        # Replies are read while somebody asks; one may come in time though nobody waited for it.
        talk.desk.request(ask(f"probe-{next(numbers)}"), SECONDS)
        return talk.desk.peers() == {"porter": Circuit.CLOSED}

    assert eventually(is_probed, SECONDS)
    changed = [each.circuit for each in talk.notices if isinstance(each, PeerChanged)]
    probed = [Circuit.OPEN, Circuit.HALF_OPEN]
    assert changed == [*probed, *probed, Circuit.CLOSED]


def test_nobody_answers_itself(talk: Talk) -> None:
    talk.desk.subscribe(ASKED)
    assert talk.desk.request(ask(), SECONDS) == {}


def test_closing_ends_the_waiting_for_replies(talk: Talk) -> None:
    talk.client("porter").subscribe(ASKED)
    asking = talk.in_background(lambda: talk.desk.request(ask(), SECONDS))
    assert eventually(lambda: "porter" in talk.desk.peers(), SECONDS)
    talk.desk.close()
    for call in (lambda: asking.result(SECONDS), lambda: talk.desk.request(ask(), SECONDS)):
        with pytest.raises(ClosedError):
            call()


@pytest.mark.source("C5")
def test_no_more_are_open_than_there_may_be(talk: Talk) -> None:
    conversations: Any = talk.desk._conversations
    for each in range(MAX_OPEN):
        conversations._requests.open(str(each), [])
    with pytest.raises(TooManyRequestsError, match=str(MAX_OPEN)):
        talk.desk.request(ask(), SECONDS)


class Down(MemoryTransport):
    """A transport that refuses the first puts, each with one of `refusals`."""

    def __init__(self, plane: MemoryPlane, *refusals: ClientError) -> None:
        super().__init__(plane, "desk")
        self.refusals = list(refusals)
        self.put_with: list[str | int | bool | None] = []

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        self.put_with.append(event.attributes.get(DELIVERY_GUARANTEE))
        if self.refusals:
            raise self.refusals.pop(0)
        super().put(event, timeout_s, durable=durable)


def asker_over(
    shared: MemoryPlane,
    transport: MemoryTransport | None = None,
    on_notice: Callable[[Notice], None] = lambda _: None,
) -> QueueAsker:
    """A desk of its own process, which waits for the porter."""
    replies = MemoryTransport(shared, "desk.replies")
    transport = transport or MemoryTransport(shared, "desk")
    return QueueAsker("desk", transport, replies, lambda _: frozenset([PORTER]), on_notice)


def reply_to(shared: MemoryPlane, request: Envelope) -> None:
    """The porter handles a request; its answer is the id."""
    shared.put(write_reply(request, Reply(PORTER, Status.HANDLED, request.id), NOW), "porter")


@pytest.mark.source("C6", "N2")
@pytest.mark.parametrize("durable", [True, False])
def test_without_a_connection_until_the_timeout(durable: bool) -> None:
    shared = MemoryPlane()
    transport = Down(shared, *[UnavailableError("desk", "down")] * 100)
    it = asker_over(shared, transport)
    with pytest.raises(UnavailableError if durable else RequestDroppedError, match="down"):
        it.request(ask(), 0.0, durable=durable, expires=True)
    assert it.peers() == {"porter": Circuit.CLOSED}  # it is not the peer's fault
    it.close()


@pytest.mark.source("C6", "N2")
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    "refusal", [UnavailableError("desk", "down"), NoRoomError("desk"), NotConfirmedError("desk", 1)]
)
def test_a_request_is_retried(durable: bool, refusal: ClientError, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asker, "_RETRY_S", 0.01)
    shared = MemoryPlane()
    shared.subscribe("porter", "inbox", None)
    transport = Down(shared, refusal, refusal)
    it = asker_over(shared, transport)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(it.request, ask("r"), SECONDS, durable=durable, expires=False)
        (message,) = shared.take("porter", 1, SECONDS)
        reply_to(shared, parse_event(message.body))
        assert asking.result(SECONDS)["porter"].answer == "r"
    assert transport.put_with == [None if durable else "best_effort"] * 3
    it.close()


@pytest.mark.source("C6")
def test_closing_ends_the_waiting_for_room() -> None:
    shared = MemoryPlane()
    it = asker_over(shared, transport := Down(shared, *[NoRoomError("desk")] * 1_000))
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(it.request, ask("r"), SECONDS, durable=True, expires=False)
        assert eventually(lambda: transport.put_with != [], SECONDS)
        it.close()
        with pytest.raises(ClosedError):
            asking.result(SECONDS)


class TestSharedQueue:
    """Two processes of one participant, and what is in the queue besides."""

    @pytest.mark.source("C3")
    def test_each_process_gets_the_replies_to_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asker, "_OTHERS_S", 0.01)
        shared = MemoryPlane()
        shared.subscribe("porter", "asked", Exact("type", ASK))
        processes = [asker_over(shared), asker_over(shared)]
        with ThreadPoolExecutor(6) as pool:
            asking = {
                f"r{n}": pool.submit(
                    processes[n % 2].request, ask(f"r{n}"), SECONDS, durable=True, expires=True
                )
                for n in range(6)
            }
            for _ in asking:
                (message,) = shared.take("porter", 1, SECONDS)
                reply_to(shared, parse_event(message.body))
            found = {id: each.result(SECONDS)["porter"].answer for id, each in asking.items()}
        assert found == {id: id for id in asking}
        for each in processes:
            each.close()
        assert shared.pending("desk.replies") == 0

    def test_a_listener_that_raises_ends_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        def listen(_: Notice) -> None:
            raise ValueError("the listener's own bug")

        shared = MemoryPlane()
        it = asker_over(shared, on_notice=telling(listen))
        with ThreadPoolExecutor(OPENS_AFTER) as pool:
            asking = [
                pool.submit(it.request, ask(f"r{n}"), 0.1, durable=True, expires=True)
                for n in range(OPENS_AFTER)
            ]
            for each in asking:
                with pytest.raises(RequestTimeoutError):
                    each.result(SECONDS)
        assert it.peers() == {"porter": Circuit.OPEN}
        assert "the listener of notices raised" in caplog.text
        it.close()

    def test_replies_of_others_stay(self) -> None:
        shared = MemoryPlane()
        others = write_request(
            ask("o"), asker="desk", device=None, correlation_id="o", deadline="2999-01-01T00:00:00Z", now=NOW
        )
        late = write_request(ask("l"), asker="desk", device=None, correlation_id="l", deadline=NOW, now=NOW)
        shared.deliver("desk.replies", ask())
        shared.deliver_raw("desk.replies", b"garbage")
        for each in (others, late):
            reply_to(shared, each)
        it = asker_over(shared)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(it.request, ask("r"), SECONDS, durable=True, expires=True)
            assert eventually(lambda: shared.pending("desk.replies") == 1, SECONDS)
            it.close()
            with pytest.raises(ClosedError):
                asking.result(SECONDS)


TABLES = {
    "contracts": [KEY],
    "subscriptions": [PARTITION, SORT],
    "interest": [PARTITION, interest_table.SORT],
}


class TestContractInForce:
    """The deployed contract, what is published, subscribed and announced."""

    @pytest.fixture
    def tables(self, fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(contract_in_force, "REFRESH_S", 0.0)
        dynamodb = fake_aws.dynamodb
        for name, keys in TABLES.items():
            create_table(dynamodb, name, *keys)
        return dynamodb

    def of(self, participant: str, dynamodb: Any) -> ContractInForce:
        return ContractInForce(participant, plane(), dynamodb, **{name: name for name in TABLES})

    def names(self, in_force: ContractInForce) -> set[str]:
        return {str(each) for each in in_force.handlers(ask())}

    def publish(self, tables: Any, version: str) -> None:
        head = Head(plane().version, version, None, NOW)
        ContractTable(DynamoDbTables(tables, urandom), "contracts").heads.force(head)

    def test_it_follows_the_tables_and_nothing_that_is_broken(self, tables: Any) -> None:
        in_force = self.of("desk", tables)
        self.publish(tables, "0123456789abcdef")
        assert self.names(in_force) == {"porter"}
        rights = {"exact": {"type": ASK}}
        changes = {"routes/to-porter": None, "participants/porter/may_subscribe": rights}
        without_porter = with_changes(plane(), changes)
        ContractTable(DynamoDbTables(tables, urandom), "contracts").contracts.force(published(without_porter))
        self.publish(tables, without_porter.version)
        assert self.names(in_force) == set()
        subscription = new_subscription("porter", "mine", {"exact": {"type": ASK}}, NOW)
        tables.put_item(TableName="subscriptions", Item=SUBSCRIPTION.to_item(subscription))
        tables.put_item(TableName="subscriptions", Item={PARTITION: {"S": "x"}, SORT: {"S": "broken"}})
        assert self.names(in_force) == {"porter"}
        with pytest.raises(NotAskingFromCore):
            self.of("porter", tables).handlers(ask())

    def announce(
        self, tables: Any, type: str, until_s: float, announcer: str = "one", announced_ms: int = 0
    ) -> None:
        leased = interest_table.LeasedAnnouncement(
            new_announcement("porter", [{"exact": {"type": type}}]), int(time.time() + until_s), announced_ms
        )
        item = interest_table.announcement_item(leased, announcer)
        Records(DynamoDbTables(tables, urandom), "interest", interest_table.ANNOUNCEMENT).force(item)

    def test_an_announcement_counts_for_its_lease(self, tables: Any) -> None:
        in_force = self.of("desk", tables)
        for until_s, expected in ((SECONDS, set()), (-1, {"porter"})):
            self.announce(tables, "org.example.other.v1", until_s)
            assert self.names(in_force) == expected

    @pytest.mark.source("C7")
    def test_a_renewal_is_no_new_announcement(self, tables: Any) -> None:
        in_force = self.of("desk", tables)
        for announcer, until_s, at_ms in (("one", 1, 7), ("one", 2, 7), ("another", 1, 8)):
            self.announce(tables, ASK, until_s * SECONDS, announcer, at_ms)
            assert self.names(in_force) == {"porter"}
            assert in_force.announced() == {PORTER: at_ms}

    def test_tables_that_do_not_answer_are_named(self, fake_aws: FakeAws) -> None:
        with pytest.raises(UnavailableError, match="desk"):
            self.of("desk", fake_aws.dynamodb).handlers(ask())


class TestOverSqs:
    """What `connect` makes of the settings."""

    @pytest.fixture(autouse=True)
    def queues(self, fake_aws: FakeAws) -> None:
        for name in ("desk-inbox", "desk-outbox", "desk-replies", "porter-inbox", "porter-outbox"):
            fake_aws.sqs.create_queue(QueueName=f"eventplane-test-{name}")

    @pytest.mark.lost_answers
    def test_who_asks_needs_the_contract(self, tmp_path: Path) -> None:
        with connect(ClientSettings("sqs:test", "desk")) as desk, pytest.raises(ClientSettingsError):
            desk.request(ask())
        with pytest.raises(ClientSettingsError, match="contract compile"):
            connect(ClientSettings("sqs:test", "desk", contract=str(tmp_path / "none.json")))
        file = tmp_path / "contract.json"
        file.write_bytes(plane().canonical)
        with (
            connect(ClientSettings("sqs:test", "porter", contract=str(file))) as porter,
            pytest.raises(ClientSettingsError, match="asks"),
        ):
            porter.request(ask())
        with connect(ClientSettings("sqs:test", "desk", contract=str(file))) as desk:
            assert desk.peers() == {}
            with pytest.raises(UnavailableError):  # there are no tables here
                desk.request(ask(), 0.0)
            with pytest.raises(RequestDroppedError):
                desk.request(ask(), 0.0, durable=False)


def test_who_may_not_ask_is_told_why(talk: Talk) -> None:

    handlers = Handlers(plane())
    it: Any = talk.desk._conversations
    it._handlers = lambda event: handlers.of(event, "porter")
    with pytest.raises(NotAskingError, match="asks"):
        talk.desk.request(ask(), SECONDS)
