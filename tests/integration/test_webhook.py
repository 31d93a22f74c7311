"""From a device to the rescue service's HTTPS endpoint: rule, router, inbox, webhook function, TLS."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eventplane.envelope import Envelope, write_event
from eventplane.names import SENDER_DEVICE
from eventplane.topics import basic_ingest_topic
from lab.plane import Plane, with_variables
from lab.things import Authority, Thing
from parts.webhooks.endpoint_state import ENDPOINT, EndpointState
from parts.webhooks.receiver import is_genuine
from tests.endpoint import EndpointServer, answer
from tests.eventually import eventually
from tests.integration.cloud import HOOKED, RESCUE, SECONDS, Archive, Inboxes
from tests.integration.mqtt import TestClient


@dataclass
class Home:
    """A device, and the plane that posts what it sends to the rescue service."""

    plane: Plane
    thing: Thing

    def sends(self, id: str) -> Envelope:
        """The device publishes an event; return it as the rescue service gets it."""
        event = write_event({"id": id, "source": "/homes/hooked/voice", "type": RESCUE}, {"keyword": "Hilfe"})
        with TestClient.of_thing(self.thing) as device:
            topic = basic_ingest_topic(self.plane.outputs["IngestRule"], self.thing.name)
            assert device.publish(topic, event.json.encode())
        return event.stamped(**{SENDER_DEVICE: self.thing.name})

    def endpoints(self) -> list[EndpointState]:
        """What the webhook's function knows of its endpoint while that fails."""
        records = self.plane.records("EndpointsTable", ENDPOINT)
        # Endpoints of other participants' subscriptions, some gone by now, are in the same table.
        return [each for each in records.all() if each.endpoint.startswith(f"{HOOKED}/")]

    def key(self) -> str:
        secrets = self.plane.cloud.client("secretsmanager")
        return str(
            secrets.get_secret_value(SecretId=self.plane.outputs["RescueServiceWebhookSecret"])[
                "SecretString"
            ]
        )


@pytest.fixture
def home(plane: Plane, authority_of_rescuers: Authority, tmp_path: Path) -> Iterator[Home]:
    """The webhook's TLS believes the test's authority, as Lambda's does those of the internet."""
    trusted = {"SSL_CERT_FILE": str(authority_of_rescuers.ca)}
    with with_variables(plane.cloud, [f"eventplane-local-webhook-{HOOKED}"], trusted):
        yield Home(plane, plane.provision("hooked-home", tmp_path / "thing"))


def test_an_event_is_signed(home: Home, rescuers: EndpointServer, inboxes: Inboxes, archive: Archive) -> None:
    rescuers.play(answer(503, retry_after="15"), answer(202), answer(422, b"no such home"))
    event = home.sends("hooked-1")
    assert eventually(lambda: [each.detail for each in home.endpoints()] == ["HTTP 503 Words"], SECONDS)
    assert eventually(lambda: len(rescuers.received) == 2, SECONDS)
    assert eventually(lambda: not home.endpoints(), SECONDS)
    failed, taken = rescuers.received
    assert failed.body == taken.body == event.json.encode()
    assert failed.headers["webhook-id"] == taken.headers["webhook-id"]
    assert taken.headers["content-type"] == "application/cloudevents+json"
    for request in (failed, taken):
        assert is_genuine([home.key()], request.headers, request.body)

    home.sends("hooked-2")
    letter = inboxes.letter(lambda each: each.data()["channel"] == f"{HOOKED}.inbox").data()
    assert (letter["reason"], letter["detail"]) == ("endpoint_refused", "HTTP 422 Words: no such home")
    assert len(rescuers.received) == 3
    mine = [each for each in archive.rows("handovers") if each["id"].startswith("hooked-")]
    assert sorted((each["id"], each["outcome"], each["status"], each["attempt"]) for each in mine) == [
        ("hooked-1", "delivered", 202, 2),
        ("hooked-2", "dead_lettered", 422, 1),
    ]
