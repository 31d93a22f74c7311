"""IoT Core: the cloud's broker, the rules that write what it receives to queues, and its lifecycle events."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from eventplane.ingest import IngestFrame, frame_text
from eventplane.topics import urgent_rule
from eventplane_aws.rules import IOT_PUBLISHES, IOT_UNACKNOWLEDGED, Rule
from local.aws_requests import broken_rule, problem
from local.histories.broker import Broker, Limits, Message

if TYPE_CHECKING:
    from local.histories.cloud import Cloud

RULE: Final = "ingest"
CERTIFICATE: Final = "a" * 64


def _broken(message: Message) -> Rule | None:
    return broken_rule("iot-data", "Publish", {"topic": message.topic, "payload": message.payload})


LIMITS: Final = Limits(in_flight=IOT_UNACKNOWLEDGED.most, queued=1 << 30, refuses=_broken)
"""What waits ends with the session."""


class IotCore:
    """IoT Core of a `cloud`; to functions it is the client of its data plane."""

    def __init__(self, cloud: Cloud) -> None:
        self.engine = cloud.engine
        self.broker = Broker(cloud.engine, LIMITS, self._published, self._connection)
        self._cloud = cloud
        self.connections: list[tuple[float, str, str]] = []
        """When each device connected, subscribed and was gone."""
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
        message = Message(topic, payload, qos)
        if rule := _broken(message):
            raise ClientError({"Error": {"Code": rule.code, "Message": problem(rule)}}, "Publish")
        self.broker.publish(message)
        until_s, after_s = self.copies
        if self.engine.now_s < until_s:
            self.engine.after(after_s, lambda: self.broker.publish(message))
        return {}

    def _published(self, client: str, message: Message) -> bool:
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
            principal=CERTIFICATE,
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
        version = self._versions[client]
        members = {
            "clientId": client,
            "timestamp": self.engine.now_ms,
            "eventType": what,
            "sessionIdentifier": f"session-{version}",
            "principalIdentifier": CERTIFICATE,
            "versionNumber": version,
        }
        if what == "disconnected":
            members |= {"clientInitiatedDisconnect": False, "disconnectReason": "CONNECTION_LOST"}
        self._rule_writes(self._cloud.lifecycle, json.dumps(members))
