"""Warnings about contracts that are valid and probably wrong; and the paths of events."""

from typing import Any

import pytest

from contract.checks import check
from contract.explain import outcomes
from eventplane.cesql import parse
from eventplane.contract import Contract, Problem
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.possibilities import possible
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import write_event
from eventplane.reach import Reachability
from tests.plane import plane_contract
from tests.small_contract import with_changes
from tests.unit.contract.small import KINDS, RING, Routes, Sends, services, to, where

PRESSED = "com.example.laundry.pressed.v1"
UP = where({"prefix": {"type": "org."}}, "device.outbox")


def found(contract: Contract) -> dict[str, str]:
    """Return warnings by path, without those about unused inboxes."""
    return {each.path: each.message for each in check(contract) if not each.path.endswith(".inbox")}


def to_desk(filter: dict[str, Any]) -> Routes:
    return {"up": UP, "to-desk": where(filter, "desk.inbox")}


EXACT_RING = {"exact": {"type": RING}}


def test_an_inbox_without_route_is_named() -> None:
    up = {"up": where(EXACT_RING, "device.outbox")}
    inboxes = {f"participants.{name}.inbox" for name in ("desk", "shop")}
    assert {each.path for each in check(services(up))} == inboxes
    # On the device only one whose settings show that it is meant to receive.
    waiting = {"sends": None, "inbox": {"receipts": True}}
    contract = services(up, {"lamp": waiting, "desk": None, "shop": None})
    assert {each.path for each in check(contract) if each.path.endswith(".inbox")} >= {
        "participants.lamp.inbox"
    }


@pytest.mark.source("P4")
@pytest.mark.parametrize(("priority", "is_doubtful"), [("urgent", True), ("normal", False)])
def test_an_urgent_type_at_best_effort_is_named(priority: str, is_doubtful: bool) -> None:
    ring = {"priority": priority, "delivery_guarantee": "best_effort"}
    contract = services(to_desk(EXACT_RING), **{RING: ring})
    assert (f"event_types.{RING}.delivery_guarantee" in found(contract)) is is_doubtful


@pytest.mark.parametrize(
    ("filter", "path", "message"),
    [
        ({"exact": {"type": "org.example.rong.v1"}}, "exact", "matches no event type"),
        ({"any": [EXACT_RING, {"suffix": {"type": ".v2"}}]}, "any[1].suffix", "no event type"),
        ({"all": [{"exact": {"type": "a"}}, {"exact": {"subject": "b"}}]}, "all", "matches no event type"),
        ({"sql": "type = 'a'"}, "sql", "matches no event type"),
        ({"sql": "a = 1 AND NOT (type LIKE 'org.%')"}, "sql", "matches no event type"),
        ({"not": {"prefix": {"type": "org."}}}, "not", "matches no event type"),
        ({"any": [EXACT_RING, {"sql": "NOT a = b"}]}, "any[1].sql", "NOT binds"),
        ({"sql": "1 = 2"}, "sql", "no event passes"),
        ({"sql": "EXISTS id"}, "sql", "every event passes"),
        ({"not": {"sql": "EXISTS id"}}, "", "no event passes"),
        ({"not": {"sql": "1 = 2"}}, "", "every event passes"),
        ({"exact": {"subject": "/a"}}, None, ""),
        ({"sql": "type LIKE '%.ring.%' AND EXISTS subject"}, None, ""),
        ({"any": [{"suffix": {"type": ".v1"}}, {"exact": {"subject": "/a"}}]}, None, ""),
        ({"all": [{"prefix": {"type": "org."}}, {"not": {"exact": {"subject": "/a"}}}]}, None, ""),
    ],
)
def test_doubtful_filters_have_a_place(filter: dict[str, Any], path: str | None, message: str) -> None:
    warned = found(services(to_desk(filter)))
    if path is None:
        assert warned == {}
    else:
        assert message in warned[".".join(part for part in ("routes.to-desk.filter", path) if part)]


def test_routes_that_miss_or_repeat_something_are_named() -> None:
    # Without declared types no filter can miss them.
    assert found(services(to_desk({"exact": {"type": "x"}}), types="")) == {}
    routes = {"up": to("device.outbox", RING), "to-desk": to("desk.inbox", RING)}
    lost = services(routes, types=f"{RING} org.example.lost")
    assert found(lost) == {"event_types.org.example.lost": "no route takes it"}
    again = services(to_desk(EXACT_RING) | {"again": to("desk.inbox", RING)})
    assert "same as again" in found(again)["routes.to-desk"]
    no_uplink = found(services({"to-desk": to("desk.inbox", RING)}))
    assert "no route leads to the uplink" in no_uplink["participants.device.outbox"]


def test_a_warning_about_an_expression_marks_its_place() -> None:
    (warning,) = (each for each in check(services(to_desk({"sql": "a = 1 AND NOT b = 2"}))) if each.excerpt)
    assert warning.excerpt.splitlines()[0] == str(parse("a = 1 AND NOT b = 2"))
    assert warning.excerpt.splitlines()[1].strip() == "^"


@pytest.mark.parametrize(
    ("filter", "answers"),
    [
        ({"exact": {"a": "1"}}, {True, False}),
        ({"exact": {"type": "t"}}, {True}),
        ({"prefix": {"type": "x"}}, {False}),
        ({"all": [{"exact": {"a": "1"}}, {"exact": {"type": "x"}}]}, {False}),
        ({"any": [{"exact": {"a": "1"}}, {"exact": {"type": "t"}}]}, {True}),
        ({"any": [{"exact": {"a": "1"}}, {"exact": {"b": "1"}}]}, {True, False}),
        ({"not": {"any": [{"exact": {"a": "1"}}, {"exact": {"type": "t"}}]}}, {False}),
        ({"sql": "type = 't'"}, {True}),
        ({"sql": "type = 't' AND a"}, {True, False}),
    ],
)
def test_possible_answers_are_no_more_than_there_are(filter: dict[str, Any], answers: set[bool]) -> None:
    problems: list[Problem] = []
    assert possible(read_filter(filter, "filter", problems), {"type": "t"}) == answers
    assert problems == []


IN_ORDER = {"ordering": "source"}
IN_FIFO = {"transport": "sqs_fifo", "ordering": "source"}


@pytest.mark.source("P17")
@pytest.mark.parametrize(
    ("inbox", "sender", "settings", "expected"),
    [
        (IN_ORDER, "lamp", {}, None),
        (IN_FIFO, "lamp", {}, "a device's events"),
        (IN_ORDER, "lamp", {"outbox": {"delivery_guarantee": "best_effort"}}, "do not number"),
        (IN_ORDER, "shop", {}, None),
        (IN_FIFO, "shop", {}, "its outbox is a standard queue"),
        (IN_FIFO, "shop", {"outbox": IN_FIFO}, None),
    ],
)
def test_an_ordered_inbox_with_unordered_senders_is_named(
    inbox: dict[str, str], sender: str, settings: dict[str, Any], expected: str | None
) -> None:
    desk = {"sends": [], "inbox": inbox}
    contract = services(to_desk(EXACT_RING), {"desk": desk, sender: {"sends": [RING], **settings}})
    problem = found(contract).get("participants.desk.inbox.ordering")
    assert problem is None if expected is None else problem is not None and expected in problem


@pytest.mark.source("P17")
@pytest.mark.parametrize(
    ("priority", "inbox"), [("urgent", IN_ORDER), ("normal", IN_ORDER), ("urgent", {"ordering": "none"})]
)
def test_an_alarm_that_can_wait_for_a_lost_event_is_named(priority: str, inbox: dict[str, str]) -> None:
    sends = {"desk": {"inbox": inbox}, "lamp": {}}
    contract = services(to_desk(EXACT_RING), sends, **{RING: {"priority": priority}})
    is_named = "gap_timeout_s" in found(contract).get("routes.to-desk", "")
    assert is_named is ((priority, inbox) == ("urgent", IN_ORDER))


@pytest.mark.source("P17")
def test_undeclared_types_reach_ordered_inboxes() -> None:
    contract = services(to_desk(EXACT_RING), desk={"inbox": IN_FIFO})
    assert "standard queue" in found(contract)["participants.desk.inbox.ordering"]


@pytest.mark.source("P17")
def test_dead_letters_are_not_ordered() -> None:
    letters = {"exact": {"type": DEAD_LETTER_TYPE}}
    contract = services(to_desk(letters), {"desk": {"sends": [], "inbox": IN_ORDER}})
    assert "dead letters" in found(contract)["participants.desk.inbox.ordering"]


# Loops.

SILENT = {"sends": None}
UNSAID = dict.fromkeys(KINDS, SILENT)


@pytest.mark.parametrize(
    ("up", "down", "loops"),
    [
        ({"prefix": {"type": "org."}}, EXACT_RING, True),
        ({"prefix": {"type": "org."}}, {"sql": "EXISTS desired"}, True),
        ({"not": {"exact": {"origin": "cloud"}}}, {"exact": {"origin": "cloud", "type": RING}}, False),
        ({"exact": {"way": "up"}}, {"exact": {"way": "down"}}, False),
        ({"exact": {"way": "up", "subject": "/a"}}, {"exact": {"way": "up"}}, True),
        ({"sql": "NOT (way = 'down')"}, {"exact": {"way": "down"}}, False),
    ],
)
def test_up_and_down_again_is_a_loop(up: dict[str, Any], down: dict[str, Any], loops: bool) -> None:
    contract = services({"up": where(up, "device.outbox"), "down": where(down, "device.inbox")})
    assert ("routes.down" in found(contract)) is loops


def loops(sends: Sends, routes: Routes, types: str = "a b c") -> dict[str, str]:
    """The loops of services that say what they send; `way: up` goes to the cloud."""
    contract = services({"up": to("device.outbox", way="up"), **routes}, {**UNSAID, **sends}, types)
    return {each.path: each.message for each in check(contract) if each.message.startswith("a loop")}


ASK, ANSWER = to("switch.inbox", "a"), to("lamp.inbox", "b")


@pytest.mark.parametrize(
    ("sends", "routes", "expected"),
    [
        (
            {"lamp": ["a"], "switch": ["b"]},
            {"ask": ASK, "answer": ANSWER},
            {"lamp": "lamp sends a -> ask -> switch sends b -> answer -> lamp"},
        ),
        (
            {"lamp": ["a"], "desk": ["b"], "shop": ["c"]},
            {
                "a-to-desk": to("desk.inbox", "a"),
                "b-to-shop": to("shop.inbox", "b"),
                "c-down": to("device.inbox", "c"),
                "c-to-lamp": to("lamp.inbox", "c"),
            },
            {
                "desk": "desk sends b -> b-to-shop -> shop sends c -> c-down -> c-to-lamp -> lamp sends a "
                "-> up -> a-to-desk -> desk"
            },
        ),
        # Each participant is named in one loop.
        (
            {"desk": ["a", "c"], "shop": ["b"], "lamp": ["b"]},
            {
                "a-to-shop": to("shop.inbox", "a"),
                "b-to-desk": to("desk.inbox", "b"),
                "c-down": to("device.inbox", "c"),
                "c-to-lamp": to("lamp.inbox", "c"),
            },
            {
                "desk": "desk sends a -> a-to-shop -> shop sends b -> b-to-desk -> desk",
                "lamp": "lamp sends b -> up -> b-to-desk -> desk sends c -> c-down -> c-to-lamp -> lamp",
            },
        ),
        # What a cloud service sends comes into the home only by the downlink.
        ({"lamp": ["b"], "desk": ["a"]}, {"r": to("lamp.inbox", "a"), "s": to("desk.inbox", "b")}, {}),
        # No event goes up and is one that stays at home.
        (
            {"lamp": ["a"], "desk": ["b"]},
            {
                "a-to-desk": to("desk.inbox", "a", way="home"),
                "b-down": to("device.inbox", "b"),
                "b-to-lamp": ANSWER,
            },
            {},
        ),
    ],
)
def test_services_may_form_a_loop(sends: Sends, routes: Routes, expected: dict[str, str]) -> None:
    named = {f"participants.{name}.sends": f"a loop: {way}" for name, way in expected.items()}
    assert loops(sends, routes) == named


def test_a_family_stands_for_its_declared_types() -> None:
    routes = {"y": to("switch.inbox", "x.y"), "b": ANSWER}
    sends = {"lamp": ["x.*"], "switch": ["b"]}
    assert loops(sends, routes, "x.y b") != {}
    assert loops(sends, routes, "x b") == {}


# Types without a sender, or that are not declared.

READERS = {"up": to("device.outbox", way="up"), "a": to("desk.inbox", "a"), "b": to("shop.inbox", "b")}


@pytest.mark.parametrize(
    ("sends", "expected"),
    [
        ({"lamp": ["a"], "switch": []}, ["event_types.b"]),
        ({"lamp": ["a"], "switch": ["b"]}, []),
        # A sender without `sends`: a device service without a route to it is presumed to send.
        ({"lamp": ["a"], "switch": SILENT}, []),
        ({"lamp": SILENT, "switch": SILENT}, []),
        # An outbox with settings is one in use.
        ({"lamp": ["a"], "shop": {"sends": None, "outbox": {"max_receives": 9}}}, []),
    ],
)
def test_a_type_without_a_sender_is_named(sends: Sends, expected: list[str]) -> None:
    contract = services(READERS, {"desk": SILENT, "shop": SILENT, **sends}, f"a b {DEAD_LETTER_TYPE}")
    assert [each.path for each in check(contract) if "declares that it sends it" in each.message] == expected


def test_a_sent_type_that_is_not_declared_is_named() -> None:
    contract = services(READERS, {**UNSAID, "lamp": ["a", "x", "y.*"]}, "a b c")
    named = [each for each in check(contract) if "is no event type" in each.message]
    assert [(each.path, each.message.split()[0]) for each in named] == [("participants.lamp.sends", "x")]
    # Without any declared type none is missing, and its loops are found.
    assert loops({"lamp": ["x"]}, {"echo": to("lamp.inbox", "x")}, "") == {
        "participants.lamp.sends": "a loop: lamp sends x -> echo -> lamp"
    }


# The receivers of a type, and types that do not reach their readers.


def warnings(contract: Contract) -> list[tuple[str, str]]:
    """The warnings about types: what, and the remedy."""
    return [(each.message, each.remedy) for each in check(contract) if each.path.startswith("event_types.")]


def reached(contract: Contract, sender: str, event_type: str = PRESSED) -> dict[str, tuple[str, bool]]:
    """The ways from `sender`, by the channel at their end, and whether every event takes them."""
    ways = Reachability(contract).ways(event_type, contract.participants[sender])
    return {each.channel.address: (str(each), each.is_certain) for each in ways}


LAMP_SENDS = {"lamp": [PRESSED]}
TO_DESK = to("desk.inbox", PRESSED)
TO_SHOP = where({"suffix": {"type": ".pressed.v1"}}, "shop.inbox")
UP_PRESSED = to("device.outbox", PRESSED)


@pytest.mark.parametrize(
    ("routes", "sends", "messages", "remedy"),
    [
        (
            {"everything-to-cloud": UP, "pressed-to-desk": TO_DESK, "pressed-to-shop": TO_SHOP},
            LAMP_SENDS,
            [
                "lamp sends it on the device, and it never comes to desk.inbox (route pressed-to-desk), "
                "shop.inbox (route pressed-to-shop): no route to device.outbox takes it"
            ],
            "let everything-to-cloud take it, or add a route to device.outbox, "
            "or leave it out of pressed-to-desk and pressed-to-shop",
        ),
        (
            {"up": UP, "dim": to("lamp.inbox", PRESSED)},
            {"desk": [PRESSED]},
            [
                "desk sends it in the cloud, and it never comes to lamp.inbox (route dim): "
                "no route to device.inbox takes it"
            ],
            "add a route to device.inbox, or leave it out of dim",
        ),
        (
            {"up": UP_PRESSED},
            {"desk": [PRESSED]},
            ["desk sends it in the cloud, and nobody receives it: no route there takes it"],
            "",
        ),
        (
            {
                "up": to("device.outbox", PRESSED, floor="low"),
                "pressed-to-desk": to("desk.inbox", PRESSED, floor="high"),
            },
            LAMP_SENDS,
            [
                "lamp sends it on the device, and it never comes to desk.inbox (route pressed-to-desk): "
                "the filters exclude those of up, by which it would come"
            ],
            "correct the filters, or leave the type out of them",
        ),
        (
            {"up": UP_PRESSED},
            LAMP_SENDS,
            [
                "lamp sends it on the device, and nobody receives it: up takes it to the other side, "
                "where no route does"
            ],
            "add a route to an inbox",
        ),
        # The routes of each place that miss a type are named for themselves.
        (
            {
                "of-switches": to("lamp.inbox", PRESSED, senderservice="switch"),
                "pressed-to-desk": TO_DESK,
                "up": UP,
            },
            LAMP_SENDS,
            [
                "lamp sends it on the device, and it never comes to lamp.inbox (route of-switches): "
                "no sender passes their filters",
                "lamp sends it on the device, and it never comes to desk.inbox (route pressed-to-desk): "
                "no route to device.outbox takes it",
            ],
            "",
        ),
        ({"up": UP_PRESSED, "pressed-to-desk": TO_DESK}, LAMP_SENDS, [], ""),
        # A participant that asks a type sends it.
        (
            {"up": UP, "pressed-to-desk": TO_DESK},
            {"lamp": {"sends": [], "asks": [PRESSED]}},
            [
                "lamp sends it on the device, and it never comes to desk.inbox (route pressed-to-desk): "
                "no route to device.outbox takes it"
            ],
            "",
        ),
        (
            {"up": UP, "pressed-to-desk": TO_DESK},
            {},
            ["no participant declares that it sends it"],
            "",
        ),
    ],
)
def test_an_unread_type_is_named(routes: Routes, sends: Sends, messages: list[str], remedy: str) -> None:
    warned = warnings(services(routes, sends, PRESSED))
    assert [message for message, _ in warned] == messages
    assert all(remedy in each for _, each in warned)


STARTED = "org.eventplane.device.started.v1"


# tests/property/test_account.py tests the receivers of any contract; these show that no more are named.
@pytest.mark.parametrize(
    ("routes", "sender", "ways"),
    [
        # A filter on the sender is understood, and a way is certain if every event of the type passes.
        (
            {
                "up": UP_PRESSED,
                "of-switches": to("desk.inbox", PRESSED, senderservice="switch"),
                "of-lamps": to("shop.inbox", PRESSED, senderservice="lamp"),
            },
            "lamp",
            {"shop.inbox": ("up -> of-lamps", True)},
        ),
        # What came down does not go up.
        (
            {"up": UP_PRESSED, "down": to("device.inbox", PRESSED), "to-lamp": to("lamp.inbox", PRESSED)},
            "shop",
            {"device.inbox": ("down", True), "lamp.inbox": ("down -> to-lamp", True)},
        ),
        # The cloud's routers see a device that those on the device do not.
        (
            {
                "up": where({"sql": "NOT EXISTS senderdevice"}, "device.outbox"),
                "one": to("desk.inbox", PRESSED, senderdevice="home-1"),
            },
            "lamp",
            {"desk.inbox": ("up -> one", False)},
        ),
        # A forwarder's own reports go up without a route, also where one takes some of them.
        (
            {
                "loud-to-lamp": to("lamp.inbox", STARTED, loud="yes"),
                "all-to-desk": to("desk.inbox", STARTED),
            },
            "device",
            {"lamp.inbox": ("loud-to-lamp", False), "desk.inbox": ("all-to-desk", False)},
        ),
    ],
)
def test_paths_give_receivers(routes: Routes, sender: str, ways: dict[str, tuple[str, bool]]) -> None:
    *_, last = routes.values()
    event_type = last["filter"].get("exact", {}).get("type", PRESSED)
    sends = {} if sender == "device" else {sender: [PRESSED]}
    assert reached(services(routes, sends, event_type), sender, event_type) == ways


def test_a_new_type_has_one_warning() -> None:
    assert check(plane_contract()) == ()
    contract = with_changes(
        plane_contract(),
        {
            "participants/washer": {"kind": "device_service", "description": "d", "sends": [PRESSED]},
            f"event_types/{PRESSED}/description": "d",
            "routes/pressed-to-family": to("family-app.inbox", PRESSED),
            "routes/pressed-to-carers": to("carers.inbox", PRESSED),
        },
    )
    (warning,) = check(contract)
    assert warning.path == f"event_types.{PRESSED}"
    assert "no route to device.outbox takes it" in warning.message
    assert warning.remedy.startswith("let everything-to-cloud take it, or add a route")
    (outcome,) = outcomes(contract, write_event({"id": "1", "source": "/a", "type": PRESSED}))
    assert (outcome.sender, outcome.receipts) == ("washer", ())
    assert "no route on the device takes it to device.outbox" in outcome.problem
    assert outcome.remedy == "let everything-to-cloud take it, or add a route to device.outbox"
