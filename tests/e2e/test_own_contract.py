"""The control room of a plane with a contract that is not the shipped one, by what its page asks for."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from lab.cloud import ROOT
from lab.up.folder import Running
from stacks.names import url_output
from tests.e2e.conftest import asked, own_desk, state
from tests.eventually import eventually

RING = "org.example.ring.v1"
SECONDS = 150.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(ROOT / "docs" / "examples" / "schemas", folder / "schemas")
    text = (ROOT / "docs" / "examples" / "doorbell.yaml").read_text()
    contract = folder / "bells.yaml"
    text = text.replace("org.example.rings.v1", RING)  # of the example's two types nobody gets one
    contract.write_text(text.replace("retention_s: 86400", "retention_s: 86400\n      receipts: true"))
    with own_desk(folder, contract) as desk:
        yield desk.running


def offered(running: Running, type: str) -> dict[str, Any]:
    (offer,) = [each for each in asked(running, "GET", "offers") if each["type"] == type]
    return dict(offer)


def send(running: Running, offer: dict[str, Any], **more: Any) -> str:
    event = json.dumps({**offer["event"], **more})
    return str(asked(running, "POST", f"send/{offer['sender']}", event)["id"])


def accounts(running: Running, id: str) -> dict[str, str]:
    """What the room says of an event, by inbox; of one that none gets, why."""
    (event,) = [each for each in state(running)["events"] if each["id"] == id]
    return {each["inbox"]: each["account"] for each in event["deliveries"]} or {"nobody": event["nobody"]}


def ask(running: Running, question: str, *words: str) -> tuple[int, str]:
    answer = asked(running, "POST", f"ask/{question}", json.dumps(words))
    return answer["status"], answer["output"]


def test_an_event_is_rung_and_taken_whatever_is_broken(running: Running) -> None:
    assert set(state(running)["readers"]) == {"chime", "desk"}
    for reader in ("chime", "desk"):
        asked(running, "POST", f"readers/{reader}")
    asked(running, "POST", "faults/network")
    id = send(running, offered(running, RING))
    handled = {"chime": "handled by chime", "desk": "handled by desk"}
    assert eventually(lambda: accounts(running, id)["chime"] == handled["chime"], SECONDS, every_s=0.1)
    assert eventually(lambda: state(running)["counters"]["waiting"], SECONDS, every_s=0.1)
    asked(running, "DELETE", "faults/network")
    assert eventually(lambda: accounts(running, id) == handled, SECONDS, every_s=0.1)
    counters = state(running)["counters"]
    assert (counters["rang"], counters["taken"], counters["duplicates"]) == (1, 1, 0)
    asked(running, "DELETE", "readers/desk")
    assert state(running)["readers"] == {"chime": True, "desk": False}


def test_what_the_plane_refuses_is_said(running: Running) -> None:
    wrong = send(running, offered(running, RING), data={"floor": 1})
    unknown = send(running, offered(running, RING), type="org.example.fire.v1")

    def shown(id: str) -> str:
        return " ".join(accounts(running, id).values())

    assert eventually(lambda: "payload_invalid" in shown(wrong), SECONDS, every_s=0.1)
    assert "add the type, or correct the sender" in shown(unknown)
    assert "add a route to an inbox" in shown(send(running, offered(running, "org.example.battery.v1")))


def test_questions_are_answered(running: Running) -> None:
    offer = offered(running, RING)
    id = send(running, offer)
    status, text = ask(running, "trace", offer["event"]["source"], id)
    assert status in (0, 3), text
    assert "rings-and-empty-batteries-to-desk -> desk.inbox" in text
    status, text = ask(running, "audit")
    assert (status, "\nall: " in text) == (0, True), text


def test_a_dead_letter_goes_back(running: Running) -> None:
    sqs, dead = running.cloud.client("sqs"), "eventplane-local-desk-inbox-dlq"
    body = json.dumps({"specversion": "1.0", "id": "given-up", "source": "/bell", "type": RING, "data": {}})
    sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=dead)["QueueUrl"], MessageBody=body)
    status, text = ask(running, "letters")
    (waiting,) = [each for each in json.loads(text[text.index("\n{") :])["queues"] if each["waiting"]]
    assert (status, waiting["title"], waiting["reasons"]) == (0, "desk.inbox", {"receives_exhausted": 1})
    status, text = ask(running, "show", "desk.inbox")
    assert (status, "given-up" in text, "to do" in text) == (0, True, True)
    assert ask(running, "redrive", "desk.inbox") == (0, "desk.inbox: 1 moved\n")
    inbox = running.outputs[url_output("desk", "Inbox")]
    names = ["ApproximateNumberOfMessages"]
    found = sqs.get_queue_attributes(QueueUrl=inbox, AttributeNames=names)["Attributes"]
    assert int(found["ApproximateNumberOfMessages"]) >= 1


def test_printed_commands_are_of_this_contract(running: Running) -> None:
    lines = "\n".join(state(running)["commands"].values())
    assert "eventplane inbox desk --follow" in lines
    assert "-t eventplane/bell/outbox" in lines
    assert "voice-service" not in lines
    assert "alarm-centre" not in lines
