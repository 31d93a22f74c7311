"""The rules of the receipt protocol by the paragraphs of docs/reference/receipts.md, and their checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from eventplane.envelope import write_event
from eventplane.receipts import SPOOL_FULL, ReceiptError, digest, read_receipts
from eventplane.topics import local_topic, receipt_topic
from eventplane_mqtt import Endpoint
from eventplane_mqtt.probe import BlockingConnection
from operations.conformance.kit import PUBLISH, SUBSCRIBE, Bench, RuleBrokenError
from operations.system import monotonic

PAGE: Final = "docs/reference/receipts.md"

_NONSENSE: Final = (
    b"",
    b"no JSON",
    b"{}",
    b"[1, null]",
    b'[{"digest": 5, "refused": null}]',
    json.dumps([{"digest": "0" * 64, "refused": None, "more": {}}]).encode(),
)
"""Messages on a receipts topic that say nothing about any event of the program."""

_LARGE: Final = 60_000
"""Bytes of an event whose packet's length takes three bytes, and which a pipe takes at once."""

_MOST_RECEIPTS: Final = 1_000
"""Of one message, as the page says."""

_PAUSES: Final = 4
_MOST_COPIES: Final = 8
"""Of one event within so many pauses, where one or two are right."""

_LEAST_WINDOW_S: Final = 1.0
"""Shortest time in which copies are counted, seconds: the pauses of a program that floods are too short."""


class Requirement(NamedTuple):
    """A rule: its paragraph, its name, and what checks it. The check raises `RuleBrokenError`."""

    paragraph: int
    name: str
    check: Callable[..., None]


class Result(NamedTuple):
    """The result for a rule; `problem` is None where it is kept."""

    rule: Requirement
    problem: str | None


def judged(rules: tuple[Requirement, ...], run: Callable[[Requirement], None]) -> Iterator[Result]:
    """Yield the result of each rule, once it is known."""
    for each in rules:
        try:
            run(each)
        except RuleBrokenError as error:
            yield Result(each, str(error))
        else:
            yield Result(each, None)


# Of a program


def _subscribes_first(bench: Bench) -> None:
    bench.answering = bench.relay.denying = True
    bench.give(1)
    bench.wait(lambda: bench.lines, "a connection")
    bench.relay.denying = False
    bench.wait(lambda: bench.reports, "a line about the first event, after a refused subscription")
    if [each.kind for each in bench.relay.sent if each.kind in (PUBLISH, SUBSCRIBE)][:2] != [SUBSCRIBE] * 2:
        raise RuleBrokenError("SUBSCRIBE first, and again after its refusal", "PUBLISH")
    # The broker keeps the session of a program that wants it.
    bench.relay.cut()
    bench.relay.refusing = False
    bench.give(1)
    bench.finish()
    for line in {1, *(each.line for each in bench.relay.sent if each.kind == PUBLISH)}:
        _expect_subscription(bench, line)


def _expect_subscription(bench: Bench, line: int) -> None:
    topic = receipt_topic(bench.service, "outbox")
    sent = [each for each in bench.relay.sent if each.line == line and each.kind in (PUBLISH, SUBSCRIBE)]
    if not sent or (sent[0].kind, sent[0].text) != (SUBSCRIBE, topic):
        found = f"a packet {sent[0].kind} for {sent[0].text}" if sent else "nothing"
        raise RuleBrokenError(f"SUBSCRIBE to {topic} first on connection {line}", found)
    if not sent[0].qos:
        raise RuleBrokenError(f"SUBSCRIBE to {topic} at QoS 1", "QoS 0")


def _publishes_as_given(bench: Bench) -> None:
    bench.answering = True
    texts = bench.give(1) + bench.give(1, _LARGE)
    bench.finish()
    for sent in (each for each in bench.relay.sent if each.kind == PUBLISH):
        found = sent.text, sent.qos, sent.retain
        if found != (local_topic(bench.service, "outbox"), 1, False) or sent.payload not in texts:
            raise RuleBrokenError(
                f"the {len(texts[0])} or {len(texts[1])} bytes given on its outbox, QoS 1, not retained",
                f"{len(sent.payload)} bytes on {sent.text}, QoS {sent.qos}, retain {sent.retain}",
            )


def _stored_is_a_receipt(bench: Bench) -> None:
    (first,) = bench.give(1)
    bench.wait(lambda: first in bench.arrived, "the first event")
    # The broker has acknowledged it, and the program says nothing until it repeats it.
    bench.wait(lambda: bench.arrived.count(first) > 1, "the event again, without a receipt")
    if bench.reports:
        raise RuleBrokenError("no word before the receipt", f"the line {bench.reports[0]!r}")
    bench.answering = True
    bench.answer(first)
    _expect_report(bench, f"stored {digest(first)}")
    bench.finish()


def _repeats_until_receipt(bench: Bench) -> None:
    (text,) = bench.give(1)
    bench.wait(lambda: len(bench.arrived) > 2, "the event a third time, while receipts are lost")
    bench.answering = True
    bench.answer(text)
    bench.finish()
    if {*bench.published()} != {text}:
        raise RuleBrokenError("the same bytes each time", "others")


def _reports_once(bench: Bench) -> None:
    first, second = bench.give(2)
    bench.wait(lambda: first in bench.arrived, "the first event")
    for each in _NONSENSE:
        bench.say(each)
    others = [{"digest": digest(b"%d" % number), "refused": None} for number in range(1, _MOST_RECEIPTS)]
    bench.say(json.dumps([*others, {"digest": digest(first)}]).encode())
    _expect_report(bench, f"stored {digest(first)}")
    bench.answer(second, first, first)
    bench.answer(first)
    bench.answering = True
    bench.finish()


def _keeps_order(bench: Bench) -> None:
    bench.answering = True
    texts = bench.give(30)
    bench.finish()
    _expect_order(bench.published(), texts)


def _expect_order(published: list[bytes], texts: list[bytes]) -> None:
    found = list(dict.fromkeys(published))
    if found != texts:
        at = next((n for n, (a, b) in enumerate(zip(found, texts, strict=False)) if a != b), len(found))
        raise RuleBrokenError(
            f"{len(texts)} events in the order given", f"{len(found)} events, another at place {at + 1}"
        )


def _survives_broker(bench: Bench) -> None:
    bench.answering = True
    texts = bench.give(10)
    bench.wait(lambda: len(bench.answered) > 2, "three events")
    bench.answering = False
    texts += bench.give(10)
    bench.wait(lambda: not bench.answered.issuperset(bench.published()), "an event without a receipt")
    owed = {*bench.published()} - bench.answered
    bench.relay.cut()
    bench.wait(lambda: bench.relay.refused, "an attempt to connect again")
    bench.forget_session()
    before = bench.lines
    bench.answering, bench.relay.refusing = True, False
    bench.finish()
    _expect_subscription(bench, before + 1)
    again = list(dict.fromkeys(bench.published(before)))
    if not owed <= {*again}:
        raise RuleBrokenError(
            "all that had no receipt, on the new connection", f"{len(owed - {*again})} less"
        )
    _expect_order(again, [each for each in texts if each in again])
    _expect_order(bench.published(), texts)


def _waits_for_broker(bench: Bench) -> None:
    bench.relay.cut()
    bench.give(2)
    bench.wait(lambda: bench.relay.refused > 1, "two attempts to connect")
    bench.answering, bench.relay.refusing = True, False
    bench.finish()


def _refused_is_final(bench: Bench) -> None:
    refused, other = bench.give(2)
    bench.wait(lambda: refused in bench.arrived, "the first event")
    bench.answer(refused, refused="a_later_reason")
    _expect_report(bench, f"refused {digest(refused)} a_later_reason")
    before = bench.published().count(refused)
    bench.wait(lambda: bench.arrived.count(other) > 1, "the second event again, without a receipt")
    if bench.published().count(refused) > before:
        raise RuleBrokenError("no further copy of what was refused", "one more")
    bench.answering = True
    bench.answer(other)
    bench.finish()


def _full_is_not_stored(bench: Bench) -> None:
    (text,) = bench.give(1)
    bench.wait(lambda: text in bench.arrived, "the event")
    began = monotonic()
    bench.wait(lambda: bench.arrived.count(text) > 1, "the event again, without a receipt")
    pause, copies = monotonic() - began, len(bench.arrived)
    bench.refused, bench.answering = SPOOL_FULL, True
    bench.answer(text, refused=SPOOL_FULL)
    bench.work(max(_PAUSES * pause, _LEAST_WINDOW_S))
    bench.wait(lambda: len(bench.arrived) > copies, "the event again, as it is not stored")
    if (more := len(bench.arrived) - copies) > _MOST_COPIES:
        raise RuleBrokenError("pauses as without a receipt", f"{more} copies within {_PAUSES} pauses")
    bench.refused = None
    bench.answer(text)
    bench.finish()
    if bench.reports != [f"stored {digest(text)}"]:
        raise RuleBrokenError("one line, that it is stored", f"{bench.reports}")


def _expect_report(bench: Bench, line: str) -> None:
    bench.wait(lambda: line in bench.reports, f"the line {line!r}")


OF_PROGRAMS: Final = (
    Requirement(1, "subscribes to its receipts first", _subscribes_first),
    Requirement(2, "publishes the bytes at QoS 1, not retained", _publishes_as_given),
    Requirement(3, "takes a receipt alone for stored", _stored_is_a_receipt),
    Requirement(4, "repeats until the receipt", _repeats_until_receipt),
    Requirement(5, "reads any receipts, and reports once", _reports_once),
    Requirement(6, "keeps the order", _keeps_order),
    Requirement(7, "survives a restart of the broker", _survives_broker),
    Requirement(8, "waits for a broker that is away", _waits_for_broker),
    Requirement(9, "takes a refusal for final", _refused_is_final),
    Requirement(10, "keeps what found no room", _full_is_not_stored),
)
"""What a program that publishes has to do."""


# Of a forwarder


class Outbox:
    """A service at the broker of `endpoint`, with a forwarder: it publishes, and collects `receipts`."""

    def __init__(
        self, service: str, type: str, data: Any, endpoint: Endpoint, timeout_s: float, run: str
    ) -> None:
        self._service, self._type, self._data, self._run = service, type, data, run
        self._timeout_s = timeout_s
        self._connection = BlockingConnection(endpoint)
        self._connection.wait_connected()
        self.receipts: list[tuple[str, str | None]] = []

    def close(self) -> None:
        self._connection.close()

    def event(self, number: int, type: str = "") -> bytes:
        """Return an event of this run."""
        attributes = {"id": f"{self._run}-{number}", "source": "/conformance", "type": type or self._type}
        return write_event(attributes, self._data).json.encode()

    def publish(self, *payloads: bytes) -> None:
        """Publish to the outbox."""
        for each in payloads:
            self._connection.send(local_topic(self._service, "outbox"), each)

    def wait(self, expected: str, *receipts: tuple[bytes, str | None]) -> None:
        """Wait for receipts, each with the reason of a refusal. Raises `RuleBrokenError`."""
        wanted = [(digest(payload), refused) for payload, refused in receipts]
        deadline = monotonic() + self._timeout_s
        while not all(self.receipts.count(each) >= wanted.count(each) for each in wanted):
            message = self._connection.receive(max(0.0, deadline - monotonic()))
            if message is None:
                names = {name for name, _ in wanted}
                found = [each for each in self.receipts if each[0] in names]
                raise RuleBrokenError(expected, f"in time {len(found)} of {len(wanted)}: {found[:3]}")
            try:
                self.receipts += [(each.digest, each.refused) for each in read_receipts(message.payload)]
            except ReceiptError as error:
                raise RuleBrokenError("receipts", str(error)) from error


def _confirms(outbox: Outbox) -> None:
    payload = outbox.event(1)
    outbox.publish(payload)
    outbox.wait("a receipt of a valid event", (payload, None))


def _confirms_again(outbox: Outbox) -> None:
    payload = outbox.event(1)
    outbox.publish(payload, payload)
    outbox.wait("a receipt of each copy", (payload, None), (payload, None))


def _confirms_each(outbox: Outbox) -> None:
    payloads = [outbox.event(number) for number in range(2, 52)]
    outbox.publish(*payloads)
    outbox.wait("a receipt of each of 50 events", *((each, None) for each in payloads))


def _refuses_malformed(outbox: Outbox) -> None:
    payload = b"no JSON " + outbox.event(52)
    outbox.publish(payload)
    outbox.wait("the refusal not_json", (payload, "not_json"))


def _refuses_foreign(outbox: Outbox) -> None:
    payload = outbox.event(53, "org.eventplane.device.heartbeat.v1")
    outbox.publish(payload)
    outbox.wait("the refusal sender_not_allowed", (payload, "sender_not_allowed"))


OF_FORWARDERS: Final = (
    Requirement(11, "sends a receipt of what it has stored", _confirms),
    Requirement(12, "sends a receipt of each copy", _confirms_again),
    Requirement(13, "sends a receipt of each message", _confirms_each),
    Requirement(14, "says that it refused what is no event", _refuses_malformed),
    Requirement(14, "says that it refused what the sender may not send", _refuses_foreign),
)
"""What a forwarder has to do."""
