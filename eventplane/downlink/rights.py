"""The contract's rights to send to devices: which senders, to which devices, under which keys.

The cloud checks all of it before it stores an event for a device. The device checks `entry_refusal`, by its
own contract, before it stores the event.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from eventplane.contract import AddressScope, Contract, Downlink, ParticipantKind
from eventplane.dead_letter import Refusal
from eventplane.device_reports import CONTRACT_KEYS, DEVICE_CONTRACT, UPLINK_INTEREST_TYPE, UPLINK_KEY
from eventplane.envelope import Envelope, Sender
from eventplane.names import SENDER_ATTRIBUTES
from eventplane.reasons import Reason
from eventplane.sending import SendingRights

if TYPE_CHECKING:
    # A device does not load it.
    from eventplane.downlink.addressing import Addressed, Target


class DownlinkRights:
    """The rights that `contract` gives to senders of events for devices."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._sending = SendingRights(contract)

    def entry_refusal(self, event: Envelope, kind: Downlink, key: str) -> Refusal | None:
        """Return why no device may take a stamped `event` of this `kind` under `key`; None if one may.

        Only cloud services of the contract send to devices, and only the types made for it may use the keys
        that configure a forwarder.
        """
        sender = event.sender
        participant = self._contract.participants.get(sender.service)
        if sender.device or participant is None or participant.kind is not ParticipantKind.CLOUD_SERVICE:
            return Refusal(
                Reason.SENDER_NOT_ALLOWED,
                f"{str(sender) or 'nobody'} sent {event.type!r:.200} to devices: only cloud services of the "
                "contract may; if it is a new one, deploy the contract there first",
            )
        required = _required_type(key) if kind is Downlink.STATE else None
        if required not in (None, event.type):
            return Refusal(
                Reason.KEY_NOT_ALLOWED,
                f"{sender} sent {event.type!r:.200} under {key}, which is for {required}; use another key",
            )
        return None

    def refusal(self, event: Envelope, wanted: Addressed, groups: Collection[str] = ()) -> Refusal | None:
        """Return why the sender of a stamped `event`, read as `wanted`, may not send it down; None if it may.

        `groups` are those of the one device that it is for, if it is for one.
        """
        return (
            self.entry_refusal(event, wanted.kind, wanted.key)
            or self._sending.refusal(event)
            or self._address_refusal(event.sender, wanted.target, groups)
        )

    def owner(self, name: str) -> str:
        """Return the owner `name` of a key, or '' if it has left the contract."""
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
            Reason.KEY_NOT_ALLOWED,
            f"{sender} sent {event.type!r:.200} under {key}, which belongs to {owner}; use another key. If "
            f"{owner} must not have it: `eventplane desired reset {key}`",
        )

    def _address_refusal(self, sender: Sender, target: Target, groups: Collection[str]) -> Refusal | None:
        reach = self._contract.participants[sender.service].may_address
        if reach is AddressScope.EVERYONE:
            return None
        if isinstance(reach, AddressScope):
            is_allowed, may = target.thing is not None, "one device at a time"
        else:
            named = groups if target.thing is not None else (target.group,)
            is_allowed, may = not set(reach).isdisjoint(named), f"the groups {', '.join(reach)}"
        if is_allowed:
            return None
        return Refusal(
            Reason.ADDRESS_NOT_ALLOWED,
            f"{sender} addressed {target} and may address {may}; correct the sender, or its `may_address`",
        )


def _required_type(key: str) -> str | None:
    if key.startswith(CONTRACT_KEYS):
        return DEVICE_CONTRACT
    return UPLINK_INTEREST_TYPE if key == UPLINK_KEY else None
