"""The plane in memory: bounded, and as strict as the others about who takes part."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.conversation.messages import Replier
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal
from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.filters import Any as AnyOf
from eventplane.filters import Exact, Not
from eventplane.names import REPLY_TO
from eventplane.reasons import Reason
from eventplane_client import ClientSettings, Sender, cloud_event_of, connect
from eventplane_client.client import Client
from eventplane_client.connection import memory_plane
from eventplane_client.errors import NothingThereError, NotRegisteredError, RefusedError, UnroutedError
from eventplane_client.memory import MAX_AGE_S, MemoryPlane
from eventplane_client.notices import Dropped, Notice
from tests.plane import shipped_contract
from tests.small_contract import small_contract
from tests.unit.client.worlds import READER, event, memory_client

SENT = "sender"
STEPS = ("put", "take", "end", "wait")


class Watched:
    """A plane whose clock stands still, and what it tells of the reader's inbox."""

    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.notices: list[Notice] = []
        self.plane = MemoryPlane(clock=lambda: self.now, **options)
        self.plane.subscribe(READER, "all", None)
        self.plane.listen(READER, self.notices.append)

    def put(self, *ids: str) -> None:
        for id in ids:
            self.plane.put(event(id), SENT)

    def take(self, most: int = 1_000) -> list[str]:
        return [parse_event(each.body).id for each in self.plane.take(READER, most, 0)]

    @property
    def dropped(self) -> list[tuple[str, str]]:
        return [(each.id, each.reason) for each in self.notices if isinstance(each, Dropped)]


PLANE = small_contract(
    {
        "device": "device",
        "button": {"kind": "device_service", "sends": ["ring", "tick", "knock"]},
        "chime": "device_service",
        "desk": {"kind": "cloud_service", "sends": ["open", "stray"]},
    },
    {
        "rings-up": ({"exact": {"type": "ring"}}, "device.outbox"),
        "rings-to-chime": (
            {"any": [{"exact": {"type": "ring"}}, {"exact": {"type": "knock"}}]},
            "chime.inbox",
        ),
        "rings-to-desk": ({"exact": {"type": "ring"}}, "desk.inbox"),
        "ticks-up": ({"exact": {"type": "tick"}}, "device.outbox"),
        "opens-down": ({"exact": {"type": "open"}}, "device.inbox"),
        "opens-to-button": ({"exact": {"type": "open"}}, "button.inbox"),
    },
)


class TestRoutes:
    """The contract's routes lead events to inboxes, over every hop."""

    @pytest.mark.parametrize(
        ("type", "sender", "came"),
        [
            ("ring", "button", {"chime", "desk"}),
            ("knock", "button", {"chime"}),
            ("open", "desk", {"device", "button"}),
        ],
    )
    def test_an_event_comes_once_into_each_inbox(self, type: str, sender: str, came: set[str]) -> None:
        plane = MemoryPlane(contract=PLANE)
        plane.subscribe("desk", "rings-as-well", Exact("type", "ring"))
        plane.put(event("1", type=type), sender)
        assert dict.fromkeys(came, 1) == {
            each: n for each in PLANE.participants if (n := plane.pending(each))
        }

    @pytest.mark.parametrize(("type", "sender"), [("tick", "button"), ("stray", "desk")])
    def test_a_route_that_ends_on_the_way_is_none(self, type: str, sender: str) -> None:
        with pytest.raises(UnroutedError):
            MemoryPlane(contract=PLANE).put(event("1", type=type), sender)

    def test_the_cloud_checks_payloads_and_the_home_does_not(self) -> None:
        plane = MemoryPlane()
        plane.enforce(PLANE, lambda *_: Refusal("payload_invalid", "it is"))
        for type, sender in (("ring", "button"), ("open", "desk")):
            with pytest.raises(RefusedError, match="payload_invalid"):
                plane.put(event(type, type=type), sender)
        plane.put(event("3", type="knock"), "button")
        assert [plane.pending(each) for each in PLANE.participants] == [0, 0, 2, 0]
        reasons = [each.attributes.get("deadletterreason") for each in plane.events]
        assert reasons == [None, "payload_invalid", None, "payload_invalid", None]

    def test_a_client_that_names_the_contract_keeps_the_check(self, tmp_path: Path) -> None:
        file = tmp_path / "contract.json"
        file.write_bytes(PLANE.canonical)
        memory_plane("checked").enforce(PLANE, lambda *_: Refusal("payload_invalid", "it is"))
        with (
            connect("memory:checked", "desk", contract=str(file)) as desk,
            pytest.raises(RefusedError, match="payload_invalid"),
        ):
            desk.put(event("1", type="open"))

    def test_a_reader_needs_no_subscription_of_its_own(self) -> None:
        plane = MemoryPlane(contract=PLANE)
        with client(plane, "button") as button, client(plane, "chime") as chime, chime.subscribe() as inbox:
            button.put(event("1", type="ring"))
            assert inbox.get(0).id == "1"


@pytest.mark.source("N4")
class TestBounds:
    def test_one_too_many_drops_the_oldest(self) -> None:
        it = Watched(max_events=2)
        it.put("a", "b", "c")
        assert it.notices == [Dropped(SENT, "/homes/1/voice", "a", "count")]
        assert it.take(1) == ["b"]
        it.put("d")
        assert it.take() == ["d"]
        it.put("e")
        assert it.dropped == [("a", "count"), ("c", "count"), ("b", "count")]

    def test_what_is_too_old_goes_and_says_so(self) -> None:
        it = Watched(max_age_s=10)
        it.put("a")
        it.now = 5.0
        it.put("b")
        it.now = 10.0
        assert it.take() == ["b"]
        assert it.dropped == [("a", "age")]

    def test_no_listener_keeps_an_event_away(self) -> None:
        it = Watched(max_events=1)
        it.plane.deliver_raw(READER, b"garbage")
        it.put("a")
        assert it.notices == [Dropped("", "", "", "count")]

        def fail(notice: Notice) -> None:
            raise RuntimeError(notice)

        it.plane.listen(READER, fail)
        it.put("b")
        assert it.take() == ["b"]

    def test_a_plane_by_name_is_bounded_and_tells_its_reader(self) -> None:
        notices: list[Notice] = []
        plane = memory_plane("bounded")
        assert (plane._max_events, plane._max_age_s) == (100_000, MAX_AGE_S)
        plane._max_events = 1
        with connect(ClientSettings("memory:bounded", READER), on_notice=notices.append) as client:
            client.subscribe({"exact": {"type": "t"}})
            for id in ("a", "b"):
                client.put(event(id, type="t"))
        assert [type(each) for each in notices] == [Dropped]

    @given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 5))), st.integers(1, 4))
    def test_bounds_hold_and_drops_are_told(self, steps: list[tuple[str, int]], most: int) -> None:
        it = Watched(max_events=most, max_age_s=10, visibility_s=3)
        it.plane.deliver("other", event("theirs"))
        sent: list[str] = []
        ended = 0
        held: list[Any] = []
        for what, count in steps:
            if what == "put":
                sent += [f"e{len(sent) + number}" for number in range(count)]
                it.put(*sent[-count:])
            elif what == "take":
                held += it.plane.take(READER, count, 0)
            elif what == "end":
                before = it.plane.pending(READER)
                it.plane.change(READER, held[:count], None)
                ended += before - it.plane.pending(READER)
                del held[:count]
            else:
                it.now += count
            assert it.plane.pending(READER) <= most
        it.plane.take(READER, 0, 0)
        assert len(sent) == ended + len(it.dropped) + it.plane.pending(READER)
        assert len(set(it.dropped)) == len(it.dropped)
        assert it.plane.pending("other") == 1  # each inbox has a bound of its own


def client(plane: MemoryPlane, participant: str) -> Client:
    return memory_client(plane, participant, is_registered=lambda: plane.is_registered(participant))


@pytest.mark.source("C8")
class TestInterest:
    ASKED = event(type="ask", **{REPLY_TO: "desk"})

    def test_handlers_of_others_are_not_waited_for(self) -> None:
        plane = MemoryPlane()
        for each in ("desk", "porter", "cook"):
            plane.subscribe(each, "all", None)
        assert plane.handlers(self.ASKED) == {Replier("porter"), Replier("cook")}
        plane.announce("cook", "program", AnyOf((Exact("type", "meal"),)))
        assert plane.handlers(self.ASKED) == {Replier("porter")}
        plane.announce("cook", "program", None)
        assert plane.handlers(self.ASKED) == {Replier("porter"), Replier("cook")}

    def test_who_subscribed_by_the_sender_is_waited_for_by_that_sender(self) -> None:
        plane, from_desk = MemoryPlane(), Exact("senderservice", "desk")
        plane.subscribe("porter", "desk's", from_desk)
        plane.subscribe("cook", "others'", Not(from_desk))
        assert plane.handlers(self.ASKED) == {Replier("porter")}
        assert plane.handlers(event(type="ask", **{REPLY_TO: "hall"})) == {Replier("cook")}

    def test_unhandled_events_do_not_come(self) -> None:
        meals = {"exact": {"type": "meal"}}
        with (
            connect("memory:interest", "desk") as desk,
            connect("memory:interest", "cook") as cook,
            connect("memory:interest", "waiter") as waiter,
        ):
            inbox, others = (each.subscribe({"sql": "TRUE"}) for each in (cook, waiter))
            cook.announce([meals])
            desk.put(event("1", type="guest"))
            desk.put(event("2", type="meal"))
            assert (inbox.get(1).id, others.get(1).id) == ("2", "1")
            waiter.unsubscribe()
            assert desk.request(event(type="guest"), 20.0) == {}
            cook.announce([])
            desk.put(event("3", type="meal"))
            with pytest.raises(NothingThereError):
                inbox.get(0)
            cook.withdraw()
            desk.put(event("4", type="guest"))
            assert inbox.get(1).id == "4"


@pytest.mark.source("F5")
class TestNamedErrors:
    def test_put_of_what_nobody_takes(self) -> None:
        plane = MemoryPlane()
        plane.subscribe(READER, "all", Exact("type", "alarm"))
        with client(plane, SENT) as sender:
            with pytest.raises(UnroutedError, match="'other'") as wrong:
                sender.put(event("lost", type="other"))
            assert (wrong.value.reason, wrong.value.participant) == ("unrouted", SENT)
            assert isinstance(wrong.value, RefusedError)
        (letter,) = plane.events
        assert letter.attributes["deadletterreason"] == "unrouted"
        assert plane.pending(READER) == 0

    def test_get_where_nothing_leads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("eventplane_client.inbox.LONG_POLL_S", 0.0)  # `handle` waits so long
        plane = MemoryPlane()
        with client(plane, READER) as reader, reader.subscribe({"exact": {"type": "t"}}) as inbox:
            with pytest.raises(NothingThereError):
                inbox.get(0)
            plane.put(event("last", type="t"), SENT)
            reader.unsubscribe()
            assert inbox.get(0).id == "last"  # what still lies there comes out first
            reads: list[Callable[[], object]] = [
                lambda: inbox.get(0), lambda: inbox.receive(0), lambda: inbox.handle(lambda _: None),
            ]  # fmt: skip
            for read in reads:
                with pytest.raises(NotRegisteredError, match="subscribe"):
                    read()


class TestSenders:
    """Nobody speaks for another, with the shipped contract; the alarm centre receives everything."""

    @pytest.fixture
    def plane(self) -> MemoryPlane:
        plane = MemoryPlane(contract=shipped_contract(), max_receives=1)
        plane.subscribe(READER, "all", None)
        return plane

    def test_a_refused_sender_has_a_dead_letter(self, plane: MemoryPlane) -> None:
        with client(plane, "family-app") as forger, pytest.raises(RefusedError) as caught:
            forger.put(event("1"))
        assert caught.value.reason == Reason.SENDER_NOT_ALLOWED
        (letter,) = plane.events
        assert (letter.type, str(letter.sender)) == (DEAD_LETTER_TYPE, "eventplane")
        assert letter.data()["channel"] == "family-app.outbox"
        assert letter.data()["sender"] == {"device": "", "service": "family-app"}

    @pytest.mark.parametrize("name", ["senderservice", "senderdevice"])
    def test_a_sender_that_the_event_names_itself_is_refused(self, plane: MemoryPlane, name: str) -> None:
        with pytest.raises(RefusedError, match="reserved_attribute"):
            plane.put(event(name).stamped(**{name: "voice-service"}), "family-app")
        assert [each.attributes["deadletterreason"] for each in plane.events] == ["reserved_attribute"]

    def test_a_reader_may_dead_letter_its_inbox(self, plane: MemoryPlane) -> None:
        with client(plane, "voice-service") as voice, client(plane, READER) as centre:
            voice.put(event("1"))
            with centre.subscribe() as inbox:
                received = inbox.receive(0)
                assert received.sender == received.event.sender == Sender("", "voice-service")
                received.nack("no such room")
        letter = plane.events[-1]
        assert (letter.type, str(letter.sender)) == (DEAD_LETTER_TYPE, READER)
        assert letter.data()["channel"] == f"{READER}.inbox"

    @pytest.mark.parametrize("form", ["envelope", "json", "sdk", "dictionary"])
    def test_who_sends_on_is_the_sender(self, form: str) -> None:
        plane = MemoryPlane()
        plane.subscribe("next", "all", None)
        stamps = {"senderdevice": "home-1", "deviceepoch": "one", "devicesequence": "7"}
        got = event("2", **stamps, senderservice="voice-service", sequence="7")
        with client(plane, "relay") as relay:
            sdk, plain = cloud_event_of(got), json.loads(got.json)
            relay.put({"envelope": got, "json": got.json, "sdk": sdk, "dictionary": plain}[form])
        (again,) = plane.events
        assert (again.claim, again.sender) == (got.claim, Sender("", "relay"))
        assert {*got.attributes} - {*again.attributes} == {*stamps}

    @pytest.mark.parametrize(
        ("wrong", "problem"),
        [
            ({"id": "1"}, "source"),
            ({"id": "1", "source": "/s", "type": "t", "data": {"at": datetime.now(UTC)}}, "datetime"),
            ({"id": "1", "source": "/s", "type": "t", "data": float("nan")}, "give values that JSON has"),
            (["id", "1"], "list is no event; give an Envelope, a dictionary"),
            (None, "NoneType is no event"),
        ],
    )
    def test_what_is_no_event_is_refused_by_name(self, plane: MemoryPlane, wrong: Any, problem: str) -> None:
        with client(plane, "relay") as relay, pytest.raises(EnvelopeError, match=problem):
            relay.put(wrong)

    def test_the_settings_name_the_contract_that_is_enforced(self, tmp_path: Path) -> None:
        file = tmp_path / "contract.json"
        file.write_bytes(shipped_contract().canonical)
        settings = ClientSettings("memory:enforced", "family-app", contract=str(file), state="memory:")
        with connect(settings) as app, pytest.raises(RefusedError, match=Reason.SENDER_NOT_ALLOWED):
            app.put(event("1"))
        for transport in ("memory:enforced", "mqtt://127.0.0.1:1"):
            with pytest.raises(NotRegisteredError, match="stranger"):
                connect(replace(settings, participant="stranger", transport=transport))
        # What a route of the contract takes is not unrouted, though its reader takes no part here.
        with connect(replace(settings, participant="voice-service")) as voice:
            voice.put(event("2"))
