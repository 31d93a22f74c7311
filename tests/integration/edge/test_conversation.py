"""Services of a home ask each other: real Mosquitto, the forwarder as a process."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from eventplane.contract import Contract
from eventplane.conversation.messages import Failure, Replier, Reply, Status, write_reply
from eventplane.conversation.open_requests import Circuit, Replies
from eventplane.device_reports import STARTED
from eventplane.envelope import Envelope
from eventplane_client.errors import RefusedError, RequestDroppedError, RequestTimeoutError
from tests.integration.edge.conftest import SECONDS, THING, Home, RecordingCloud, down, wait_for
from tests.unit.eventplane.conversation.worlds import ask, plane

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
def test_all_handlers_reply_also_to_many_requests_at_once(home: Home) -> None:
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
    assert button.peers() == {"lamp": Circuit.CLOSED, "chime": Circuit.CLOSED}
    with pytest.raises(RefusedError):
        button.request(ask(deviceepoch="mine"), SECONDS)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda each: button.request(ask(f"q{each}"), SECONDS), range(40)))
    assert [each["lamp"].answer for each in found] == [{"lit_by": f"q{each}"} for each in range(40)]


def test_the_cloud_replies_to_a_home_and_asks_it(home: Home, cloud: RecordingCloud) -> None:
    home.listen("lamp", bright)
    asking = in_background(lambda: home.connect("button").request(ask("far", far=True), SECONDS))
    wait_for(lambda: cloud.has({"far"}))
    request = next(each for each in cloud.events if each.id == "far")
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
    # Once its report is there, it is connected and has subscribed.
    wait_for(lambda: any(each.type == STARTED for each in cloud.events))
    request = ask("down", todevice=THING, replyto="desk", correlationid="c7")
    cloud.send_down(down(request.json, "desk", "ask/desk/x", order=1))
    wait_for(lambda: cloud.has({f"c7.{THING}/lamp"}))
    reply = next(each for each in cloud.events if each.id.startswith("c7."))
    assert (reply.data()["thing"], reply.attributes["replyto"]) == (THING, "desk")


@pytest.mark.source("N2", "C1", "C3")
def test_a_request_is_sent_again_after_an_outage_as_its_guarantee_says(home: Home) -> None:
    """Events are in tests/integration/edge/test_service.py and test_forwarder.py; these are the requests."""
    begun, may_end = threading.Event(), threading.Event()

    def slow(event: Envelope) -> dict[str, str]:
        begun.set()
        assert may_end.wait(SECONDS)
        return bright(event)

    home.listen("lamp", slow)
    button = home.transport("button")
    asking = in_background(lambda: button.request(ask("slow"), SECONDS))
    assert begun.wait(SECONDS)
    home.broker.child.kill()
    home.broker.child.start()
    may_end.set()
    assert asking.result(SECONDS)["lamp"].answer == {"lit_by": "slow"}
    assert button.request(ask("best effort"), SECONDS, durable=False)["lamp"].status is Status.HANDLED

    home.broker.child.stop()
    wait_for(lambda: not button.up)
    with pytest.raises(RequestTimeoutError, match="was not sent") as late:
        button.request(ask("r"), 0.2)
    assert late.value.missing is None
    with pytest.raises(RequestDroppedError, match="nobody answered who handles the event"):
        button.request(ask("r"), 0.2, durable=False)
    assert button.waiting == 0
    asking = in_background(lambda: button.request(ask("again"), SECONDS, durable=False))
    home.broker.child.start()
    assert asking.result(SECONDS)["lamp"].status is Status.HANDLED
    assert button.request(ask("r"), SECONDS)["lamp"].status is Status.HANDLED
