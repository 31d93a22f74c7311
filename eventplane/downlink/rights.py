"""Who may send down to devices, to which of them, and under which keys: the contract's word on its senders.

The cloud checks all of it before an event is kept for a device. The device checks `entry_refusal`, by its own
contract, before it stores what came.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from eventplane.contract import Contract, Downlink, ParticipantKind, Reach
from eventplane.dead_letter import Refusal
from eventplane.device_reports import DEVICE_CONTRACT
from eventplane.downlink import errors
from eventplane.envelope import Envelope
from eventplane.interest.uplink import UPLINK_INTEREST_TYPE, UPLINK_KEY
from eventplane.reasons import Reason
from eventplane.sender import SENDER_ATTRIBUTES, Sender
from eventplane.sending import SendingRights

if TYPE_CHECKING:
    # A device asks nothing of addresses.
    from eventplane.downlink.addressing import Addressed, Target

CONTRACT_KEYS: Final = "contract/device/"
"""What the keys of the states start with that give a forwarder another contract."""


class DownlinkRights:
    """The rights that `contract` gives to senders of events for devices."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._sending = SendingRights(contract)

    def entry_refusal(self, event: Envelope, kind: Downlink, key: str) -> Refusal | None:
        """Return why no device takes a stamped `event` of this `kind` under `key`; None if one may.

        Only cloud services of the contract send to devices, and the keys that steer a forwarder are for the
        types that are made for it.
        """
        sender = event.sender
        participant = self._contract.participants.get(sender.service)
        if sender.device or participant is None or participant.kind is not ParticipantKind.CLOUD_SERVICE:
            return Refusal(
                Reason.SENDER_NOT_ALLOWED,
                f"{str(sender) or 'nobody'} sent {event.type!r:.200} to devices: only cloud services of the "
                "contract may; if it is a new one, deploy the contract there first",
            )
        steers = _steering_type(key) if kind is Downlink.STATE else None
        if steers is not None and event.type != steers:
            return Refusal(
                errors.KEY_NOT_ALLOWED,
                f"{sender} sent {event.type!r:.200} under {key}, which is for {steers}; use another key",
            )
        return None

    def refusal(self, event: Envelope, wanted: Addressed, groups: Collection[str] = ()) -> Refusal | None:
        """Return why its sender may not send a stamped `event`, as `wanted` reads it, down; None if it may.

        `groups` are those of the device that it is for, where that is one.
        """
        return (
            self.entry_refusal(event, wanted.kind, wanted.key)
            or self._sending.refusal(event)
            or self._address_refusal(event.sender, wanted.target, groups)
        )

    def owner(self, name: str) -> str:
        """Return the owner of a key, which is called `name`; '' when it has left the contract."""
        return name if name in self._contract.participants else ""

    def key_refusal(self, event: Envelope, key: str, owner: str) -> Refusal | None:
        """Return why the sender of `event` may not write `key`, which belongs to `owner`; None if it may.

        Two senders share a key if the owner could send the event as well.
        """
        sender = event.sender
        if owner in ("", sender.service):
            return None
        by_owner = event.without(SENDER_ATTRIBUTES).stamped(**Sender(service=owner).attributes)
        if self._sending.refusal(by_owner) is None:
            return None
        return Refusal(
            errors.KEY_NOT_ALLOWED,
            f"{sender} sent {event.type!r:.200} under {key}, which belongs to {owner}; use another key. If "
            f"{owner} must not have it: `python -m eventplane desired reset {key}`",
        )

    def _address_refusal(self, sender: Sender, target: Target, groups: Collection[str]) -> Refusal | None:
        reach = self._contract.participants[sender.service].may_address
        if reach is Reach.EVERYONE:
            return None
        if isinstance(reach, Reach):
            is_allowed, may = target.thing is not None, "one device at a time"
        else:
            named = groups if target.thing is not None else (target.group,)
            is_allowed, may = not set(reach).isdisjoint(named), f"the groups {', '.join(reach)}"
        if is_allowed:
            return None
        return Refusal(
            errors.ADDRESS_NOT_ALLOWED,
            f"{sender} addressed {target} and may address {may}; correct the sender, or its `may_address`",
        )


def _steering_type(key: str) -> str | None:
    if key.startswith(CONTRACT_KEYS):
        return DEVICE_CONTRACT
    return UPLINK_INTEREST_TYPE if key == UPLINK_KEY else None
