"""The downlink's functions: crashes, repetitions, absent devices and concurrent writers lose nothing."""

import json
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import ACKNOWLEDGED, STARTED
from eventplane.downlink.desired import Desired, Phase
from eventplane.downlink.device import rejected, stored
from eventplane.downlink.table import fleet_reset, one_reset
from eventplane.downlink.transitions import AWAY_MS, LOOK_MS, Transition
from eventplane.downlink.wire import key_of_sender
from eventplane.envelope import parse_event, write_event
from eventplane.guarantee import lifetime_ms
from eventplane.presence import BUCKETS, bucket_of
from eventplane.records import Records
from eventplane.values import timestamp_ms, timestamp_of_ms
from lambdas.common.metrics import Count
from lambdas.common.queue_function import queue_function
from lambdas.downlink import answers, desired, due, items, reconciler
from lambdas.downlink.items import PACE_S, RESERVE_MS, NotChangedError
from tests.fakes.iot import rule_failure
from tests.fakes.sqs import FakeSqs
from tests.unit.lambdas.downlink.world import (
    DESIRED,
    FLEET,
    HOUR,
    KEY_OF_PULSE,
    PRESENCE,
    START,
    S,
    World,
    command,
    group,
    state,
)
from tests.unit.lambdas.support import LambdaContext, failures, message, sqs_event

COMMANDS = f"c#{key_of_sender('carers', '/carers')}"


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five events."""
    monkeypatch.setattr("lambdas.downlink.due.PAGE", 5)


@pytest.mark.lost_answers
def test_a_state_is_sent_until_acknowledged(world: World) -> None:
    assert world.desire(state(1)) == frozenset()
    assert world.versions() == [1]
    assert world.item().state is Phase.SENDING
    assert world.delays == [5]
    assert world.store("home-1") == frozenset()
    item = world.item()
    assert (item.state, item.acknowledged_version, item.due_at_ms) == (Phase.IDLE, 1, None)
    world.clock.now_ms += HOUR
    world.do_work()
    assert world.versions() == []
    assert world.reconcile().items == 0


@pytest.mark.source("K1", "K7")
def test_an_absent_device_gets_the_newest_state_when_it_subscribes(world: World) -> None:
    world.desire(state(1, "home-2"), state(2, "home-2"))
    assert world.sent == []
    item = world.item("home-2")
    assert (item.state, item.due_at_ms) == (Phase.PENDING, world.clock.now_ms + 2 * LOOK_MS)
    world.clock.now_ms += S
    world.subscribed("home-2")
    assert world.versions("home-2") == [2]


@pytest.mark.source("K7")
def test_a_check_repeats_a_transmission(world: World) -> None:
    world.desire(state(1))
    world.do_work()
    assert world.versions() == [1]
    world.clock.now_ms += 5 * S
    world.check()
    assert (world.versions(), world.delays) == ([1, 1], [5, 0, 10])
    world.line("home-1", "disconnected")
    world.clock.now_ms += 10 * S
    world.check()
    assert (world.versions(), world.item().state) == ([1, 1], Phase.PENDING)


def test_a_second_page_does_not_send_again_what_the_first_one_sent(world: World, small_pages: None) -> None:
    keys = [f"threshold/home/{number}" for number in range(13)]
    world.desire(*(state(1, "home-2", statekey=key, id=key) for key in keys))
    world.clock.now_ms += S
    world.delays.clear()
    world.subscribed("home-2")
    assert sorted(incoming.key for _, incoming in world.sent) == sorted(keys)
    assert [world.delays.count(each * PACE_S) for each in (1, 2, 3)] == [1, 1, 0]


@pytest.mark.source("K-B4")
def test_a_slow_key_blocks_no_other(world: World) -> None:
    world.desire(command(1), command(2), command(3, statekey="command/home/door"))
    assert [incoming.id for _, incoming in world.sent] == ["c1", "c3"]
    first, _ = world.sent
    world.answer("home-1", stored(first[1]))
    assert [incoming.id for _, incoming in world.sent] == ["c1", "c3", "c2"]


def test_each_rejecting_device_has_its_letter(world: World) -> None:
    world.line("home-2", "connected")
    world.desire(state(1, "*"))
    for thing, incoming in list(world.sent):
        for _ in range(2):
            world.answer(thing, rejected(incoming, "contract_refused", "it has no routes"))
    letters = [parse_event(each) for each in world.taken("outbox")]
    assert [each.data()["reason"] for each in letters] == ["contract_refused"] * 2
    assert len({each.id for each in letters}) == 2
    assert world.item().state is Phase.REJECTED
    world.clock.now_ms += HOUR
    world.do_work()
    world.reconcile()
    assert world.versions() == [1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (state(1, "nobody"), "unknown_device"),
        (state(1, "gone"), "unknown_device"),
        (group(1, "nobody"), "unknown_group"),
        (state(1, statekey="no-key"), "invalid_state_key"),
        (state(1, downkey="a/b/c"), "reserved_attribute"),
        ("{", "not_json"),
        ('{"downlink": {}}', "attribute_value"),
    ],
)
def test_undeliverable_events_are_letters(world: World, body: str, reason: str) -> None:
    world.make("gone", is_gone=True)
    assert world.desire(body) == frozenset()
    assert (world.reasons(), world.sent, len(world.things())) == ([reason], [], 0)


def test_an_undeliverable_letter_is_queued(world: World) -> None:
    letter = write_event(
        {"id": "1", "source": "/s", "type": DEAD_LETTER_TYPE, "todevice": "home-1", "downkey": "x"}, {}
    )
    world.desire(letter.json)
    assert (world.taken("last-resort"), world.taken("outbox")) == ([letter.json], [])


@pytest.mark.lost_answers
def test_an_event_for_all_reaches_the_fleet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lambdas.downlink.devices._READ", 4)
    monkeypatch.setattr("lambdas.downlink.devices._FEW", 1)
    things = [f"home-{number}" for number in range(1, 11)]
    world.make(*things[2:])
    world.make("gone", is_gone=True)
    damaged = {"thing": {"S": "damaged"}, "registrations": {"S": "x"}}
    world.dynamodb.put_item(TableName=FLEET, Item=damaged)
    read, many = set[str](), world.dynamodb.batch_get_item
    monkeypatch.setattr(
        world.dynamodb, "batch_get_item", lambda **of: read.update(*of.values()) or many(**of)
    )
    assert world.desire(state(1, "*")) == frozenset()
    assert len(world.things()) == 10
    # The registry is read in pages, at a tenth of the price: 0.3.0's was the price of pages too.
    assert read == {PRESENCE}
    assert [to for to, _ in world.sent] == ["home-1"]


def test_no_chain_of_messages_is_long(world: World, small_pages: None) -> None:
    keys = [f"threshold/home/{number}" for number in range(100)]
    world.desire(*(state(1, "home-2", statekey=key, id=key) for key in keys))
    world.subscribed("home-2")
    calls = [world.calls]
    assert {incoming.key for _, incoming in world.sent} == {*keys}
    world.start("home-2", "life-1")
    world.start("home-2", "life-2")
    assert not world.do_work()
    calls.append(world.calls)
    assert max(calls) <= 3  # a check follows a transmission


@pytest.mark.parametrize("kind", ["event", "reset"])
def test_late_work_goes_on_behind(world: World, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("lambdas.downlink.devices._READ", 5)
    world.make(*(f"home-{number}" for number in range(3, 41)))
    if kind == "reset":
        world.desire(*(state(1, f"home-{number}", id=f"{number}") for number in range(1, 41)))
    left = iter([60_000, 60_000, RESERVE_MS - 1])
    if kind == "event":
        assert not world.desire(state(1, "*"), remaining_ms=lambda: next(left, 60_000))
    else:
        assert not world.do_work(fleet_reset(KEY_OF_PULSE), remaining_ms=lambda: next(left, 60_000))
        assert all(int(each["reset"]["N"]) for each in world.dynamodb.items(DESIRED))
    assert (world.calls, len(world.things())) == (3, 40)


@pytest.mark.parametrize(("after", "others"), [(None, 0), (None, 20), ("home-4", 20)])
def test_a_device_that_left_gets_nothing(world: World, after: str | None, others: int) -> None:
    world.make("home-3", is_gone=True)
    world.make("home-4", groups=frozenset({"pilot"}))
    part = {"event": group(1, "pilot"), "accepted_at_ms": START, "is_found": True}
    left = [f"left-{number}" for number in range(others)]
    world.make(*left)
    part = {**part, "after": after, "things": ["home-1", "home-3", "home-4", "home-5", *left]}
    assert not world.desire(json.dumps({"downlink": part}))
    assert world.things() == ["home-4"]


def test_unprocessed_devices_come_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        world.dynamodb,
        "batch_get_item",
        lambda **request: {"Responses": {}, "UnprocessedKeys": request["RequestItems"]},
    )
    order = {"reset": {"key": KEY_OF_PULSE, "number": START, "things": ["home-1"]}}
    assert world.do_work(order) == {"m0"}


def test_a_malformed_acknowledgement_is_a_dead_letter(world: World) -> None:
    assert world.tell("?") == frozenset()
    for type, data in ((ACKNOWLEDGED, None), (ACKNOWLEDGED, {"epoch": "e"}), (STARTED, {"epoch": ""})):
        assert world.say("home-1", type, data) == frozenset()
    assert world.reasons() == ["bad_acknowledgement"] * 4


def test_a_device_that_lost_its_state_gets_everything_again(world: World, small_pages: None) -> None:
    keys = [f"threshold/home/{number}" for number in range(8)]
    world.desire(*(state(1, statekey=key, id=key) for key in keys))
    world.store("home-1")
    late = world.item(sk=f"s#{keys[0]}")
    world.start("home-1", "life-2")
    world.do_work()
    assert sorted(incoming.key for _, incoming in world.sent) == sorted(keys)
    assert late.fence + 1 == world.item(sk=f"s#{keys[0]}").fence
    world.store("home-1", "life-2")
    world.start("home-1", "life-2")
    world.do_work()
    assert world.sent == []


@pytest.mark.source("K1", "K6")
def test_items_of_decommissioned_devices_are_collected(world: World) -> None:
    world.desire(state(1, "home-2"))
    world.make("home-2", is_gone=True)
    world.clock.now_ms += AWAY_MS
    assert (world.reconcile().items, world.things(), world.sent) == (1, [], [])


def test_a_refused_transmission_is_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Count] = []
    monkeypatch.setattr(items, "count", counted.append)
    world.is_iot_up = False
    assert world.desire(state(1)) == frozenset()
    assert counted == [Count.NOT_TRANSMITTED]
    assert (world.item().state, world.delays) == (Phase.SENDING, [5])
    world.is_iot_up = True
    world.clock.now_ms += 5 * S
    world.check()
    assert world.versions() == [1]
    # What a device that is there never acknowledges is counted as well.
    while world.item().state is Phase.SENDING:
        world.clock.now_ms += 80 * S
        world.check()
    assert (world.item().state, counted.count(Count.PARKED)) == (Phase.PARKED, 1)


@pytest.mark.source("K6")
def test_the_reconciler_makes_a_lost_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ClientError({"Error": {"Code": "Throttling"}}, "SendMessage")
    with monkeypatch.context() as patch:
        patch.setattr(world.sqs, "send_message", Mock(side_effect=refused))
        assert world.desire(state(1)) == frozenset()
    world.clock.now_ms += 5 * S
    assert world.reconcile().items == 1
    assert world.versions() == [1, 1]


def test_what_a_reconciler_had_no_time_for_comes_first_soon(world: World) -> None:
    world.line("home-2", "connected")
    assert world.desire(state(1), state(1, "home-2")) == frozenset()
    world.clock.now_ms += (bucket_of("home-2") - world.clock.now_ms // (60 * S)) % BUCKETS * 60 * S
    for _ in range(2):
        left = iter([60 * S])
        assert world.reconcile(remaining_ms=lambda: next(left, 1)).items == 1  # noqa: B023
        world.clock.now_ms += 60 * S
    assert world.versions("home-1") == world.versions("home-2") == [1, 1]


def test_nothing_begins_without_time(world: World) -> None:
    assert world.desire(state(1), remaining_ms=lambda: 1) == {"m0"}
    assert (len(world.things()), world.sent) == (0, [])
    world.desire(state(1))
    world.taken("work")
    resets = one_reset(KEY_OF_PULSE, "home-1"), fleet_reset(KEY_OF_PULSE)
    left = iter([60_000, 1] * 2)
    assert world.do_work(*resets, remaining_ms=lambda: next(left, 1)) == {"m0", "m1"}
    assert world.item().reset == 0
    world.clock.now_ms += HOUR
    assert not world.reconcile(remaining_ms=lambda: 1).is_complete


def test_the_slower_writer_reads_and_decides_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.desire(state(1))
    write, others = Records.write, [state(2)]

    def slow(table: Records[Desired], item: Desired) -> Desired | None:
        if others:
            world.desire(others.pop())
        return write(table, item)

    monkeypatch.setattr(Records, "write", slow)
    world.desire(state(3))
    message = world.item().message
    assert (message and message.version) == 3
    # A message whose item others keep writing is redelivered.
    monkeypatch.setattr(Records, "write", lambda *_: None)
    monkeypatch.setattr(Records, "remove", lambda *_: False)
    assert world.desire(state(4)) == {"m0"}
    with pytest.raises(NotChangedError, match="home-1"):
        world.parts.items.change("home-1", f"s#{KEY_OF_PULSE}", lambda _item, _now_ms: Transition(None))


def test_a_check_transmits_a_lost_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write, others = Records.write, [command(2)]

    def unanswered(table: Records[Desired], item: Desired) -> Desired | None:
        stored = write(table, item)
        if not others:
            return stored
        world.desire(others.pop())
        return None  # what is there now is another's

    monkeypatch.setattr(Records, "write", unanswered)
    world.desire(command(1))
    assert (world.versions(), world.delays) == ([], [5])
    world.clock.now_ms += 5 * S
    world.check()
    assert [incoming.id for _, incoming in world.sent] == ["c1"]


def test_an_expired_command_is_neither_sent_nor_a_dead_letter(world: World) -> None:
    world.desire(command(1, "home-2", expirytime="2026-01-01T00:00:01Z"))
    assert world.item("home-2", COMMANDS).due_at_ms == START + S
    world.clock.now_ms = START + 2 * S
    world.reconcile()
    world.subscribed("home-2")
    assert (world.sent, world.reasons()) == ([], [])


@pytest.mark.parametrize("time", ["1970-01-01T00:00:12Z", "2056-01-01T00:00:00Z"])
def test_a_command_goes_down_with_what_is_left_of_its_lifetime(world: World, time: str) -> None:
    ends = timestamp_of_ms(timestamp_ms(time) + 600 * S)
    world.desire(command(1, "home-2", time=time, expirytime=ends))
    world.clock.now_ms = START + 500 * S
    world.subscribed("home-2")
    ((_, sent),) = world.sent
    assert lifetime_ms(sent.event) == 100 * S


def test_redriven_rule_failures_are_accepted(world: World) -> None:
    world.desire(state(1, "home-2"))
    assert world.sent == []
    world.clock.now_ms += S
    told = {"clientId": "home-2", "eventType": "subscribed", "topics": ["devices/home-2/inbox"]}
    assert world.do_work(rule_failure(json.dumps(told).encode())) == frozenset()
    assert world.versions("home-2") == [1]
    assert world.do_work({"subscribed": "claim-home-1"}) == frozenset()
    # Malformed work is redelivered until it is a dead letter.
    assert world.do_work({"what": "is this"}) == {"m0"}


def order(world: World, thing: str | None = "home-1", key: str = KEY_OF_PULSE) -> frozenset[str]:
    """What `desired reset` puts into the queue, a second after all before."""
    world.clock.now_ms += S
    failed = world.do_work(one_reset(key, thing) if thing else fleet_reset(key))
    world.clock.now_ms += S
    return failed


def test_lower_versions_count_after_a_reset(world: World) -> None:
    # A version far ahead that the cloud took by mistake, and would take an hour earlier as well.
    mistake = state(1, id="burnt", stateversion=str(world.clock() + 22 * HOUR))
    world.desire(mistake)
    world.store("home-1")
    assert world.desire(state(7)) == frozenset()
    assert (world.sent, world.item().owner) == ([], "carers")
    assert order(world) == frozenset()
    assert world.item().owner == "", "the key is free for another sender"
    ((_, anew),) = world.sent
    assert (anew.id, anew.version, anew.reset, anew.fence) == ("burnt", 0, world.clock.now_ms - S, 1)
    world.store("home-1")
    # The queue redelivers what was taken in before.
    world.clock.now_ms -= HOUR
    world.desire(mistake)
    world.clock.now_ms += HOUR
    world.desire(state(7))
    ((_, right),) = world.sent
    assert (right.version, right.reset) == (7, anew.reset)
    world.store("home-1")
    assert (world.item().state, world.item().acknowledged_version) == (Phase.IDLE, 7)


def test_a_reset_of_the_fleet_goes_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lambdas.downlink.devices._READ", 10)
    world.make(*(f"home-{number}" for number in range(3, 26)))
    world.desire(*(state(1, f"home-{number}", id=f"{number}") for number in (1, 2, 10, 25)))
    world.store("home-1")
    world.delays.clear()
    order(world, None)
    assert world.things() == ["home-1", "home-10", "home-2", "home-25"]
    assert len({each["reset"]["N"] for each in world.dynamodb.items(DESIRED)}) == 1


def test_a_redelivered_reset_changes_nothing(world: World) -> None:
    world.desire(state(1))
    world.clock.now_ms += S
    for _ in range(2):
        world.do_work(one_reset(KEY_OF_PULSE, "home-1"))
        world.store("home-1")
        before = world.item()
    assert (before.fence, world.item(), world.sent) == (1, before, [])


def test_a_device_without_an_item_can_be_reset(world: World) -> None:
    """The device may hold a version that the table does not know any more."""
    order(world)
    world.desire(state(1))
    assert [incoming.reset > 0 for _, incoming in world.sent] == [True]
    order(world, "nobody")
    assert len(world.things()) == 1


@pytest.mark.parametrize("work", [one_reset("no-key", "home-1"), fleet_reset("no-key")])
def test_a_reset_of_a_malformed_key_fails(world: World, work: dict[str, object]) -> None:
    assert world.do_work(work) == {"m0"}
    assert len(world.things()) == 0


def test_an_unstored_ack_is_redelivered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.desire(state(1))
    ((_, incoming),) = world.sent
    for owner, method, nothing in ((Records, "write", None), (FakeSqs, "send_message_batch", {})):
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, Mock(return_value=nothing))
            assert world.answer("home-1", rejected(incoming, "contract_refused", "")) == {"m0"}
        assert world.item().state is Phase.SENDING


def test_damaged_items_do_not_stop_the_reconciler(world: World) -> None:
    world.desire(state(1), state(1, "home-2"))
    damaged, _ = world.dynamodb.items(DESIRED)
    world.dynamodb.put_item(TableName=DESIRED, Item={**damaged, "state": {"S": "none"}})
    presence = {"device": {"S": "home-2"}, "known": {"S": '{"sighting": "torn"}'}}
    world.dynamodb.put_item(TableName=PRESENCE, Item=presence)
    world.clock.now_ms += AWAY_MS
    assert world.reconcile().items == 2
    assert world.item("home-2").state is Phase.PENDING


@pytest.mark.lost_answers
def test_the_functions_are_wired_by_their_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPLANE_SOURCE_QUEUE", world.queues["inbox"])
    for module, body in ((desired, state(1)), (answers, "?"), (due, '{"subscribed": "claim-home-1"}')):
        batch = sqs_event(message("m1", body))
        assert queue_function(module.service)(batch, LambdaContext()) == failures()
    assert (world.versions(), world.reasons()) == ([1], ["bad_acknowledgement"])
    world.clock.now_ms += HOUR
    answer = reconciler.handle({"buckets": list(range(16))}, LambdaContext())
    assert (answer, world.versions()) == ({"items": 1, "is_complete": True}, [1, 1])
