"""Conversations through the deployed plane: in the cloud, and between a home and the cloud, both ways."""

from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eventplane.conversation.messages import Replier, Reply, Status
from eventplane.envelope import Envelope, write_event
from eventplane_client import Client, ClientSettings, connect, contract_in_force
from eventplane_client.errors import RequestTimeoutError
from eventplane_client.functions import handles_events
from lab.plane import Plane as DeployedPlane
from lab.services import Service, answering, repeated
from tests.eventually import eventually
from tests.integration.cloud import enter_as, program_of
from tests.integration.downlink import MESSAGE, SECONDS, Home
from tests.unit.lambdas.support import LambdaContext

ALARM = "org.eventplane.alarm.keyword.v1"
_NUMBERS = count(1)


@pytest.fixture
def home(cloud_home: Home) -> Home:
    return cloud_home


def enter(
    plane: DeployedPlane, participant: str, monkeypatch: pytest.MonkeyPatch, contract: str = ""
) -> Client:
    """The client of a cloud service, with its rights and no others."""
    enter_as(program_of(plane, participant), monkeypatch)
    return connect(ClientSettings("sqs:local", participant, contract=contract))


def message(home: Home) -> Envelope:
    return write_event(
        {"id": f"m{next(_NUMBERS)}", "source": "/carers", "type": MESSAGE, "todevice": home.name},
        {"text": "Are you well?"},
    )


@pytest.mark.source("N2")
def test_the_cloud_asks_a_home_and_who_subscribed_in_the_cloud(
    plane: DeployedPlane, home: Home, monkeypatch: pytest.MonkeyPatch, contract_file: Path
) -> None:
    analytics = enter(plane, "care-analytics", monkeypatch)
    with enter(plane, "carers", monkeypatch, str(contract_file)) as carers, analytics:
        asked = message(home)
        voice = Replier("voice-service", home.name)
        # Its handler in the home returns nothing.
        assert carers.request(asked, SECONDS) == {"voice-service": Reply(voice, Status.HANDLED)}
        assert asked.id in {each.id for each in home.came}
        # At best effort, by the same way.
        assert carers.request(message(home), SECONDS, durable=False) == {
            "voice-service": Reply(voice, Status.HANDLED)
        }

        monkeypatch.setattr(contract_in_force, "REFRESH_S", 0.0)
        came: set[str] = set()

        def is_in_force() -> bool:
            # The routers look by themselves: before they have, a request would wait in vain.
            told = message(home)
            carers.put(told)
            return eventually(lambda: told.id in came, 5)

        inbox = analytics.subscribe({"exact": {"type": MESSAGE}}, name="messages")
        with answering(inbox, partial(_answer, came)):
            assert eventually(is_in_force, SECONDS)

            def everybody_replies() -> bool:
                asked = message(home)
                try:
                    found = carers.request(asked, 10)
                except RequestTimeoutError:
                    return False  # another instance of the router, which has not looked yet
                return found == {
                    "voice-service": Reply(voice, Status.HANDLED),
                    "care-analytics": Reply(Replier("care-analytics"), Status.HANDLED, [asked.id]),
                }

            assert eventually(everybody_replies, SECONDS)
        analytics.unsubscribe("messages")


def _answer(came: set[str], event: Envelope) -> list[str]:
    came.add(event.id)
    return [event.id]


def test_a_home_asks_the_cloud(plane: DeployedPlane, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    alarm = write_event(
        {"id": f"a{next(_NUMBERS)}", "source": f"/homes/{home.name}/voice-service", "type": ALARM},
        {"keyword": "help"},
    )
    call = Service("call-service", home.broker.port, lambda event: f"called about {event.id}")
    home.services["call-service"] = call.client
    centre = enter(plane, "alarm-centre", monkeypatch)
    inbox = centre.subscribe()
    family = enter(plane, "family-app", monkeypatch)
    with centre, family, invoked(plane, family), answering(inbox, lambda event: {"dispatched": event.id}):
        found = home.services["voice-service"].request(alarm, SECONDS, expires=False)
    assert found == {
        "call-service": Reply(Replier("call-service"), Status.HANDLED, f"called about {alarm.id}"),
        "alarm-centre": Reply(Replier("alarm-centre"), Status.HANDLED, {"dispatched": alarm.id}),
        "family-app": Reply(Replier("family-app"), Status.HANDLED, f"seen by {alarm.id}"),
    }


def invoked(plane: DeployedPlane, client: Client) -> AbstractContextManager[None]:
    """A decorated function gets what comes into the inbox of the family's app, as Lambda does it."""
    transport: Any = client._transport
    sqs, url, filter = plane.cloud.client("sqs"), plane.outputs["FamilyAppInboxUrl"], client._open_filter()

    @handles_events("family-app", "local", wiring=lambda: (transport, lambda _: filter))
    def handle(event: Envelope) -> str:
        return f"seen by {event.id}"

    def step() -> None:
        answer = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1, MessageSystemAttributeNames=["All"])
        for each in answer.get("Messages", []):
            record = {
                "messageId": each["MessageId"],
                "body": each["Body"],
                "attributes": each["Attributes"],
                "messageAttributes": {},
            }
            if not handle({"Records": [record]}, LambdaContext())["batchItemFailures"]:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])

    return repeated(step)
