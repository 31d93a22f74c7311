"""Events for devices, and the few lines that bring them to an item."""

from dataclasses import replace
from typing import Any

from eventplane.contract import Downlink
from eventplane.downlink.addressing import Addressed, addressed
from eventplane.downlink.desired import Desired
from eventplane.downlink.device import Acknowledgement, rejected, stored
from eventplane.downlink.transitions import Transition, acknowledge, apply_event, connected
from eventplane.downlink.wire import Incoming, received
from eventplane.envelope import Envelope, parse_event, write_event

THING = "home-1"
KEY = "threshold/health/pulse"
NOW_MS = 1_767_225_600_000
S = 1_000
EPOCH = "first-life"


def event(id: str, data: Any = None, **attributes: Any) -> Envelope:
    """An event of a cloud service for `THING`."""
    return write_event(
        {
            "id": id,
            "source": "/services/care",
            "type": "org.example.threshold.v1",
            "todevice": THING,
            "senderservice": "care",
            **attributes,
        },
        data,
    )


def state(version: int, uid: str = "", id: str = "", **attributes: Any) -> Addressed:
    """A version of the state of `KEY`; its data is its version."""
    names = {
        "statekey": KEY,
        "stateversion": str(version),
        **({"stateuid": uid} if uid else {}),
        **attributes,
    }
    return addressed(event(id or f"{uid}{version}", version, **names), Downlink.STATE, NOW_MS)


def deletion(version: int, uid: str = "") -> Addressed:
    """The tombstone of `KEY`."""
    return state(version, uid, f"delete-{uid}{version}", statedelete=True)


def command(
    id: str,
    version: int,
    key: str = "lock/door/front",
    expires_at_ms: int | None = None,
    **attributes: Any,
) -> Addressed:
    """A command for a key."""
    names = {"statekey": key, "stateversion": str(version), **attributes}
    wanted = addressed(event(id, id, **names), Downlink.COMMAND, NOW_MS)
    return replace(wanted, message=replace(wanted.message, expires_at_ms=expires_at_ms))


def wanted(*all_of_them: Addressed, is_present: bool = True, now_ms: int = NOW_MS) -> Transition:
    """The last step after these came one after the other."""
    step = Transition(None)
    for each in all_of_them:
        step = apply_event(step.item, THING, each, now_ms, is_present)
    return step


def sent(*all_of_them: Addressed) -> Transition:
    """The step by which a device that was away gets what these left."""
    return connected(item_of(wanted(*all_of_them, is_present=False)), NOW_MS)


def item_of(step: Transition) -> Desired:
    """The item that a step leaves."""
    assert step.item is not None
    return step.item


def incoming(step: Transition) -> Incoming:
    """What a step publishes, as the device reads it."""
    assert step.publish is not None
    return received(parse_event(step.publish))


def confirmed(step: Transition, now_ms: int = NOW_MS, ack: Acknowledgement | None = None) -> Transition:
    """The step after the device has stored what `step` publishes."""
    return acknowledge(item_of(step), ack or stored(incoming(step)), EPOCH, now_ms, is_present=True)


def refused(step: Transition, reason: str = "too_many_keys") -> Transition:
    """The step after the device has rejected what `step` publishes."""
    return confirmed(step, ack=rejected(incoming(step), reason, "it has no room"))
