"""What every backend keeps: the one contract suite of the client library."""

import contextlib
import itertools

import pytest
from cloudevents.core.v1.event import CloudEvent

from eventplane.envelope import Envelope, Sender
from eventplane.errors import EnvelopeError
from eventplane.reasons import Reason
from eventplane_client import Inbox, Mode, cloud_event_of
from eventplane_client.errors import AlreadySettledError, ClosedError, NothingThereError
from eventplane_client.notices import DeadLettered, EpochChanged, Expired, InDoubt, Notice, SequenceGap
from tests.eventually import eventually
from tests.unit.client.worlds import HOME, MAX_RECEIVES, World, event, lasting, numbered, put, reading

pytestmark = pytest.mark.source("N1")

OTHER_HOME = {**HOME, "senderdevice": "home-666"}
"""What the plane stamps on what comes from two homes."""

NOW = 0.0
SOON = 20.0
_numbers = itertools.count(1)


def garbage() -> bytes:
    """What is no event, and no copy of what was none before."""
    return f"garbage {next(_numbers)}".encode()


def reasons(world: World) -> list[object]:
    """Why there are dead letters, of which there has to be one."""
    return [each.attributes["deadletterreason"] for each in world.letters(1)]


def is_empty(inbox: Inbox) -> bool:
    """Whether nothing comes now; what has expired or is done goes on the way."""
    with pytest.raises(NothingThereError):
        inbox.get(NOW)
    return True


@pytest.mark.source("F1")
def test_what_is_put_comes_out_once_as_it_was_written(world: World) -> None:
    sdk = {"id": "two", "source": "/sdk", "type": "org.eventplane.alarm.keyword.v1"}
    one = event("one")
    with world.client(world.sender) as sender, reading(world) as inbox:
        sender.put(one)
        sender.put(CloudEvent(sdk, {"keyword": "x"}))
        with pytest.raises(EnvelopeError):
            sender.put(b"no event")
        found = {each.id: each for each in (inbox.get(SOON), inbox.get(SOON))}
        # The plane may have put attributes of its own in front.
        assert found["one"].json.endswith(one.json[1:])
        assert cloud_event_of(found["two"]).get_data() == {"keyword": "x"}
        assert is_empty(inbox)
        assert world.pending() == 0


@pytest.mark.source("F2")
def test_a_repeated_put_is_a_success_and_counts_once(world: World) -> None:
    sent = event()
    with world.client(world.sender) as sender:
        sender.put(sent)
        sender.put(sent)
    put(world, sent)  # by another process, which remembers nothing
    with reading(world) as inbox:
        assert inbox.get(SOON).claim == sent.claim
        assert is_empty(inbox)


@pytest.mark.source("P4", "C1")
@pytest.mark.parametrize("by_itself", [False, True])
def test_an_event_asks_for_less_than_its_channel_gives(world: World, by_itself: bool) -> None:
    asks = {"deliveryguarantee": "best_effort"}
    sent = event(**(asks if by_itself else {}))
    with world.client(world.sender) as sender, reading(world) as inbox:
        sender.put(sent, best_effort=not by_itself)
        came = inbox.get(SOON)
        assert (came.claim, came.attributes["deliveryguarantee"]) == (sent.claim, "best_effort")


def test_a_batch_is_handed_out_and_handled_as_one(world: World) -> None:
    with world.client(world.sender) as sender, reading(world) as inbox:
        sent = [event() for _ in range(5)]
        for each in sent:
            sender.put(each)
        found: list[str] = []
        while len(found) < len(sent):
            found += [each.id for each in inbox.get_batch(10, SOON)]
        assert sorted(found) == sorted(each.id for each in sent)
    assert world.pending() == 0


@pytest.mark.source("F1")
def test_handled_events_never_come_again(world: World) -> None:
    sent = event()
    put(world, sent)
    with reading(world) as inbox:
        assert inbox.get(SOON).id == sent.id
    world.deliver(sent)
    world.crash()
    with reading(world) as inbox:
        assert is_empty(inbox)
    assert world.pending() == 0
    assert world.letters() == []


@pytest.mark.source("F4")
@pytest.mark.parametrize("again", [True, False, None])
def test_what_was_in_hand_at_a_crash_is_its_programs_to_decide(world: World, again: bool | None) -> None:
    """Without a program that decides, it is a dead letter."""
    notices: list[Notice] = []
    sent = event()
    put(world, sent)
    given = world.client(world.reader).subscribe().get(SOON)
    assert given.claim == sent.claim
    world.crash()
    on_doubt = None if again is None else lambda _: bool(again)
    with reading(world, on_notice=notices.append, on_doubt=on_doubt) as inbox:
        if again:
            assert inbox.get(SOON).id == sent.id

        def is_told() -> bool:
            # Some worlds lead the letter back here.
            with contextlib.suppress(NothingThereError):
                assert inbox.get(NOW).id != sent.id
            return InDoubt(*given.key, again=bool(again)) in notices

        assert eventually(is_told, SOON)
    if again is None:
        assert reasons(world) == [Reason.IN_DOUBT]
        assert [each.data()["channel"] for each in world.letters(1)] == [f"{world.reader}.inbox"]
    else:
        assert world.pending() == 0


@pytest.mark.source("C-W1")
def test_an_exception_in_the_block_gives_back_what_was_in_hand(world: World) -> None:
    sent = event()
    put(world, sent)

    def fail() -> None:
        with reading(world) as inbox:
            inbox.get(SOON)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    world.crash()
    with reading(world) as inbox:
        assert inbox.get(SOON).id == sent.id


def test_poison_is_a_letter_at_the_limit(world: World) -> None:
    notices: list[Notice] = []
    sent = event()
    put(world, sent)
    with reading(world, on_notice=notices.append) as inbox:
        for attempt in range(1, MAX_RECEIVES + 1):
            received = inbox.receive(SOON)
            assert (received.event.id, received.attempt) == (sent.id, attempt)
            received.nack(ValueError("no such room"))
            world.hurry()
    (letter,) = world.letters(1)
    assert letter.attributes["deadletterreason"] == "ValueError"
    assert letter.data()["detail"] == "no such room"
    assert DeadLettered(*received.event.key, "ValueError", "no such room") in notices
    sender = received.sender
    named = {"device": sender.device, "service": sender.service}
    assert letter.data()["sender"] == (named if sender != Sender() else None)


@pytest.mark.parametrize("mode", [Mode.EXACTLY_ONCE, Mode.AT_MOST_ONCE])
def test_malformed_is_one_letter(world: World, mode: Mode) -> None:
    sent = event()
    world.deliver(garbage())
    world.deliver(sent)
    with reading(world, mode=mode) as inbox:
        assert inbox.get(SOON).id == sent.id
        assert reasons(world) == ["not_json"]
        world.hurry()
        inbox.handle(lambda _: None, idle_s=NOW)  # some worlds lead the letter back here
    assert reasons(world) == ["not_json"]


@pytest.mark.source("C4")
@pytest.mark.parametrize("mode", list(Mode))
def test_expired_events_are_counted(world: World, mode: Mode) -> None:
    notices: list[Notice] = []
    for id, lifetime_s in (("old", 0), ("new", 3_600)):
        world.deliver(lasting(id, lifetime_s))
    with reading(world, mode=mode, on_notice=notices.append) as inbox:
        received = inbox.receive(SOON)
        assert received.event.id == "new"
        received.ack()
        with pytest.raises(NothingThereError):
            inbox.receive(NOW)
    expired = [each for each in notices if isinstance(each, Expired)]
    assert [each.id for each in expired] == ["old"]
    assert world.pending() == 0
    assert world.letters() == []


@pytest.mark.source("C4")
def test_a_late_copy_has_not_expired(world: World) -> None:
    notices: list[Notice] = []
    with reading(world, on_notice=notices.append) as inbox:
        world.deliver(lasting("short", 3_600))
        assert inbox.get(SOON).id == "short"
        world.deliver(lasting("short", 0))
        assert is_empty(inbox)
    assert notices == []
    assert world.pending() == 0


@pytest.mark.source("N3", "F4")
def test_at_least_once_repeats_what_nobody_acknowledged(world: World) -> None:
    sent = event()
    put(world, sent)
    world.client(world.reader, mode=Mode.AT_LEAST_ONCE).subscribe().receive(SOON)
    world.crash()
    with reading(world, mode=Mode.AT_LEAST_ONCE) as inbox:
        received = inbox.receive(SOON)
        assert received.event.id == sent.id
        received.ack()
        with pytest.raises(AlreadySettledError):
            received.ack()
    assert world.pending() == 0


def test_at_most_once_forgets_before_it_hands_out(world: World) -> None:
    put(world, event())
    world.client(world.reader, mode=Mode.AT_MOST_ONCE).subscribe().get(SOON)
    world.crash()
    assert world.pending() == 0


@pytest.mark.source("P17", "F3")
def test_events_come_in_order_and_gaps_are_told(world: World) -> None:
    notices: list[Notice] = []
    with reading(world, on_notice=notices.append, gap_timeout_s=0.2) as inbox:
        for number in (2, 1, 3, 6):
            world.deliver(numbered(number, world.reader))
        assert [inbox.get(SOON).id for _ in range(4)] == ["1", "2", "3", "6"]
        counter = f"{world.reader}/normal/0123abcd"
        assert notices == [SequenceGap("home-1/", "one", counter, 4, 5)]
        world.deliver(numbered(4, world.reader))
        assert inbox.get(SOON).id == "4"  # late, and not lost


@pytest.mark.source("P17", "N5")
def test_a_restarted_reader_goes_on_in_order(world: World) -> None:
    with reading(world) as inbox:
        world.deliver(numbered(1, world.reader))
        inbox.get(SOON)
    with reading(world) as inbox:
        for number in (3, 2):
            world.deliver(numbered(number, world.reader))
        assert [inbox.get(SOON).id for _ in range(2)] == ["2", "3"]


@pytest.mark.source("P17")
def test_what_is_given_back_comes_before_what_follows_it(world: World) -> None:
    with reading(world) as inbox:
        for number in (1, 2, 3):
            world.deliver(numbered(number, world.reader))
        first = inbox.receive(SOON)
        first.nack()
        assert is_empty(inbox)
        world.hurry()
        assert [inbox.get(SOON).id for _ in range(3)] == ["1", "2", "3"]


@pytest.mark.source("F6")
def test_a_change_of_epoch_is_told(world: World) -> None:
    notices: list[Notice] = []
    source = "/homes/7/voice"
    for number, epoch in enumerate(("one", "one", "two")):
        # What another device says in the name of the source is no news of this one.
        forged = event(str(number), source, deviceepoch=f"forged-{number}").stamped(**OTHER_HOME)
        true = event(str(number), source, deviceepoch=epoch).stamped(**HOME)
        world.deliver(forged)
        world.deliver(true)
        with reading(world, on_notice=notices.append) as inbox:
            assert {inbox.get(SOON).key, inbox.get(SOON).key} == {forged.key, true.key}
    changed = [each for each in notices if isinstance(each, EpochChanged)]
    assert [each for each in changed if each.sender == "home-1/voice-service"] == [
        EpochChanged("home-1/voice-service", source, "one", "two")
    ]


def test_a_forgery_suppresses_no_alarm(world: World) -> None:
    alarm = event("1")
    forged, true = alarm.stamped(**OTHER_HOME), alarm.stamped(**HOME)
    for each in (forged, true, forged, true):
        world.deliver(each)
    with reading(world) as inbox:
        found = {str(inbox.get(SOON).sender), str(inbox.get(SOON).sender)}
        assert found == {"home-1/voice-service", "home-666/voice-service"}
        assert is_empty(inbox)
    world.crash()
    for each in (forged, true):
        world.deliver(each)
    with reading(world) as inbox:
        assert is_empty(inbox)


def test_what_crashes_its_reader_each_time_ends_as_a_dead_letter(world: World) -> None:
    put(world, event())
    for _ in range(MAX_RECEIVES):
        world.client(world.reader).subscribe(on_doubt=lambda _: True).get(SOON)
        world.crash()
    with reading(world, on_doubt=lambda _: True) as inbox:
        inbox.handle(lambda _: None, idle_s=world.idle_s)
    assert reasons(world) == [Reason.MAX_RECEIVES]
    assert world.taken_away() == 0


def test_handle_calls_until_it_is_idle(world: World) -> None:
    found: list[str] = []

    def handler(each: Envelope) -> None:
        found.append(each.id)
        if len(found) == 1:
            raise LookupError
        if len(found) == 3:
            inbox.stop()

    for each in ("first", "second"):
        world.deliver(event(each))
    with reading(world) as inbox:
        inbox.handle(handler, idle_s=world.idle_s)
        world.hurry()
        inbox.handle(handler, idle_s=SOON)
    assert found == ["first", "second", "first"]
    assert world.pending() == 0


def test_closing_the_client_fails_nothing_that_was_in_hand(world: World) -> None:
    sent = event()
    world.deliver(sent)
    for _ in range(MAX_RECEIVES):
        client = world.client(world.reader)
        assert client.subscribe().get(SOON).id == sent.id
        client.close()
    with reading(world) as inbox:
        assert inbox.get(SOON).id == sent.id
    assert world.letters() == []


@pytest.mark.source("F5")
def test_after_its_end_a_client_says_so(world: World) -> None:
    client = world.client(world.reader)
    inbox = client.subscribe()
    client.close()
    for call in (lambda: client.put(event()), client.subscribe, lambda: inbox.get(NOW)):
        with pytest.raises(ClosedError):
            call()
