"""The events that a smoke test sends, chosen from the plane's contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from contract.loader import check_payload
from contract.offers import offers
from eventplane.contract import Contract, ParticipantKind, Priority
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.sending import stamp_sender
from operations.trace import due_inboxes
from parts.probe.alarms import NotInContractError

_LACKS: Final = {
    "event": "no event of a device service that is not urgent and has a cloud service's inbox to go to",
    "alarm": "no urgent event of a device service that has a cloud service's inbox to go to",
    "command": "no event that a cloud service sends to devices",
    "forged": "no event that a cloud service sends",
}


class Sample(NamedTuple):
    """An `event` to send as `sender`, a service of the device or of the cloud."""

    sender: str
    event: Envelope


class Samples:
    """The events of the run `name`: at most one each of `event`, `alarm`, `command` and `forged`."""

    def __init__(self, contract: Contract, name: str) -> None:
        self._contract = contract
        self._name = name
        self.found: dict[str, Sample] = {}
        for what, sender, attributes in self._offered():
            if what not in self.found:
                self.found[what] = Sample(sender, self._marked(what, attributes))

    def of(self, what: str) -> Sample:
        """Return the event called `what`. Raises `NotInContractError`."""
        if what not in self.found:
            raise NotInContractError(_LACKS[what])
        return self.found[what]

    def _offered(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield what each offer can be, its sender, and the event's attributes and data."""
        for each in offers(self._contract, self._name):
            kind, attributes = self._contract.participants[each.sender].kind, dict(each.event)
            if each.problem:
                continue
            if kind is ParticipantKind.DEVICE_SERVICE and "todevice" not in attributes:
                sent = stamp_sender(self._event("", attributes), Sender(self._name, each.sender))
                if due_inboxes(sent, self._contract):
                    yield "alarm" if each.priority is Priority.URGENT else "event", each.sender, attributes
            elif kind is ParticipantKind.CLOUD_SERVICE and "statekey" not in attributes:
                if "todevice" in attributes:
                    yield "command", each.sender, attributes
                # To itself, if to a device: even if nobody refused it, no home would get it.
                yield "forged", each.sender, attributes

    def _event(self, what: str, attributes: dict[str, Any]) -> Envelope:
        named = {**attributes, "id": f"{self._name}-{what}"}
        return write_event(named, named.pop("data"))

    def _marked(self, what: str, attributes: dict[str, Any]) -> Envelope:
        """Return the event, whose first text of any length says to people that it is a test."""
        data = attributes["data"]
        for name, value in data.items() if isinstance(data, dict) else ():
            words = f"smoke test {self._name}, nobody needs help"
            marked = self._event(what, {**attributes, "data": {**data, name: words}})
            if isinstance(value, str) and check_payload(self._contract, marked) is None:
                return marked
        return self._event(what, attributes)
