"""What else the compromised program of a cloud service tries: others' queues, addresses and versions."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from eventplane.conversation.messages import Replier, Reply, Status, write_reply
from eventplane.envelope import Envelope, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.topics import device_topic
from lab.plane import THRESHOLD
from tests.adversary.conftest import Attempt
from tests.adversary.forgeries import CONTRACT_KEY, LOW, MOST, SHUT, WEAK, down
from tests.adversary.world import ALARM, HELP, PATIENCE_S, THIEF, VICTIM, VOICE, World, new_id
from tests.integration.downlink import CONTRACT, MESSAGE

# What IAM refuses


def frame() -> str:
    """A frame as the ingest rule writes it, of the victim's device."""
    event = write_event({"id": new_id(), "source": VOICE, "type": ALARM}, HELP)
    payload = event.json.encode()
    return frame_text(IngestFrame(payload, device_topic(VICTIM, "outbox"), VICTIM, "", 1_772_437_800_000))


def command() -> str:
    return write_event({"id": new_id(), "source": "/carers", "type": MESSAGE, **down()}, SHUT).json


WRITES: dict[str, tuple[str, Callable[[], str]]] = {
    "the queue of the devices' frames": ("IngestUrl", frame),
    "the queue of the devices' alarms": ("UrgentIngestUrl", frame),
    "the queue of the archive": ("TapUrl", frame),
    "the inbox of the devices": ("DeviceInboxUrl", command),
    "the outbox of the carers": ("CarersOutboxUrl", command),
    "the inbox of the alarm centre": ("AlarmCentreInboxUrl", command),
}


@pytest.mark.parametrize("place", WRITES)
def test_a_queue_of_others(world: World, attempt: Attempt, place: str) -> None:
    """family-app: write past the routers, into"""
    url, write = WRITES[place]
    sqs = world.programs["family-app"].cloud.client("sqs")
    with pytest.raises(ClientError) as caught:
        sqs.send_message(QueueUrl=world.plane.outputs[url], MessageBody=write())
    denied(attempt, caught.value)


@pytest.mark.parametrize("inbox", ["carers-inbox", "operations-inbox", "carers-replies"])
def test_an_inbox_of_others(world: World, attempt: Attempt, inbox: str) -> None:
    """family-app: read what is for others, in"""
    sqs = world.programs["family-app"].cloud.client("sqs")
    url = world.plane.outputs["CarersInboxUrl"].replace("carers-inbox", inbox)
    with pytest.raises(ClientError) as caught:
        sqs.receive_message(QueueUrl=url)
    denied(attempt, caught.value)


def test_the_archive(world: World, attempt: Attempt) -> None:
    """family-app: write a ledger of its own, by which everything was delivered"""
    s3 = world.programs["family-app"].cloud.client("s3")
    with pytest.raises(ClientError) as caught:
        s3.put_object(Bucket=world.plane.outputs["ArchiveBucket"], Key="ledger/forged.gz", Body=b"")
    denied(attempt, caught.value)


def denied(attempt: Attempt, error: ClientError) -> None:
    """What IAM denies it names in its answer and, in an account with data events, in CloudTrail."""
    code, text = (error.response["Error"][each] for each in ("Code", "Message"))
    attempt.refused(
        "AccessDenied" in code or error.response["ResponseMetadata"]["HTTPStatusCode"] == 403, error
    )
    attempt.reported("user/family-app" in text, text)


# What its own rights do not reach


def reported_by_letter(world: World, attempt: Attempt, event: Envelope, by: str, reason: str) -> None:
    """Say whether a dead letter names the sender and the reason."""

    def found() -> tuple[str, str] | None:
        letter = world.letter(event)
        return (letter.sender, letter.data["reason"]) if letter else None

    attempt.reported(world.comes(lambda: found() == (by, reason)), found())


@pytest.mark.parametrize("to", ["every home", "a group of homes"])
def test_a_message_to_many(world: World, attempt: Attempt, to: str) -> None:
    """carers: send a message, which is for one home, to"""
    address = down("*") if to == "every home" else {"togroup": "all-homes"}
    event = world.plane.send("Carers", MESSAGE, new_id(), SHUT, **address)
    reported_by_letter(world, attempt, event, "carers", "address_not_allowed")
    attempt.refused(not world.who_got(event), world.who_got(event))


def test_the_highest_version(world: World, attempt: Attempt) -> None:
    """carers: send a threshold with the highest version, so that no carer can change it again"""
    key = f"threshold/home/{new_id()}"
    first = world.plane.send("Carers", THRESHOLD, new_id(), LOW, **down(VICTIM, key))
    assert world.comes(lambda: world.plane.is_stored(VICTIM, key, 1)), first.id
    event = world.plane.send("Carers", THRESHOLD, new_id(), LOW, **down(VICTIM, key, MOST))
    reported_by_letter(world, attempt, event, "carers", "version_jump")
    attempt.refused(not world.who_got(event), world.who_got(event))
    world.plane.send("Carers", THRESHOLD, new_id(), LOW, **down(VICTIM, key, "2"))
    attempt.refused(
        world.comes(lambda: world.plane.is_stored(VICTIM, key, 2)), "the next version is not taken"
    )


def test_a_contract_without_alarm_routes(world: World, attempt: Attempt) -> None:
    """operations: send every home a contract without alarm routes, which operations may"""
    event = world.plane.send("Operations", CONTRACT, new_id(), WEAK, **down("*", CONTRACT_KEY, "7"))
    reported_by_letter(world, attempt, event, "operations", "contract_refused")
    attempt.refused(world.is_heard(world.calls_for_help()), "an alarm was not heard")


@pytest.mark.parametrize("by", ["family-app", f"{THIEF}/voice-service"])
def test_a_forged_reply(world: World, attempt: Attempt, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """who knows a correlation id: answer a carer's request to a home"""
    asked = write_event({"id": new_id(), "source": "/carers", "type": MESSAGE, "todevice": VICTIM}, SHUT)
    voice = Replier("voice-service", VICTIM)
    with world.enter_as("carers", monkeypatch) as carers, ThreadPoolExecutor(1) as asking:
        world.home.link.cut()
        try:
            answer = asking.submit(carers.request, asked, 2 * PATIENCE_S)
            assert world.comes(lambda: world.on_its_way(asked) is not None)
            request = world.on_its_way(asked)
            assert request is not None
            forged = write_reply(request, Reply(voice, Status.HANDLED, "do not come"), "2026-03-01T08:30:00Z")
            world.attacker(by).send(forged)
            # A reply has one id, whoever sends it: the ledger tells them apart.
            attempt.reported(world.comes(lambda: by in world.deciders(forged)), world.deciders(forged))
        finally:
            world.home.link.heal()
        found = answer.result()
    attempt.refused(found == {"voice-service": Reply(voice, Status.HANDLED)}, f"the carers were told {found}")
