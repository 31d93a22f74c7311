"""Handle events from the cloud on a device, and acknowledge them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from eventplane.contract import Downlink
from eventplane.downlink.wire import Incoming, read_key, read_version
from eventplane.errors import EventPlaneError
from eventplane.limits import MAX_DETAIL_CHARACTERS


class AcknowledgementError(EventPlaneError):
    """An event is not an acknowledgement; `detail` says why."""

    detail: str
    message = "{detail}; the device's software writes it, compare its version with the cloud's"


class Recency(StrEnum):
    """The order between an event and what the device holds under its key.

    NEWER: store it, then answer `stored`. DUPLICATE: it is stored already, answer `stored` again. OLDER: drop
    it, answer `rejected` with `Reason.OLDER`.
    """

    NEWER = "newer"
    DUPLICATE = "duplicate"
    OLDER = "older"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVersion:
    """The device's memory of a key: the last state, tombstones too, or the last of its commands."""

    reset: int
    version: int
    is_deleted: bool
    order: int
    sender: str
    source: str
    id: str


def state_version(incoming: Incoming) -> StateVersion:
    """Return what to remember of `incoming` once it is applied."""
    return StateVersion(**_members(incoming, StateVersion.__slots__))


def compare(held: StateVersion | None, incoming: Incoming) -> Recency:
    """Compare `incoming` with what the device holds of its key and kind.

    An event from after a reset of the key's versions is newer than all from before it. Of two states of one
    version the tombstone is newer, then the greater id, as in the cloud.
    """
    if held is None:
        return Recency.NEWER
    of_held, of_incoming = _rank(held, incoming.kind), _rank(incoming, incoming.kind)
    if of_incoming == of_held:
        return Recency.DUPLICATE
    return Recency.NEWER if of_incoming > of_held else Recency.OLDER


def _rank(each: StateVersion | Incoming, kind: Downlink) -> tuple[int | str, ...]:
    if kind is Downlink.COMMAND:
        return (each.order,)
    return each.reset, each.version, each.is_deleted, each.id, each.source, each.sender


class AckStatus(StrEnum):
    """The result of an event on a device: it was stored, or will never be taken."""

    STORED = "stored"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The answer of a device to one event, whose `sender`, `source` and `id` it repeats."""

    kind: Downlink
    key: str
    uid: str
    version: int
    order: int
    fence: int
    sender: str
    source: str
    id: str
    result: AckStatus
    reason: str = ""
    detail: str = ""


_OF_EVENT: Final = ("kind", "key", "uid", "version", "order", "fence", "sender", "source", "id")


def stored(incoming: Incoming) -> Acknowledgement:
    """Answer that `incoming` is stored on the device: committed now, or before."""
    return Acknowledgement(**_members(incoming, _OF_EVENT), result=AckStatus.STORED)


def rejected(incoming: Incoming, reason: str, detail: str) -> Acknowledgement:
    """Answer that the device will never take `incoming`: a stable `reason` word, a `detail` for people."""
    return Acknowledgement(
        **_members(incoming, _OF_EVENT),
        result=AckStatus.REJECTED,
        reason=reason,
        detail=detail[:MAX_DETAIL_CHARACTERS],
    )


def _members(incoming: Incoming, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(incoming, name) for name in names}


def to_data(acknowledgements: Iterable[Acknowledgement], epoch: str) -> dict[str, Any]:
    """Return the data of the event that carries `acknowledgements`, written in the device's `epoch`."""
    return {"acknowledged": [_to_document(each) for each in acknowledgements], "epoch": epoch}


def from_data(data: object) -> tuple[tuple[Acknowledgement, ...], str]:
    """Read the acknowledgements in the data of such an event, and the device's epoch.

    Raises `AcknowledgementError`.
    """
    if not isinstance(data, Mapping):
        raise AcknowledgementError("its data is not an object")
    epoch, listed = data.get("epoch"), data.get("acknowledged")
    if not isinstance(epoch, str) or not epoch:
        raise AcknowledgementError(f"epoch is {epoch!r:.100}")
    if not isinstance(listed, list):
        raise AcknowledgementError("`acknowledged` is not a list")
    return tuple(_from_document(at, each) for at, each in enumerate(listed)), epoch


def _to_document(each: Acknowledgement) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": each.kind.value,
        "key": each.key,
        "uid": each.uid,
        # Beyond 53 bits many readers of JSON lose digits.
        "version": str(each.version),
        "fence": str(each.fence),
        "sender": each.sender,
        "source": each.source,
        "id": each.id,
        "result": each.result.value,
    }
    if each.kind is Downlink.COMMAND:
        document["order"] = str(each.order)
    if each.result is AckStatus.REJECTED:
        document |= {"reason": each.reason, "detail": each.detail}
    return document


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("not a text")


def _name(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError("not a text, or empty")


_MEMBERS: Final[Mapping[str, tuple[Callable[[Any], object], object]]] = {
    "kind": (Downlink, None),
    "key": (read_key, None),
    "uid": (_text, ""),
    "version": (read_version, 0),
    "order": (read_version, 0),
    "fence": (read_version, 0),
    "sender": (_text, ""),
    "source": (_name, None),
    "id": (_name, None),
    "result": (AckStatus, None),
    "reason": (_text, ""),
    "detail": (_text, ""),
}
"""How a member of an acknowledgement is read, and its value where it is absent."""


def _from_document(at: int, document: object) -> Acknowledgement:
    if not isinstance(document, Mapping):
        raise AcknowledgementError(f"acknowledged[{at}] is not an object")
    members: dict[str, Any] = {}
    for name, (read, default) in _MEMBERS.items():
        value = document.get(name, default)
        try:
            members[name] = read(value)
        except ValueError as error:
            raise AcknowledgementError(f"acknowledged[{at}].{name} is {value!r:.350}") from error
    return Acknowledgement(**members)
