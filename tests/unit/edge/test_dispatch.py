"""Which session at the home's broker brings what, and what becomes of messages that no box expects."""

from dataclasses import replace
from pathlib import Path

import pytest

from contract.acl import FORWARDER, acl
from edge.components import first_session_has_it, make_links
from edge.decision import NO_ATTRIBUTES
from edge.dispatch import UrgentHint, subscriptions
from edge.planning import LETTERS_EVERY_MS, MOST_LETTERS
from edge.system import SYSTEM
from eventplane.contract import Contract
from eventplane.device_reports import DISCARDED
from eventplane.reasons import Reason
from eventplane.receipts import SPOOL_FULL, Receipt, digest
from eventplane.topics import OUTBOXES, URGENT_CLIENT_SUFFIX, interest_topic, local_topic
from eventplane_mqtt import Endpoint, Login
from eventplane_mqtt.mailbox import LinkName, Mailbox, Received
from parts.simulate.broker import matches
from tests.plane import shipped_contract
from tests.unit.edge.fakes import ALARM, DEAD_LETTER, READING, Device, FakeWire, MakeDevice, contract, event

LOCAL, URGENT, CLOUD = LinkName.LOCAL, LinkName.URGENT, LinkName.CLOUD
STRANGE = "eventplane/sensr/outbox"


def over(device: Device, session: LinkName, payload: bytes, topic: str = "") -> Received:
    """A message over one of the two sessions, by default on the sensor's outbox."""
    device.turn()
    generation = device.links[session].generation
    return Received(session, generation, 1, topic or local_topic("sensor", "outbox"), payload)


def letters(device: Device) -> list[dict[str, object]]:
    return [each.data() for each in device.waiting(type=DEAD_LETTER)]


OUTBOX = local_topic("sensor", "outbox")
URGENT_OUTBOX = contract(sensor={"outbox": {"priority": "urgent"}})


@pytest.mark.parametrize(
    ("plane", "payload", "expected"),
    [
        (contract(), event("1", ALARM).json.encode(), True),
        (contract(), event("1", READING).json.encode(), False),
        (contract(), b"garbage", False),
        (contract(), b'{"type": "x", "severitynumber": 21}', True),
        (URGENT_OUTBOX, event("1", READING).json.encode(), True),
    ],
    ids=["an urgent type", "another type", "no event", "a severity", "an urgent outbox"],
)
def test_the_urgent_session_takes_urgent_events(plane: Contract, payload: bytes, expected: bool) -> None:
    assert UrgentHint(lambda: plane).may_be_urgent(OUTBOX, payload) is expected


def test_the_hint_follows_the_contract() -> None:
    planes = [contract(), URGENT_OUTBOX]
    hint = UrgentHint(lambda: planes[-1])
    assert hint.may_be_urgent(OUTBOX, b"")
    assert not hint.may_be_urgent(local_topic("stranger", "outbox"), b"")
    planes.reverse()
    assert not hint.may_be_urgent(OUTBOX, b"")


class TestFirstSessionHasIt:
    """Only then may the urgent session leave a message to the first."""

    def test_not_while_the_first_is_down(self, device: Device) -> None:
        device.disconnect(LOCAL)
        assert not first_session_has_it(device.links)

    @pytest.mark.parametrize(
        ("first", "urgent", "dialled_after", "expected"),
        [
            (True, True, False, True),
            (True, False, False, True),
            # The urgent session may hold what came before the first one began.
            (False, True, True, False),
            (False, False, False, False),
            (False, False, True, True),
        ],
    )
    def test_what_came_before_it_began_it_has_not(
        self, device: Device, first: bool, urgent: bool, dialled_after: bool, expected: bool
    ) -> None:
        device.connect(LOCAL, URGENT)
        device.local.last.resumed, device.urgent.last.resumed = first, urgent
        device.urgent_link.dialled_at = device.local_link.up_since - (0 if dialled_after else 1)
        assert first_session_has_it(device.links) is expected

    def test_at_a_start_the_urgent_session_is_opened_after_it(self, make: MakeDevice) -> None:
        device = make(connected=False)
        assert (len(device.local.all), len(device.urgent.all)) == (1, 0)
        assert device.forwarder._timeout_s() != 0  # the loop sleeps until the first one is up
        device.connect(LOCAL)
        assert len(device.urgent.all) == 1
        device.connect(URGENT)
        assert first_session_has_it(device.links)

    def test_an_urgent_session_is_opened_also_when_the_first_cannot_be(self, make: MakeDevice) -> None:
        device = make(connected=False)
        device.disconnect(LOCAL)
        device.turn()
        assert len(device.urgent.all) == 1


class TestSessions:
    def test_outboxes_of_urgent_events_have_a_session_of_their_own(self) -> None:
        plane = shipped_contract()
        assert set(subscriptions(plane, URGENT)) == {
            local_topic(each, "outbox") for each in ("voice-service", "health-service", "call-service")
        }
        # Without `sends` a service may send anything, unless others alone may send the urgent types.
        plane = contract(sensor={"sends": [READING]}, display={"sends": [ALARM]})
        assert subscriptions(plane, URGENT) == (local_topic("display", "outbox"),)

    def test_the_first_session_has_every_outbox_and_no_other_topic_twice(self) -> None:
        first = subscriptions(shipped_contract(), LOCAL)
        assert OUTBOXES in first
        assert not [each for each in first if each.endswith("r/outbox")]
        assert len(set(first)) == len(first) > 10

    def test_the_urgent_user_reads_outboxes_and_writes_nothing(self) -> None:
        rules = acl(shipped_contract()).split("\n\n")
        (urgent,) = [each for each in rules if each.startswith(f"user {FORWARDER}{URGENT_CLIENT_SUFFIX}\n")]
        assert urgent.splitlines()[1:] == [f"topic read {OUTBOXES}"]

    @pytest.mark.parametrize("thing", ["thing", "another"])
    def test_each_session_dials_with_its_own_client_id_login_and_subscriptions(
        self, device: Device, tmp_path: Path, thing: str
    ) -> None:
        dialled: dict[LinkName, Endpoint] = {}

        def dial(endpoint: Endpoint, link: LinkName, generation: int, *_: object) -> FakeWire:
            dialled[link] = endpoint
            return FakeWire(generation)

        local = replace(device.settings.local, username="me", password_file=tmp_path / "password")
        cloud_settings = replace(device.settings.cloud, protocol="5")
        settings = replace(device.settings, thing=thing, local=local, cloud=cloud_settings)
        plane = contract()
        for link in make_links(settings, lambda: plane, Mailbox(), SYSTEM, dial).values():
            link.tick(0.0)
        for session, suffix in ((LOCAL, ""), (URGENT, URGENT_CLIENT_SUFFIX)):
            found = dialled[session]
            assert (found.host, found.port, found.clean_session) == ("127.0.0.1", 1883, False)
            # Written down with each message that waits in the home: it must never change for a thing.
            owner = {"thing": 182_083_940, "another": 216_615_329}[thing]
            assert (found.protocol, found.owner) == ("5", owner)
            assert (found.client_id, found.login) == (
                local.client_id + suffix,
                Login("me" + suffix, tmp_path / "password"),
            )
            assert found.subscriptions == subscriptions(plane, session)
            assert found.needs_subscriptions
        cloud = dialled[CLOUD]
        assert (cloud.host, cloud.client_id, cloud.clean_session) == ("cloud", thing, True)
        assert cloud.protocol == "5"
        # Alarms go up even if the cloud's policy lacks the downlink's topic.
        assert (cloud.subscriptions, cloud.needs_subscriptions) == ((f"devices/{thing}/inbox",), False)

    @pytest.mark.parametrize("sessions", [(URGENT, LOCAL), (LOCAL, URGENT)])
    def test_what_comes_twice_is_once(self, device: Device, sessions: tuple[LinkName, LinkName]) -> None:
        for session in sessions:
            device.turn(over(device, session, event("fire", ALARM).json.encode()))
        assert device.spool.pending("call.inbox", 0) == 1
        assert device.local.last.acknowledged == device.urgent.last.acknowledged == [1]

    def test_an_overtaking_alarm_is_once(self, make: MakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("edge.components.RECENT_EVENTS", 10)
        device = make()
        alarm = event("fire", ALARM).json.encode()
        device.turn(over(device, URGENT, alarm))
        for number in range(25):
            device.turn(over(device, LOCAL, event(f"r{number}").json.encode()))
        device.turn(over(device, LOCAL, alarm))
        assert device.spool.pending("call.inbox", 0) == 1

    def test_an_alarm_comes_while_the_first_session_is_down(self, device: Device) -> None:
        device.disconnect(LOCAL)
        device.turn(over(device, URGENT, event("fire", ALARM).json.encode()))
        assert device.urgent.last.acknowledged == [1]
        device.connect(LOCAL)
        assert device.ids_at("call") == ["fire"]

    def test_what_waited_for_another_is_dropped(self, device: Device) -> None:
        alarm = over(device, LOCAL, event("theirs", ALARM).json.encode())
        no_loss = (over(device, LOCAL, b"{}", interest_topic("call")), over(device, URGENT, b"{}", STRANGE))
        theirs = [each._replace(foreign=True) for each in (alarm, *no_loss)]
        device.turn(*theirs, over(device, URGENT, event("ours", ALARM).json.encode()))
        assert device.ids_at("call") == ["ours"]
        assert device.local.last.acknowledged == [1, 1]
        device.turn(after=61.0)
        assert device.not_stored()[OUTBOXES, "another_thing"] == 1

    def test_the_urgent_session_is_dialled_again_by_itself(self, device: Device) -> None:
        dialled, first = len(device.urgent.all), len(device.local.all)
        device.disconnect(URGENT)
        assert (len(device.urgent.all), len(device.local.all)) == (dialled + 1, first)
        device.forwarder._finish()
        assert device.urgent.last.abandoned or device.urgent.last.closed


class TestUnknownOutboxes:
    @pytest.mark.source("F5")
    def test_they_are_letters_with_topic_and_remedy(self, device: Device) -> None:
        sent = over(device, LOCAL, event("e").json.encode(), STRANGE)
        device.turn(sent)
        (letter,) = letters(device)
        assert letter["channel"] == STRANGE
        assert STRANGE in str(letter["detail"])
        assert "correct the topic" in str(letter["detail"])
        assert device.receipts("sensr") == [Receipt(digest(sent.payload), Reason.UNKNOWN_CHANNEL)]
        assert device.local.last.acknowledged == [1]

    @pytest.mark.parametrize("letter", ["x", "é", '"'])
    def test_a_long_topic_ends_nothing(self, device: Device, letter: str) -> None:
        long = f"eventplane/{letter * (60_000 // len(letter.encode()))}/outbox"
        device.turn(over(device, LOCAL, b"x" * 90_000, long))
        (found,) = letters(device)
        assert long.startswith(str(found["channel"]))
        assert device.local.last.acknowledged == [1]

    @pytest.mark.parametrize(
        "topic", ["/eventplane/sensor/outbox", "eventplane/sensor/outbox/", "/eventplane/x/outbox/"]
    )
    def test_a_slash_too_many_is_reported(self, device: Device, topic: str) -> None:
        device.turn(over(device, LOCAL, event("e").json.encode(), topic))
        (letter,) = letters(device)
        assert (letter["channel"], letter["reason"], device.receipts("x")) == (topic, "unknown_channel", [])
        assert any(matches(each, topic) for each in subscriptions(device.contract, LOCAL))

    @pytest.mark.parametrize("topic", [STRANGE, "eventplane/sensor/outbox"])
    def test_what_clears_a_retained_message_is_no_event(self, device: Device, topic: str) -> None:
        device.turn(*(over(device, LOCAL, b"", topic)._replace(retained=each) for each in (True, False)))
        assert (letters(device), device.local.last.acknowledged) == ([], [1, 1])

    @pytest.mark.parametrize(
        ("topic", "payload", "counted_as"),
        [
            (b"eventplane/sensor/outbox", b"no event %d", "sensor.outbox"),
            (b"eventplane/sensor/outbox", b'{"id":%d}', "sensor.outbox"),
            (b"eventplane/sensor/outbox", b"x" * 98_305 + b"%d", "sensor.outbox"),
            (b"eventplane/x%d/outbox", b"%d", OUTBOXES),
        ],
    )
    def test_a_flood_is_counted(self, device: Device, topic: bytes, payload: bytes, counted_as: str) -> None:
        sent = [
            over(device, LOCAL, payload % n, topic.replace(b"%d", b"%d" % n).decode())
            for n in range(MOST_LETTERS + 5)
        ]
        device.turn(*sent)
        device.turn(*sent[:MOST_LETTERS])  # repetitions, of which nothing is lost
        for _ in range(2):
            assert len(letters(device)) == MOST_LETTERS
            assert {to: count for (to, _), count in device.not_stored().items()} == {counted_as: 5}
            device.turn(after=LETTERS_EVERY_MS / 1_000 + 1.0)
        device.turn(sent[0]._replace(payload=b"later"))
        assert len(letters(device)) == MOST_LETTERS + 1

    def test_without_room_they_are_one_kind_of_loss(self, make: MakeDevice) -> None:
        device = make()
        device.resize(device.spool.space.used_bytes)
        for minute in range(30):
            topics = [f"eventplane/{minute}-{n}-{'x' * 300}/outbox" for n in range(MOST_LETTERS)]
            device.turn(
                *(over(device, LOCAL, b"{}", topic) for topic in topics), after=LETTERS_EVERY_MS / 1_000
            )
        assert device.not_stored() == {(OUTBOXES, SPOOL_FULL): 30 * MOST_LETTERS}
        device.resize(64 * 1024 * 1024)
        device.turn(after=61.0)
        assert len(device.waiting(type=DISCARDED)) == 1


class TestRetained:
    """The broker repeats what it retains over each connection, however old it is."""

    def repeat(self, device: Device, *, resumed: bool) -> None:
        message = over(device, LOCAL, event("old", ALARM).json.encode())
        device.local.last.resumed = resumed
        device.turn(message._replace(retained=True))
        assert device.local.last.acknowledged == [1]

    def test_over_a_new_session_it_is_an_event(self, device: Device) -> None:
        self.repeat(device, resumed=False)
        assert (device.spool.pending("call.inbox", 0), letters(device)) == (1, [])

    def test_over_a_resumed_session_it_is_a_dead_letter_and_no_second_alarm(self, device: Device) -> None:
        self.repeat(device, resumed=True)
        assert device.spool.pending("call.inbox", 0) == 0
        (letter,) = letters(device)
        assert letter["reason"] == Reason.RETAINED
        assert "without" in str(letter["detail"])


class TestPayloads:
    @pytest.mark.parametrize(
        ("payload", "is_advised"),
        [
            (b'{"temperature": 21}', True),
            (b"21.5", True),
            (b"\xff\x00", True),
            (b"{}", True),
            (event("e").json.replace('"id"', '"idd"').encode(), False),
        ],
    )
    def test_advice_for_bare_payloads(self, device: Device, payload: bytes, is_advised: bool) -> None:
        device.send(payload)
        (letter,) = letters(device)
        assert str(letter["detail"]).endswith(NO_ATTRIBUTES) is is_advised

    def test_only_the_beginning_of_an_oversize_message_becomes_a_dead_letter(self, device: Device) -> None:
        message = device.from_service(b"x" * 4_096)._replace(oversize=3_000_000)
        device.turn(message)
        (letter,) = letters(device)
        assert "3000000 bytes" in str(letter["detail"])
        assert device.local.last.acknowledged == [message.mid]
