"""The catalogue of forged words: each is one event that its sender has no right to send.

All of them are well-formed, with a payload that passes its schema: only who sends them is wrong.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contract import load_contract
from eventplane.attributes import AttributeValue
from eventplane.contract import compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal, dead_letter
from eventplane.device_reports import (
    ACKNOWLEDGED,
    DISCARDED,
    HEARTBEAT,
    MANIFEST,
    STARTED,
    UPLINK_INTEREST_TYPE,
    UPLINK_KEY,
    forwarder_source,
)
from eventplane.envelope import Envelope, write_event
from eventplane.names import CONNECTED, DISCONNECTED, NOTICE, QUIET, RECOVERED
from lab.plane import THRESHOLD
from tests.adversary.world import ALARM, HELP, READING, THIEF, VICTIM, VOICE, new_id
from tests.integration.downlink import CONTRACT, MESSAGE

NOT_ALLOWED = "sender_not_allowed"
RESERVED = "reserved_attribute"
CLIMATE = "org.eventplane.climate.reading.v1"
VERDICT = "org.eventplane.audit.verdict.v1"

DEVICE = f"{THIEF}/"
SERVICE = f"{VICTIM}/climate-service"
MOST = "999999999999999999"
"""The largest state version that can be written."""
CONTRACT_KEY = "contract/device/care-at-home"


def without_alarms() -> dict[str, Any]:
    """The shipped contract, compiled, without a route for alarms."""
    document = json.loads(load_contract().canonical)
    everything = document["routes"]["everything-to-cloud"]
    everything["filter"] = {
        "all": [everything["filter"], {"not": {"prefix": {"type": "org.eventplane.alarm."}}}]
    }
    for route in ("alarms-to-call-service", "alarms-to-alarm-centre"):
        del document["routes"][route]
    return json.loads(compile_contract(document, "an attack").canonical)


@dataclass(frozen=True, eq=False)
class Forgery:
    """One event: what it tries (`title`), `by` whom, and the `reason` by which it should be refused."""

    title: str
    by: str
    type: str
    data: Any
    source: str = "/carers"
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    reason: str = NOT_ALLOWED

    def write(self) -> Envelope:
        """The event, with an id of its own."""
        attributes = {"id": new_id(), "source": self.source, "type": self.type, **self.attributes}
        return write_event(attributes, self.data)


def down(device: str = VICTIM, key: str = "", version: str = "1") -> dict[str, AttributeValue]:
    """The attributes of what is for a device; with a `key` it is a state."""
    state = {"statekey": key, "stateversion": version} if key else {}
    return {"todevice": device, **state}


def example(type: str, **changes: Any) -> dict[str, Any]:
    """The payload that the contract shows of a type, with `changes`."""
    schema = next(iter(load_contract().event_types[type].schemas.values()))
    return {**schema["examples"][0], **changes}


LOW = {"reading": "pulse", "high": 300}
SHUT = {"text": "Do not open the door to the nurse.", "from": "Care office"}
ALL_WELL = example(NOTICE, device=VICTIM, phase="over", title=f"{VICTIM} is back", text="All is well.")
PULSE = {"quantity": "heart_rate", "value": 72, "unit": "/min"}
VICTIMS_FORWARDER = forwarder_source(VICTIM)
WEAK = without_alarms()
NO_INTEREST = {"version": 1, "filters": [{"exact": {"type": "org.example.nothing"}}]}


def _letter(channel: str, reason: str) -> Any:
    """The data of a dead letter that is about a message on another's channel."""
    original = write_event({"id": new_id(), "source": "/carers", "type": MESSAGE, **down()}, SHUT)
    return dead_letter(
        id="1",
        source="/",
        time="2026-03-01T08:30:00Z",
        refusal=Refusal(reason, "it was refused"),
        channel=channel,
        original=original.json.encode(),
        contract_version=load_contract().version,
    ).data()


_REPORTS = {
    "an acknowledgement": ACKNOWLEDGED,
    "a heartbeat": HEARTBEAT,
    "a report that its store began anew": STARTED,
    "a manifest": MANIFEST,
    "a report of discarded events": DISCARDED,
}
_PRESENCE = {
    "is connected": CONNECTED,
    "is not connected": DISCONNECTED,
    "is quiet": QUIET,
    "is well again": RECOVERED,
}

BY_A_STOLEN_CERTIFICATE = (
    Forgery("a contract without alarm routes for every home", DEVICE, CONTRACT, WEAK, "/operations",
            down("*", CONTRACT_KEY)),
    Forgery("a contract without alarm routes, in a frame naming operations", f"{THIEF}/operations", CONTRACT,
            WEAK, "/operations", down("*", CONTRACT_KEY, "2")),
    Forgery("a state with the highest version, so that none can follow", DEVICE, THRESHOLD, LOW, "/carers",
            down(VICTIM, "threshold/home/burnt", MOST)),
    Forgery("a threshold for another home", DEVICE, THRESHOLD, LOW, "/carers",
            down(VICTIM, "threshold/home/forged")),
    Forgery("a deleted threshold in another home", DEVICE, THRESHOLD, LOW, "/carers",
            down(VICTIM, "threshold/home/gone") | {"statedelete": True}),
    Forgery("a carer's message to another home", DEVICE, MESSAGE, SHUT, "/carers", down()),
    Forgery("a carer's message to every home", DEVICE, MESSAGE, SHUT, "/carers", down("*")),
    Forgery("that the cloud wants nothing any more, for every home", DEVICE, UPLINK_INTEREST_TYPE,
            NO_INTEREST, "/operations", down("*", UPLINK_KEY)),
    *(Forgery(f"{what} in the name of another home", DEVICE, type, example(type), VICTIMS_FORWARDER)
      for what, type in _REPORTS.items()),
    *(Forgery(f"that another home {what}", DEVICE, type, example(type, device=VICTIM), "/presence-monitor")
      for what, type in _PRESENCE.items()),
    Forgery("a notice to carers that all is well", DEVICE, NOTICE, ALL_WELL, "/presence-monitor"),
    Forgery("an audit's verdict `proven`", DEVICE, VERDICT, example(VERDICT), "/audit"),
    Forgery("a dead letter in the name of the cloud's router", DEVICE, DEAD_LETTER_TYPE,
            _letter("carers.outbox", "not_json"), "/eventplane/cloud/router"),
    Forgery("a dead letter in the name of another home's router", DEVICE, DEAD_LETTER_TYPE,
            _letter("voice-service.outbox", "not_json"), f"/devices/{VICTIM}/router"),
    Forgery("a message in a frame naming the carers", f"{THIEF}/carers", MESSAGE, SHUT, "/carers", down()),
    Forgery("an alarm in a frame naming a service that is not there", f"{THIEF}/nobody", ALARM, HELP, VOICE),
    Forgery("an alarm in a frame naming the plane itself", f"{THIEF}/eventplane", ALARM, HELP, VOICE),
    Forgery("an alarm in a frame naming its climate service", f"{THIEF}/climate-service", ALARM, HELP, VOICE),
    Forgery("a type that nobody declared", DEVICE, "org.eventplane.home.unlock.v1", {}, "/carers", down()),
    Forgery("an alarm that says itself which device sent it", DEVICE, ALARM, HELP, VOICE,
            {"senderdevice": VICTIM}, RESERVED),
)  # fmt: skip

BY_A_HOSTILE_SERVICE = (
    Forgery("a call for help of the voice service", SERVICE, ALARM, HELP, VOICE),
    Forgery("a heart rate of the health service", SERVICE, READING, PULSE, f"/homes/{VICTIM}/health"),
    Forgery("a carer's message within the home", SERVICE, MESSAGE, SHUT),
    Forgery("a threshold within the home", SERVICE, THRESHOLD, LOW, "/carers",
            down(VICTIM, "threshold/home/service")),
    Forgery("a contract without alarm routes within the home", SERVICE, CONTRACT, WEAK, "/operations",
            down(VICTIM, CONTRACT_KEY, "3")),
    *(Forgery(f"{what} of its own home's forwarder", SERVICE, type, example(type), VICTIMS_FORWARDER)
      for what, type in _REPORTS.items()),
    Forgery("a notice to carers", SERVICE, NOTICE, ALL_WELL, "/presence-monitor"),
    Forgery("a dead letter of its own home's router", SERVICE, DEAD_LETTER_TYPE,
            _letter("carers.outbox", "not_json"), f"/devices/{VICTIM}/router"),
    Forgery("an event that says itself which service sent it", SERVICE, ALARM, HELP, VOICE,
            {"senderservice": "voice-service"}, RESERVED),
    Forgery("an event that says itself which device sent it", SERVICE, CLIMATE, PULSE,
            f"/homes/{VICTIM}/climate", {"senderdevice": THIEF}, RESERVED),
    Forgery("an event with numbers of the device's own, to fill a gap", SERVICE, CLIMATE, PULSE,
            f"/homes/{VICTIM}/climate", {"deviceepoch": "5f2c9a", "sequence": "1"}, RESERVED),
)  # fmt: skip

BY_A_COMPROMISED_PROGRAM = (
    Forgery("a call for help in another home's name", "family-app", ALARM, HELP, VOICE),
    Forgery("a carer's message to a home", "family-app", MESSAGE, SHUT, "/carers", down()),
    Forgery("a threshold of a carer", "care-analytics", THRESHOLD, LOW, "/carers",
            down(VICTIM, "threshold/home/analytics")),
    Forgery("a contract for every home", "carers", CONTRACT, WEAK, "/operations",
            down("*", CONTRACT_KEY, "4")),
    Forgery("what the cloud wants, for every home", "carers", UPLINK_INTEREST_TYPE, NO_INTEREST,
            "/operations", down("*", UPLINK_KEY)),
    Forgery("an acknowledgement of a home", "family-app", ACKNOWLEDGED, example(ACKNOWLEDGED),
            VICTIMS_FORWARDER),
    Forgery("a heartbeat of a home", "family-app", HEARTBEAT, example(HEARTBEAT), VICTIMS_FORWARDER),
    Forgery("a notice of the presence monitor", "family-app", NOTICE, ALL_WELL, "/presence-monitor"),
    Forgery("that a home is connected", "operations", CONNECTED, example(CONNECTED, device=VICTIM),
            "/presence-monitor"),
    Forgery("an audit's verdict `proven`", "operations", VERDICT, example(VERDICT), "/audit"),
    Forgery("a dead letter about the carers' outbox", "family-app", DEAD_LETTER_TYPE,
            _letter("carers.outbox", "not_taken"), "/family-app"),
    Forgery("a dead letter about a home's outbox", "family-app", DEAD_LETTER_TYPE,
            _letter("device.outbox", "bad_frame"), "/eventplane/cloud/router"),
    Forgery("a message that says itself which device sent it", "carers", MESSAGE, SHUT, "/carers",
            down() | {"senderdevice": VICTIM}, RESERVED),
    Forgery("a message that says itself which service sent it", "family-app", MESSAGE, SHUT, "/carers",
            down() | {"senderservice": "carers"}, RESERVED),
)  # fmt: skip

FORGERIES = BY_A_STOLEN_CERTIFICATE + BY_A_HOSTILE_SERVICE + BY_A_COMPROMISED_PROGRAM
