"""Observers of a running plane that take no event from an inbox."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.ledger import HANDOVERS, parse_ledger_text
from eventplane.receipts import ReceiptError, digest, read_receipts
from eventplane.resource_names import LEDGER_QUEUE
from eventplane.sqs_binding import split
from eventplane.topics import LOCAL_PREFIX, receipt_topic
from lab.chaos.fault_proxy import FaultProxy
from lab.control_room.tally import MOST_OPEN, Key, Tally
from lab.network import LOOPBACK
from lab.proxy import ProxyAnswer, ProxyCall

_SENDS: Final = ("AmazonSQS.SendMessageBatch", "AmazonSQS.SendMessage")
_OK: Final = 200
_HANDOVERS: Final = re.compile(rf"(?<!written)/{HANDOVERS}/.*\.gz")

_BOXES: Final = ("outbox", "inbox")


class ObservingProxy(FaultProxy):
    """Passes the functions' calls on, and records each event that they put into an inbox, what else the
    routers decided, and what readers did by their receipts.

    `inboxes` has the participant by the name of its queue; `put_objects` counts the objects written to S3,
    `routed` the events put into inboxes.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.inboxes: Mapping[str, str] = {}
        self.put_objects = 0
        self.routed = 0
        self._tally: Tally | None = None

    def observe(self, inboxes: Mapping[str, str], tally: Tally) -> None:
        """Record in `tally` what arrives in `inboxes` from now on."""
        self.inboxes, self._tally = inboxes, tally

    def answer(self, call: ProxyCall) -> ProxyAnswer | None:
        """Return what `FaultProxy.answer` returns."""
        answer = super().answer(call)
        if answer is None or answer.status != _OK:
            return answer
        if call.service == "s3" and call.method == "PUT":
            self.put_objects += 1
            if _HANDOVERS.search(call.path) and self._tally:
                for line in gzip.decompress(call.body).splitlines():
                    self._tally.settled(json.loads(line))
        elif call.service == "sqs" and call.action in _SENDS and self._tally:
            self._note_messages(json.loads(call.body), json.loads(answer.body), self._tally)
        return answer

    def _note_messages(self, request: dict[str, Any], answer: dict[str, Any], tally: Tally) -> None:
        queue = request["QueueUrl"].rpartition("/")[2]
        bodies = [request["MessageBody"]] if "MessageBody" in request else _stored(request, answer)
        if queue.endswith(f"-{LEDGER_QUEUE}"):
            for line in chain.from_iterable(parse_ledger_text(body).lines for body in bodies):
                tally.decided(json.loads(line))
            return
        participant = self.inboxes.get(queue)
        if participant is None:
            return
        for body in bodies:
            for event in _events(body):
                now_ms = time.time() * 1_000
                # The sending, too: an event may have entered in the cloud.
                tally.sent(event, event.sender.service, _recorded_ms(event, now_ms))
                tally.received(participant, event.claim, now_ms)
                self.routed += 1


def _recorded_ms(event: Envelope, now_ms: float) -> float:
    """Return when the sender recorded `event`, Unix ms; `now_ms` where it does not say."""
    text = event.attributes.get("recordedtime") or event.attributes.get("time")
    try:
        return min(now_ms, datetime.fromisoformat(str(text)).timestamp() * 1_000)
    except ValueError:
        return now_ms


def _stored(request: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """Return the bodies of those messages of a batch that the queue has stored."""
    stored = {each["Id"] for each in answer.get("Successful", [])}
    return [each["MessageBody"] for each in request["Entries"] if each["Id"] in stored]


def _events(body: str) -> Iterator[Envelope]:
    try:
        yield from map(parse_event, split(body))
    except EnvelopeError:
        return  # the ledger's lines, for one


class HomeObserver:
    """Records the messages of outboxes and inboxes at the home's broker on 127.0.0.1:`port`.

    It reconnects by itself, and may miss messages after a crash of the broker. It leaves out the inbox of
    `own`, a service that records what it receives itself. `published` counts the messages of outboxes by
    service, malformed ones included. Use it in a `with` block.
    """

    def __init__(self, port: int, tally: Tally, own: str) -> None:
        self.published: Counter[str] = Counter()
        self._claims: OrderedDict[str, Key] = OrderedDict()
        self._port = port
        self._tally = tally
        self._own = own
        # A session that outlasts a connection: the broker keeps what comes in between.
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id="control-room-observer", clean_session=False
        )
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = self._subscribe
        self._client.on_message = self._note

    def __enter__(self) -> Self:
        self._client.connect(LOOPBACK, self._port)
        self._client.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _subscribe(self, client: mqtt.Client, *_: object) -> None:
        topics = *(f"{LOCAL_PREFIX}/+/{box}" for box in _BOXES), receipt_topic("+", "outbox")
        client.subscribe([(each, 1) for each in topics])

    def _note(self, _client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        _, service, box, *receipts = message.topic.split("/")
        payload, now_ms = bytes(message.payload), time.time() * 1_000
        if receipts:
            self._note_receipts(payload, now_ms)
            return
        if box == "outbox":
            self.published[service] += 1
        try:
            event = parse_event(payload)
        except EnvelopeError:
            return  # the forwarder makes it a dead letter, which arrives in an inbox
        if box == "outbox":
            self._claims[digest(payload)] = event.claim
            while len(self._claims) > MOST_OPEN:
                self._claims.popitem(last=False)
            self._tally.sent(event, service, now_ms)
        elif service != self._own:
            self._tally.sent(event, event.sender.service, now_ms)
            self._tally.received(service, event.claim, now_ms)

    def _note_receipts(self, payload: bytes, now_ms: float) -> None:
        try:
            refused = {each.digest: each.refused for each in read_receipts(payload) if each.refused}
        except ReceiptError:
            return
        for key, why in ((self._claims.get(each), why) for each, why in refused.items()):
            if key:
                self._tally.refused(key, "the forwarder", why, now_ms)
