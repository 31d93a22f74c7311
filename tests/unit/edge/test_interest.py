"""Inboxes of a home's services: addresses, and announced interest."""

import logging
from collections.abc import Iterator
from os import urandom
from pathlib import Path
from random import Random

import pytest

from edge.counts import Counts, NotStored
from edge.delivery_queues import UNSTORED_RANK, DeliveryQueues, VolatileEvent
from edge.forwarder import Reload
from edge.inbox import InboxPump
from edge.interest import Interest
from edge.settings import LocalSettings
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane.contract import Priority, compile_contract
from eventplane.conversation.questions import HandlersAnswer, read_handlers_answer, write_handlers_question
from eventplane.device_reports import (
    ACKNOWLEDGED,
    DISCARDED,
    MANIFEST,
    UPLINK_INTEREST_TYPE,
    UPLINK_KEY,
    key_digest,
)
from eventplane.downlink.device import AckStatus
from eventplane.envelope import Envelope, parse_event
from eventplane.interest.announcement import new_announcement, write_announcement
from eventplane.interest.uplink import uplink_filters, uplink_interest_event
from eventplane.names import SEQUENCE
from eventplane.reasons import Reason
from eventplane.receipts import Receipt, digest
from eventplane.topics import handlers_answer_topic, handlers_topic
from eventplane_mqtt.mailbox import LinkName, Received
from eventplane_mqtt.reconnection import Backoff, Link
from tests.plane import shipped_contract
from tests.unit.edge.builders import arrival, command, state
from tests.unit.edge.fakes import ALARM, DEAD_LETTER, READING, Device, MakeDevice, Wires, contract, event
from tests.unit.eventplane.conversation.worlds import ask, document
from tests.unit.eventplane.conversation.worlds import plane as conversation

INBOX = contract().channel("call.inbox")
TEXT = event("fire", ALARM).json
TIMEOUT_S = 10.0


class Pump:
    """An inbox with receipts over a connection that stands; `end` commits what a receipt ended."""

    def __init__(self, path: Path, window: int = 3) -> None:
        self.wires = Wires()
        link = Link(LinkName.LOCAL, self.wires.dial, Backoff(1.0, 60.0, Random(1)), 5.0)
        link.tick(0.0)
        link.connected(link.generation, 0.0)
        self.spool = Spool(path, SYSTEM)
        self.counts = Counts()
        self.queues = DeliveryQueues(self.spool, self.counts)
        settings = LocalSettings(inbox_window=window, receipt_timeout_s=TIMEOUT_S)
        self.inbox = InboxPump(self.queues, INBOX, link, settings)

    def store(self, *texts: str, rank: int = Priority.URGENT.rank) -> None:
        first = self.spool.next_sequence
        events = [arrival(first + n, rank, (INBOX.address,), text) for n, text in enumerate(texts)]
        self.spool.commit(events, uptime_ms=0)
        self.inbox.pump(0.0)

    @property
    def published(self) -> list[str]:
        return [payload.decode() for _, _, payload in self.wires.last.published]

    def end(self, text: str) -> int:
        ended = self.inbox.receipted(Receipt(digest(text.encode())))
        self.spool.commit([], [each.delivery for each in ended], uptime_ms=0)
        self.inbox.pump(0.0)
        return len(ended)


def test_a_message_that_the_broker_refuses_is_not_delivered(device: Device) -> None:
    device.send(event("1", subject="show"))
    ((mid, *_),) = device.local.last.published[1:]
    device.turn(device.puback(mid, LinkName.LOCAL, "not authorized"))
    assert device.spool.backlog()["display.inbox"] == 1
    device.turn(device.puback(mid, LinkName.LOCAL))
    device.turn(after=61.0)
    assert device.spool.backlog()["display.inbox"] == 0


@pytest.fixture
def pump(tmp_path: Path) -> Iterator[Pump]:
    pump = Pump(tmp_path / "spool.db")
    yield pump
    pump.spool.close()


def test_a_receipt_ends_every_delivery_of_the_same_bytes(pump: Pump) -> None:
    pump.store(TEXT, TEXT, "{}", "[]")
    assert pump.published == [TEXT, TEXT, "{}"]
    assert pump.end(TEXT) == 2
    assert pump.published[3:] == ["[]"]
    assert (pump.end(TEXT), pump.end("{}"), pump.end("[]")) == (0, 1, 1)
    assert pump.spool.backlog() == {INBOX.address: 0}
    assert pump.inbox.deadline() is None


def test_so_does_the_receipt_of_an_event_in_memory_and_its_copy_in_the_spool(pump: Pump) -> None:
    unstored = VolatileEvent(INBOX.address, ALARM, TEXT, key_digest(("", "", "")), UNSTORED_RANK)
    pump.queues.send_volatile([unstored], lambda _: True)
    pump.store(TEXT)
    assert pump.published == [TEXT, TEXT]
    ended = pump.inbox.receipted(Receipt(digest(TEXT.encode())))
    stored = pump.queues.delivered(each.delivery for each in ended)
    assert [each.rank for each in stored] == [0]
    assert pump.counts.sent_unstored == 1


def test_what_shares_its_bytes_is_sent_again_together(pump: Pump) -> None:
    pump.store(TEXT, TEXT)
    pump.inbox.tick(10.0)
    pump.inbox.pump(10.0)
    assert pump.published == [TEXT] * 4
    assert pump.end(TEXT) == 2


@pytest.mark.parametrize(
    ("priority", "tried_s"),
    [(Priority.URGENT, (10, 30, 60, 90, 120, 150)), (Priority.NORMAL, (10, 30, 70, 150, 310, 630))],
)
def test_an_alarm_is_sent_again_soon(pump: Pump, priority: Priority, tried_s: tuple[float, ...]) -> None:
    pump.store(TEXT, rank=priority.rank)
    for now in tried_s:
        assert pump.inbox.deadline() == now
        pump.inbox.tick(now)
        pump.inbox.pump(now)
    pump.inbox.rewind()
    pump.inbox.pump(1_000.0)
    assert pump.inbox.deadline() == 1_000.0 + TIMEOUT_S  # over a new connection as at first


LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
SHOWN = {"exact": {"subject": "show"}}
LOUD = {"exact": {"volume": "loud"}}
BEST_EFFORT = {"deliveryguarantee": "best_effort"}


@pytest.fixture
def home(make: MakeDevice) -> Device:
    """Between two brokers, under a contract by which the device asks what the cloud wants."""
    return make(forward="wanted", batching_delay_ms=0)


def up(device: Device) -> list[Envelope]:
    """All that was published to the cloud, once it has acknowledged that."""
    if device.cloud_link.up:
        device.acknowledge_all()
    return device.published()


def wanted_up(number: int, *filters: object, **changes: object) -> str:
    data = {"version": 1, "filters": list(filters)} | changes
    return state(number, UPLINK_KEY, type=UPLINK_INTEREST_TYPE, data=data)


@pytest.mark.source("C8")
def test_what_a_service_does_not_handle_is_not_forwarded_to_it_and_counted(home: Device) -> None:
    home.turn(home.announcement_of("display", LOUD))
    home.send(event("1", subject="show"))
    home.send(event("2", subject="show", volume="loud"))
    assert home.ids_at("display") == ["2"]
    assert home.not_stored() == {("display.inbox", Reason.NO_INTEREST): 1}
    assert [each.id for each in up(home)] == ["1", "2"]  # the cloud gets both


def test_what_nobody_at_all_wants_is_receipted_and_not_stored(home: Device) -> None:
    home.turn(home.announcement_of("display", LOUD), home.from_cloud(wanted_up(1, LOUD)))
    home.acknowledge_all()
    before = home.spool.next_sequence
    message = home.from_service(event("1", subject="show"))
    home.turn(message, message)  # a repetition is known
    assert home.spool.next_sequence == before
    assert home.forwarder.counts.not_stored == {
        NotStored(each, READING, Reason.NO_INTEREST): 1 for each in ("display.inbox", "device.outbox")
    }
    assert home.forwarder.counts.unwanted == 2
    assert message.mid in home.local.last.acknowledged


def test_an_urgent_event_is_always_forwarded(home: Device) -> None:
    home.turn(home.announcement_of("call"), home.from_cloud(wanted_up(1)))
    home.send(event("1", ALARM))
    home.send(event("2", subject="show", severitynumber=17))
    assert home.ids_at("call") == ["1"]
    assert home.ids_at("display")[-1:] == ["2"]
    assert {"1", "2"} <= {each.id for each in up(home)}


OF_THING = {"exact": {"senderdevice": "thing"}}
NUMBERED = {"sql": "EXISTS deviceepoch AND EXISTS devicesequence"}


@pytest.mark.parametrize(
    ("wanted", "attributes", "goes_up"),
    [
        (OF_THING, {}, True),
        ({"exact": {"senderdevice": "home-2"}}, {}, False),
        ({"exact": {"senderservice": "sensor"}}, {}, True),
        (NUMBERED, {}, True),
        ({"not": NUMBERED}, {}, False),
        (OF_THING, BEST_EFFORT, True),
        (NUMBERED, BEST_EFFORT, False),
        ({"not": NUMBERED}, BEST_EFFORT, True),
    ],
)
def test_decided_as_it_goes(home: Device, wanted: object, attributes: dict[str, str], goes_up: bool) -> None:
    home.send_down(wanted_up(1, wanted))
    home.send(event("1", **attributes))
    sent = [each for each in up(home) if each.id == "1"]
    assert len(sent) == goes_up
    # At best effort an event has no number.
    assert all((SEQUENCE in each.attributes) is (attributes == {}) for each in sent)


@pytest.mark.parametrize(
    ("wanted", "is_shown"), [(NUMBERED, True), ({"not": NUMBERED}, False), (OF_THING, False)]
)
def test_services_decide_by_what_they_get(home: Device, wanted: object, is_shown: bool) -> None:
    home.turn(home.announcement_of("display", wanted))
    home.send(event("1", subject="show"))
    shown = [parse_event(each) for each in home.delivered("display")]
    assert [each.id for each in shown] == (["1"] if is_shown else [])
    assert all(SEQUENCE in each.attributes for each in shown)


def test_dead_letters_and_reports_always_go_up(home: Device) -> None:
    home.send_down(wanted_up(1))
    home.send(b"no event")
    # The answer to the state itself, too.
    assert {DEAD_LETTER, ACKNOWLEDGED} <= {each.type for each in up(home)}


@pytest.mark.source("C8")
@pytest.mark.parametrize("retained", [None, SHOWN, LOUD], ids=["nothing", "another one", "the same"])
def test_a_connection_renews_an_announcement(home: Device, retained: object) -> None:
    home.turn(home.announcement_of("display", LOUD))
    home.disconnect(LOCAL)
    if retained is not None:
        # Mosquitto sends what it keeps before it confirms the subscription.
        home.turn(home.announcement_of("display", retained))
    home.connect(LOCAL)
    home.send(event("1", subject="show"))
    assert home.ids_at("display") == ([] if retained is LOUD else ["1"])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"garbage",
        b'{"version":2,"participant":"display","filters":[]}',
        b'{"version":1,"participant":"sensor","filters":[]}',
        b'{"version":1,"participant":"display","filters":[{"new":{}}]}',
    ],
)
def test_a_wrong_one_is_forgotten(home: Device, payload: bytes, caplog: pytest.LogCaptureFixture) -> None:
    home.turn(home.announcement_of("display", LOUD))
    with caplog.at_level(logging.WARNING, "edge.interest"):
        for _ in range(2):
            home.turn(home.announcement_of("display", payload=payload))
    assert ("announcement of display" in caplog.text) is (payload != b"")
    home.send(event("1", subject="show"))
    assert home.ids_at("display") == ["1"]


def test_a_command_that_its_service_does_not_handle_is_rejected(home: Device) -> None:
    home.turn(home.announcement_of("display", LOUD))
    home.send_down(command(1), command(2, "command/app/loud", volume="loud"))
    assert [(each.result, each.reason) for each in home.acknowledgements()] == [
        (AckStatus.REJECTED, Reason.NO_INTEREST),
        (AckStatus.STORED, ""),
    ]
    assert home.ids_at("display") == ["c2"]


def test_a_state_that_its_service_does_not_handle_is_kept_for_its_question(home: Device) -> None:
    home.turn(home.announcement_of("display", LOUD))
    home.send_down(state(1))
    assert home.ids_at("display") == []
    home.turn(home.question_of("display", "q", "setting/climate/threshold"))
    (answer,) = [payload for _, topic, payload in home.local.last.published if topic.endswith("answer")]
    assert b"v1" in answer


def test_what_the_cloud_wants_holds_after_a_crash_and_until_it_is_deleted(home: Device) -> None:
    home.send_down(wanted_up(1, LOUD))
    home.acknowledge_all()
    home.restart()
    home.send(event("1"))
    assert "1" not in [each.id for each in up(home)]
    home.send_down(state(2, UPLINK_KEY, type=UPLINK_INTEREST_TYPE, deleted=True))
    home.send(event("2"))
    assert "2" in [each.id for each in up(home)]


@pytest.mark.parametrize(
    "broken",
    [
        wanted_up(2, version=2),
        wanted_up(2, {"new": {}}),
        wanted_up(2, filters="all"),
        state(2, UPLINK_KEY, type=UPLINK_INTEREST_TYPE, data={"version": 1}),
    ],
)
def test_malformed_interest_is_refused(home: Device, broken: str) -> None:
    home.send_down(wanted_up(1, LOUD))
    home.send_down(broken)
    answers = [(each.result, each.reason) for each in home.acknowledgements()]
    assert answers == [(AckStatus.STORED, ""), (AckStatus.REJECTED, "interest_refused")]
    home.send(event("1"), event("2", volume="loud"))
    sent = [each.id for each in up(home)]
    assert "1" not in sent
    assert "2" in sent


def test_without_the_contract_s_word_everything_goes_up(make: MakeDevice) -> None:
    device = make(batching_delay_ms=0)
    device.send_down(wanted_up(1))
    device.send(event("1"))
    assert "1" in [each.id for each in up(device)]
    device.turn(Reload(contract(forward="wanted", batching_delay_ms=0)))
    device.redial(CLOUD)
    device.send(event("2"))
    assert "2" not in [each.id for each in up(device)]


def test_unwanted_events_wait_for_a_manifest(make: MakeDevice) -> None:
    device = make(forward="wanted", batching_delay_ms=0, first_report_s=1_000)
    device.send_down(wanted_up(1))
    device.send(*(event(str(number)) for number in range(3)))
    device.acknowledge_all()
    assert DISCARDED not in [each.type for each in up(device)]
    device.turn(after=1_100)
    told = {each.type: each.data() for each in up(device)}
    assert MANIFEST in told
    assert told[DISCARDED]["not_stored"] == [
        {"channel": "device.outbox", "type": READING, "reason": Reason.NO_INTEREST, "count": 3}
    ]


def test_a_participant_that_withdrew_is_not_awaited_and_gets_everything() -> None:
    interest, shown = Interest(urandom), event("1", subject="show")
    announced = write_announcement(new_announcement("display", [SHOWN]))
    display = contract().channel("display.inbox")

    def take(payload: bytes) -> tuple[bool, bool]:
        interest.take(Received(LinkName.LOCAL, 1, 1, "announcements", payload), display)
        asked = "display.inbox", shown, Priority.NORMAL
        return interest.wants(*asked), interest.answers(*asked)

    assert take(b"") == (True, True)  # it never said anything
    assert take(announced) == (True, True)
    assert take(b"") == (True, False)
    assert take(announced) == (True, True)


def handlers(device: Device, service: str, asked: Envelope) -> HandlersAnswer:
    device.turn(device._received(handlers_topic(service), write_handlers_question("q", asked)))
    topic = handlers_answer_topic(service)
    (answer,) = [payload for _, to, payload in device.local.last.published if to == topic]
    return read_handlers_answer(answer)


@pytest.mark.source("C7")
def test_the_asker_learns_the_handlers_of_its_request_and_their_announcements(make: MakeDevice) -> None:
    device = make(plane=conversation())
    device.turn(device.announcement_of("lamp", {"exact": {"type": ask().type}}))
    found = handlers(device, "button", ask(loud=True))
    assert (found.id, found.thing, found.handlers) == ("q", "thing", ("chime", "lamp"))
    assert found.announced.keys() == {"lamp"}
    assert "asks" in str(handlers(device, "lamp", ask(loud=True)).problem)


def test_a_route_in_the_cloud_that_reads_the_sender_s_device_reads_this_one(make: MakeDevice) -> None:
    some = document()
    for route, thing in (("to-porter", "thing"), ("to-desk", "other")):
        some["routes"][route]["filter"] = {"exact": {"senderdevice": thing}}
    device = make(plane=compile_contract(some, "talk"))
    assert handlers(device, "button", ask(far=True)).handlers == ("lamp", "porter")


def test_what_all_of_the_cloud_s_routes_take_fits_one_event() -> None:
    filters = uplink_filters(shipped_contract())
    told = uplink_interest_event(filters, id="i", time="2026-01-01T00:00:00Z", device="*")
    assert len(told.json) < 8_192
