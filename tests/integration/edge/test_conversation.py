"""Services of a home ask each other: real Mosquitto, the forwarder as a process."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from eventplane.contract import Contract, compile_contract
from eventplane.conversation.messages import Failure, Replier, Reply, Status, write_reply
from eventplane.conversation.open_requests import OPENS_AFTER, Circuit, PeerChanged, Replies
from eventplane.conversation.questions import HandlersAnswer, read_handlers_question, write_handlers_answer
from eventplane.device_reports import STARTED
from eventplane.envelope import Envelope, parse_event
from eventplane.guarantee import DELIVERY_GUARANTEE
from eventplane.receipts import SPOOL_FULL, Receipt, digest, write_receipts
from eventplane.sender import Sender
from eventplane.topics import handlers_answer_topic, handlers_topic, local_topic, receipt_topic
from eventplane_client import Client, asker, mqtt
from eventplane_client.errors import (
    ClosedError,
    NoRoomError,
    RefusedError,
    RequestDroppedError,
    RequestTimeoutError,
)
from tests.integration.edge.conftest import SECONDS, THING, CloudBroker, Home, down, wait_for
from tests.integration.mqtt import TestClient
from tests.unit.eventplane.conversation.worlds import ask, document, plane

NOW = "2026-01-01T00:00:00Z"
LAMP = Replier("lamp")


@pytest.fixture
def home_contract() -> Contract:
    return plane()


def in_background(call: Callable[[], Replies]) -> Future[Replies]:
    return ThreadPoolExecutor(1).submit(call)


def bright(event: Envelope) -> dict[str, str]:
    return {"lit_by": event.id}


@pytest.mark.source("C3")
def test_everybody_who_handles_it_replies(home: Home) -> None:
    def broken(event: Envelope) -> None:
        raise ValueError(f"{event.id}: no sound")

    home.listen("lamp", bright)
    home.listen("chime", broken, max_receives=1)
    button = home.connect("button")
    assert button.request(ask("r1", loud=True), SECONDS) == {
        "lamp": Reply(LAMP, Status.HANDLED, {"lit_by": "r1"}),
        # It failed for good, though no route takes its dead letter and its inbox has no receipts.
        "chime": Reply(Replier("chime"), Status.FAILED, None, Failure("ValueError", "r1: no sound")),
    }
    assert button.request(ask("r2"), SECONDS)["lamp"].answer == {"lit_by": "r2"}
    assert button.peers() == {"lamp": Circuit.CLOSED, "chime": Circuit.CLOSED}


def test_the_cloud_replies_as_well(home: Home, cloud: CloudBroker) -> None:
    home.listen("lamp", bright)
    asking = in_background(lambda: home.connect("button").request(ask("far", far=True), SECONDS))
    wait_for(lambda: cloud.has({"far"}))
    (request,) = {each.key: each for each in cloud.events if each.id == "far"}.values()
    assert request.attributes["replydevice"] == THING
    for name in ("desk", "porter"):
        reply = write_reply(request, Reply(Replier(name), Status.HANDLED, name), NOW)
        assert reply.attributes["todevice"] == THING
        cloud.send_down(down(reply.json, name, f"reply/{name}/x", order=1))
    assert {name: each.answer for name, each in asking.result(SECONDS).items()} == {
        "lamp": {"lit_by": "far"},
        "desk": "desk",
        "porter": "porter",
    }


def test_what_the_cloud_asks_goes_up_as_a_reply(home: Home, cloud: CloudBroker) -> None:
    home.listen("lamp", bright)
    # Once its report is there, it is connected and has subscribed.
    wait_for(lambda: any(each.type == STARTED for each in cloud.events))
    request = ask("down", todevice=THING, replyto="desk", correlationid="c7")
    cloud.send_down(down(request.json, "desk", "ask/desk/x", order=1))
    wait_for(lambda: cloud.has({f"c7.{THING}/lamp"}))
    (reply,) = {each.key: each for each in cloud.events if each.id.startswith("c7.")}.values()
    assert reply.data()["thing"] == THING
    assert reply.attributes["replyto"] == "desk"


@pytest.mark.source("N2", "C1")
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("connected", [True, False])
def test_the_guarantees(home: Home, durable: bool, connected: bool) -> None:
    """Events are in tests/integration/edge/test_service.py and test_forwarder.py; these are the requests."""
    home.listen("lamp", bright)
    button = home.transport("button")
    button.request(ask("first"), SECONDS)  # now it is connected
    if not connected:
        home.broker.child.stop()
        wait_for(lambda: not button.up)
    if connected:
        assert button.request(ask("r"), SECONDS, durable=durable)["lamp"].status is Status.HANDLED
    elif durable:
        with pytest.raises(RequestTimeoutError, match="was not sent") as late:
            button.request(ask("r"), 0.2)
        assert late.value.missing is None
        home.broker.child.start()
        assert button.request(ask("r"), SECONDS)["lamp"].status is Status.HANDLED
    else:
        with pytest.raises(RequestDroppedError, match="nobody answered who handles the event"):
            button.request(ask("r"), 0.2, durable=False)
        assert button.waiting == 0
        asking = in_background(lambda: button.request(ask("again"), SECONDS, durable=False))
        home.broker.child.start()
        assert asking.result(SECONDS)["lamp"].status is Status.HANDLED


class FullForwarder:
    """Has no room for the first `refusals` requests; the lamp replies to later ones."""

    def __init__(self, line: TestClient, refusals: int) -> None:
        self.requests: list[Envelope] = []
        self._line = line
        self._refusals = refusals
        self._asked: set[str] = set()
        for topic in (handlers_topic("button"), local_topic("button", "outbox")):
            line.subscribe(topic)

    def serve(self, is_done: Callable[[], bool]) -> None:
        wait_for(lambda: self._serve_all() or is_done())

    def _serve_all(self) -> None:
        messages = self._line.messages
        while messages:
            topic, payload = messages.pop(0)
            if topic == handlers_topic("button"):
                answer = HandlersAnswer(
                    read_handlers_question(payload, "").id, THING, ("lamp",), comes_again=False
                )
                assert self._line.publish(handlers_answer_topic("button"), write_handlers_answer(answer))
                continue
            self.requests.append(parse_event(payload))
            has_room = len(self.requests) > self._refusals
            receipt = Receipt(digest(payload), None if has_room else SPOOL_FULL)
            assert self._line.publish(receipt_topic("button", "outbox"), write_receipts([receipt]))
            if has_room:
                reply = write_reply(self.requests[-1], Reply(LAMP, Status.HANDLED, "done"), NOW)
                reply = reply.stamped(**Sender(service="lamp").attributes)
                assert self._line.publish(local_topic("button", "replies"), reply.json.encode())


@pytest.mark.source("C6", "N2")
@pytest.mark.parametrize("durable", [True, False])
def test_a_request_waits_for_room_in_the_spool(home: Home, durable: bool) -> None:
    home.forwarder.stop()
    button = home.connect("button")
    with TestClient("stand-in", "127.0.0.1", home.broker.port) as line:
        forwarder = FullForwarder(line, refusals=2)
        asking = in_background(lambda: button.request(ask("r"), SECONDS, durable=durable))
        forwarder.serve(asking.done)
    assert asking.result()["lamp"].answer == "done"
    assert [each.id for each in forwarder.requests] == ["r", "r", "r"]
    assert {each.attributes.get(DELIVERY_GUARANTEE) for each in forwarder.requests} == {
        None if durable else "best_effort"
    }


@pytest.mark.source("C6", "N2")
@pytest.mark.parametrize("durable", [True, False])
def test_a_request_that_found_no_room_until_its_timeout_is_not_kept(
    home: Home, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "_ROOM_S", 3.0)
    home.forwarder.stop()
    button = home.transport("button")
    with TestClient("stand-in", "127.0.0.1", home.broker.port) as line:
        forwarder = FullForwarder(line, refusals=10**9)
        asking = in_background(lambda: button.request(ask("r"), 8.0, durable=durable))
        forwarder.serve(asking.done)
    with pytest.raises(NoRoomError if durable else RequestDroppedError, match="no room for"):
        asking.result()
    assert len(forwarder.requests) > 1
    assert button.waiting == 0


@pytest.mark.source("C7")
def test_who_announces_is_heard(home: Home) -> None:
    """It comes back without a late reply: what it announces is its only sign of life."""
    handles = [{"exact": {"type": ask().type}}]
    # It reads no inbox, so that nothing is replied.
    lamp = home.connect("lamp")
    lamp.announce(handles)
    button = home.connect("button")

    def opens() -> bool:
        with pytest.raises(RequestTimeoutError):
            button.request(ask(secrets.token_hex(8)), 0.3, expires=True)
        return button.peers() == {"lamp": Circuit.OPEN}

    wait_for(opens)
    # The same announcement, seen again and again, is no news.
    assert button.request(ask("skipped"), SECONDS) == {"lamp": Reply(LAMP, Status.NOT_AWAITED)}
    lamp.announce(handles)

    def is_probed() -> bool:
        try:
            found = button.request(ask(secrets.token_hex(8)), 0.3)
        except RequestTimeoutError:
            return True
        assert found["lamp"].status is Status.NOT_AWAITED
        return False

    wait_for(is_probed)


@pytest.mark.source("C6", "N2")
def test_a_full_window_keeps_a_request_waiting_until_its_timeout(home: Home) -> None:
    home.listen("lamp", bright)
    button = home.transport("button", window=1)
    button.request(ask("first"), SECONDS)
    home.forwarder.stop()  # nobody confirms
    with TestClient("stand-in", "127.0.0.1", home.broker.port) as forwarder:
        forwarder.subscribe(handlers_topic("button"))
        button.send(ask("blocks"))
        answers = threading.Thread(target=_answer, args=(forwarder, 2))
        answers.start()
        with pytest.raises(RequestDroppedError, match="room"):
            button.request(ask("r"), 1.0, durable=False)
        waiting = in_background(lambda: button.request(ask("waits"), SECONDS))
        answers.join(SECONDS)
    home.forwarder.start()
    assert waiting.result(SECONDS)["lamp"].answer == {"lit_by": "waits"}


def _answer(forwarder: TestClient, times: int) -> None:
    """Say that the lamp handles what is asked about, to so many questions."""
    seen: set[str] = set()
    while len(seen) < times:
        wait_for(lambda: {read_handlers_question(each, "").id for _, each in forwarder.messages} > seen)
        for _, payload in list(forwarder.messages):
            id = read_handlers_question(payload, "").id
            if id not in seen:
                seen.add(id)
                answer = write_handlers_answer(HandlersAnswer(id, THING, ("lamp",), comes_again=False))
                assert forwarder.publish(handlers_answer_topic("button"), answer)


@pytest.mark.source("C3")
def test_a_request_survives_the_broker_killed_in_its_midst(home: Home) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(event: Envelope) -> str:
        begun.set()
        assert may_end.wait(SECONDS)
        return event.id

    home.listen("lamp", slow)
    asking = in_background(lambda: home.connect("button").request(ask("r"), SECONDS))
    assert begun.wait(SECONDS)
    home.broker.child.kill()
    home.broker.child.start()
    may_end.set()
    assert asking.result(SECONDS)["lamp"].answer == "r"


@pytest.mark.source("C3")
def test_a_handler_that_leaves_releases_who_waits(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(asker, "LOOK_AGAIN_S", 0.2)
    button = home.connect("button")
    asking = in_background(lambda: button.request(ask("r"), SECONDS))
    wait_for(lambda: "lamp" in button.peers())
    _put_in_force(home, _without_lamp(), tmp_path)
    assert asking.result(SECONDS) == {"lamp": Reply(LAMP, Status.UNHANDLED)}


def _without_lamp() -> Contract:
    some = document()
    del some["routes"]["to-lamp"]
    return compile_contract(some, "talk")


def _put_in_force(home: Home, contract: Contract, directory: Path) -> None:
    (directory / "contract.json").write_bytes(contract.canonical)
    home.forwarder.stop()
    home.forwarder.start()


@pytest.mark.source("C7")
def test_whom_nobody_hears_is_waited_for_no_more_until_it_is_heard(home: Home) -> None:
    changes: list[PeerChanged] = []

    def listen(change: PeerChanged) -> None:
        changes.append(change)
        raise RuntimeError("what listeners do must not end the client")

    button = home.transport("button", on_peer=listen)
    numbers = itertools.count()

    def opens() -> bool:
        with pytest.raises(RequestTimeoutError):
            # So short that on a slow machine some are not even sent; those do not count.
            button.request(ask(f"r{next(numbers)}"), 0.3, expires=False)
        return button.peers() == {"lamp": Circuit.OPEN}

    wait_for(opens)
    assert next(numbers) >= OPENS_AFTER
    assert button.request(ask("skipped"), SECONDS) == {"lamp": Reply(LAMP, Status.NOT_AWAITED)}
    # Somebody handles what waits: its late replies are signs of life.
    home.listen("lamp", bright)
    wait_for(lambda: button.peers() == {"lamp": Circuit.HALF_OPEN})
    assert button.request(ask("probe"), SECONDS)["lamp"].status is Status.HANDLED
    wait_for(lambda: len(changes) == 3)
    assert [each.circuit for each in changes] == [Circuit.OPEN, Circuit.HALF_OPEN, Circuit.CLOSED]


def test_a_request_that_the_plane_refuses_is_not_waited_for(home: Home) -> None:
    with pytest.raises(RefusedError):
        home.connect("button").request(ask(deviceepoch="mine"), SECONDS)


def test_closing_ends_the_waiting(home: Home) -> None:
    button = home.connect("button")
    asking = in_background(lambda: button.request(ask("r"), SECONDS))
    wait_for(lambda: "lamp" in button.peers())
    button.close()
    with pytest.raises(ClosedError):
        asking.result(SECONDS)


def test_what_is_no_reply_or_of_another_version_is_ignored(home: Home) -> None:
    home.listen("lamp", bright)
    button = home.connect("button")
    replies = local_topic("button", "replies")
    request = ask("r", replyto="button", correlationid="c")
    good = json.loads(write_reply(request, Reply(LAMP, Status.HANDLED), NOW).json)
    wrong = [
        b"",
        b"{}",
        ask().json.encode(),
        json.dumps({**good, "type": "org.eventplane.conversation.reply.v2"}).encode(),
        json.dumps({**good, "data": {**good["data"], "status": "postponed"}}).encode(),
        json.dumps({**good, "correlationid": "nobody's"}).encode(),
    ]
    with TestClient("rude", "127.0.0.1", home.broker.port) as rude:
        for payload in wrong:
            assert rude.publish(replies, payload)
        for payload in (b"", b"[]", b'{"id":"x"}'):
            assert rude.publish(handlers_answer_topic("button"), payload)
            assert rude.publish(handlers_topic("button"), payload)
    assert button.request(ask("after"), SECONDS)["lamp"].answer == {"lit_by": "after"}


def test_many_ask_at_once(home: Home) -> None:
    home.listen("lamp", bright)
    button: Client = home.connect("button")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda each: button.request(ask(f"r{each}"), SECONDS), range(40)))
    assert [each["lamp"].answer for each in found] == [{"lit_by": f"r{each}"} for each in range(40)]
