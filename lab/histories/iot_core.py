"""IoT Core: the cloud's broker, the rules that write what it receives to queues, and its lifecycle events."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from eventplane.ingest import IngestFrame, frame_text
from eventplane.topics import urgent_rule
from eventplane_aws.rules import IOT_PUBLISHES, IOT_UNACKNOWLEDGED, Rule
from eventplane_mqtt.codec import encode_connect
from lab.aws_requests import broken_rule, problem
from parts.simulate.broker import BrokerMessage, BrokerModel, Limits, ModelLink, Peer
from parts.simulate.home import RULE
from tests.fakes.iot import FakeIot

if TYPE_CHECKING:
    from lab.histories.cloud import CloudModel

DENYING: Final = "denying"
"""The policy that a quarantine attaches."""

ENDS_S: Final = 60.0
"""How long after the end of its certificate a connection ends: AWS says minutes."""

CERTIFICATE: Final = "a" * 64


def _broken(message: BrokerMessage) -> Rule | None:
    return broken_rule("iot-data", "Publish", {"topic": message.topic, "payload": message.payload})


LIMITS: Final = Limits(in_flight=IOT_UNACKNOWLEDGED.most, queued=1 << 30, refuses=_broken)
"""What waits ends with the session."""


class SilentPeer:
    """The end of a client that only connects; see `parts.simulate.broker.Peer`."""

    def take(self, data: bytes) -> None: ...

    def hung_up(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Door:
    """The broker for a client that shows the certificate of its `credential` at each connection."""

    iot: IotCore
    credential: Callable[[], str]

    def open(self, peer: Peer) -> ModelLink | None:
        """See `parts.simulate.broker.BrokerModel`; None as well for a certificate that is not accepted."""
        certificate = self.credential()
        if not self.iot.accepts(certificate) or (link := self.iot.broker.open(peer)) is None:
            return None
        link.principal = certificate
        return link


class Issued(FakeIot):
    """The control plane, which ends connections some time after their certificate was deactivated."""

    def __init__(self, iot: IotCore) -> None:
        super().__init__()
        self._iot = iot
        self.create_policy(policyName=DENYING, policyDocument="{}")

    def update_certificate(self, *, certificateId: str, newStatus: str) -> Any:  # noqa: N803 - AWS's names
        answer = super().update_certificate(certificateId=certificateId, newStatus=newStatus)
        self._iot.engine.note("IoT Core", f"certificate {certificateId[-4:]} is {newStatus}")
        if newStatus != "ACTIVE":
            ended = partial(self._iot.end, lambda link: link.principal == certificateId)
            self._iot.engine.after(ENDS_S, ended)
        return answer


class IotCore:
    """IoT Core of a `cloud`; to functions it is the client of its data plane."""

    def __init__(self, cloud: CloudModel) -> None:
        self.engine = cloud.engine
        self.broker = BrokerModel(cloud.engine, LIMITS, self._published, self._connection)
        self._cloud = cloud
        self.connections: list[tuple[float, str, str]] = []
        """When each device connected, subscribed and was gone."""
        self.certificates = Issued(self)
        self.exceptions = self.certificates.exceptions
        self.is_watched = False
        """Whether a rule reports connections to the certificate keeper."""
        self._principals: dict[str, str] = {}
        self.copies = 0.0, 0.0
        """Until when each message to a device comes twice, and how long after it the copy, seconds."""
        self._versions: dict[str, int] = {}
        self._publishes: defaultdict[str, deque[float]] = defaultdict(
            lambda: deque(maxlen=IOT_PUBLISHES.most)
        )
        """When each client published last."""

    def publish(self, *, topic: str, qos: int, payload: bytes) -> dict[str, Any]:
        """Publish to a device: the operation of the data plane that functions use."""
        self.engine.note("IoT Core", f"sends down to {topic}")
        message = BrokerMessage(topic, payload, qos)
        if rule := _broken(message):
            raise ClientError({"Error": {"Code": rule.code, "Message": problem(rule)}}, "Publish")
        self.broker.publish(message)
        until_s, after_s = self.copies
        if self.engine.now_s < until_s:
            self.engine.after(after_s, lambda: self.broker.publish(message))
        return {}

    def accepts(self, certificate: str) -> bool:
        """Return whether a certificate opens a connection."""
        known = self.certificates
        return known.statuses.get(certificate) == "ACTIVE" and certificate not in known.policies[DENYING]

    def connect(self, client: str, certificate: str) -> bool:
        """Connect for a moment as `client`, which ends another connection of it; whether that succeeded."""
        link = Door(self, lambda: certificate).open(SilentPeer())
        if link is None:
            return False
        link.take(encode_connect(4, client, clean=True, keepalive_s=0))
        link.end(says_goodbye=True)
        return True

    def delete_connection(self, *, clientId: str, **_: Any) -> dict[str, Any]:  # noqa: N803 - AWS's name
        """End a device's connection: the operation of the data plane that operators use."""
        self.end(lambda link: link is self.broker.links.get(clientId))
        return {}

    def end(self, is_meant: Callable[[ModelLink], bool]) -> None:
        """End the connections that are meant."""
        for link in [each for each in self.broker.links.values() if is_meant(each)]:
            link.end()

    def _published(self, client: str, message: BrokerMessage) -> bool:
        """Basic Ingest: the rule writes to the router's queue and to the tap's, independently.

        IoT Core neither takes nor answers what exceeds a connection's publishes a second.
        """
        latest = self._publishes[client]
        if len(latest) == latest.maxlen and self.engine.now_s - latest[0] < 1.0:
            self.engine.note("IoT Core", f"{client} publishes too often", is_fault=True)
            return False
        latest.append(self.engine.now_s)
        prefix, _, rest = message.topic.partition("/devices/")
        rule = prefix.removeprefix("$aws/rules/")
        frame = IngestFrame(
            payload=message.payload,
            topic=f"devices/{rest}",
            client_id=client,
            principal=self._principals[client],
            accepted_at_ms=self.engine.now_ms,
        )
        self.engine.note("IoT Core", f"{len(message.payload)} bytes of {client}")
        cloud = self._cloud
        into = cloud.urgent if rule == urgent_rule(RULE) else cloud.ingest
        for url in (into, cloud.tap):
            self._rule_writes(url, frame_text(frame))
        return True

    def _rule_writes(self, url: str, body: str) -> None:
        """Perform a rule's action, which AWS repeats while SQS is down."""
        if "sqs" in self._cloud.weather.down:
            self.engine.after(5.0, lambda: self._rule_writes(url, body))
        else:
            self._cloud.sqs.send_message(QueueUrl=url, MessageBody=body)

    def _connection(self, client: str, what: str) -> None:
        self.engine.note("IoT Core", f"{client} {what}")
        self.connections.append((self.engine.now_s, client, what))
        if what == "subscribed":
            self._rule_writes(self._cloud.work, json.dumps({"subscribed": client}))
            return
        if what == "connected":
            self._versions[client] = self._versions.get(client, -1) + 1
            self._principals[client] = self.broker.links[client].principal or CERTIFICATE
            if self.is_watched:
                seen = {"thing": client, "certificate": self._principals[client]}
                self._rule_writes(self._cloud.connections, json.dumps(seen))
        version = self._versions[client]
        members = {
            "clientId": client,
            "timestamp": self.engine.now_ms,
            "eventType": what,
            "sessionIdentifier": f"session-{version}",
            "principalIdentifier": self._principals[client],
            "versionNumber": version,
        }
        if what == "disconnected":
            members |= {"clientInitiatedDisconnect": False, "disconnectReason": "CONNECTION_LOST"}
        self._rule_writes(self._cloud.lifecycle, json.dumps(members))
