"""What a device says of the events it got: one CloudEvent for as many as came together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from eventplane.contract import Downlink
from eventplane.device_reports import REPORT_PREFIX
from eventplane.downlink.errors import AcknowledgementError
from eventplane.downlink.wire import Incoming, is_key, number
from eventplane.limits import MAX_DETAIL_CHARACTERS

ACKNOWLEDGED: Final = REPORT_PREFIX + "acknowledged.v1"
"""The type of the event. Its source is the forwarder's, as of every report."""

OLDER: Final = "older"
"""Why a device rejects what it holds something newer of. It counts only where the cloud lost its table."""


_TEXTS: Final = ("key", "uid", "sender", "source", "id", "reason", "detail")


class Result(StrEnum):
    """What a device did with an event: it is safe there, or it never will be."""

    STORED = "stored"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """One answer of a device. `sender`, `source` and `id` are those of the event that it got."""

    kind: Downlink
    key: str
    uid: str
    version: int
    order: int
    fence: int
    sender: str
    source: str
    id: str
    result: Result
    reason: str = ""
    detail: str = ""


def stored(incoming: Incoming) -> Acknowledgement:
    """`incoming` is safe on the device: committed now, or already there."""
    return _answer(incoming, Result.STORED)


def rejected(incoming: Incoming, reason: str, detail: str) -> Acknowledgement:
    """The device will never take `incoming`: a stable `reason` word, a `detail` for people."""
    return _answer(incoming, Result.REJECTED, reason, detail[:MAX_DETAIL_CHARACTERS])


def _answer(incoming: Incoming, result: Result, reason: str = "", detail: str = "") -> Acknowledgement:
    return Acknowledgement(
        kind=incoming.kind,
        key=incoming.key,
        uid=incoming.uid,
        version=incoming.version,
        order=incoming.order,
        fence=incoming.fence,
        sender=incoming.sender,
        source=incoming.source,
        id=incoming.id,
        result=result,
        reason=reason,
        detail=detail,
    )


def to_data(acknowledgements: Iterable[Acknowledgement], epoch: str) -> dict[str, Any]:
    """The data of the event, written in the device's `epoch`."""
    return {"acknowledged": [_to_document(each) for each in acknowledgements], "epoch": epoch}


def from_data(data: object) -> tuple[tuple[Acknowledgement, ...], str]:
    """The answers in the data of such an event, and the device's epoch. Raises `AcknowledgementError`."""
    if not isinstance(data, Mapping):
        raise AcknowledgementError("its data is no object")
    epoch, listed = data.get("epoch"), data.get("acknowledged")
    if not isinstance(epoch, str) or not epoch:
        raise AcknowledgementError(f"epoch is {epoch!r:.100}")
    if not isinstance(listed, list):
        raise AcknowledgementError("`acknowledged` is no list")
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
    if each.result is Result.REJECTED:
        document |= {"reason": each.reason, "detail": each.detail}
    return document


def _from_document(at: int, document: object) -> Acknowledgement:
    if not isinstance(document, Mapping):
        raise AcknowledgementError(f"acknowledged[{at}] is no object")
    texts = {name: document.get(name, "") for name in _TEXTS}
    numbers = {name: number(document.get(name, 0)) for name in ("version", "order", "fence")}
    for name, text in texts.items():
        if not isinstance(text, str) or (name in ("source", "id") and not text):
            raise AcknowledgementError(f"acknowledged[{at}].{name} is {text!r:.100}")
    if not is_key(texts["key"]):
        raise AcknowledgementError(f"acknowledged[{at}].key is {texts['key']!r:.350}")
    for name, read in numbers.items():
        if read is None:
            raise AcknowledgementError(f"acknowledged[{at}].{name} is {document.get(name)!r:.100}")
    try:
        kind, result = Downlink(document.get("kind", "")), Result(document.get("result", ""))
    except ValueError as error:
        raise AcknowledgementError(f"acknowledged[{at}]: {error}") from error
    return Acknowledgement(
        kind=kind,
        result=result,
        version=numbers["version"] or 0,
        order=numbers["order"] or 0,
        fence=numbers["fence"] or 0,
        **texts,
    )


class Verdict(StrEnum):
    """APPLY: store it, then answer `stored`. DUPLICATE: it is there, answer `stored` again.

    OLDER: something newer is there; drop it, answer `rejected`, reason `acknowledgements.OLDER`.
    """

    APPLY = "apply"
    DUPLICATE = "duplicate"
    OLDER = "older"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVersion:
    """What a device remembers of a key: the last state, tombstones too, or the last of its commands."""

    reset: int
    version: int
    is_deleted: bool
    order: int
    sender: str
    source: str
    id: str


def state_version(incoming: Incoming) -> StateVersion:
    """What to remember of `incoming` once it is applied."""
    return StateVersion(
        reset=incoming.reset,
        version=incoming.version,
        is_deleted=incoming.is_deleted,
        order=incoming.order,
        sender=incoming.sender,
        source=incoming.source,
        id=incoming.id,
    )


def receive(before: StateVersion | None, incoming: Incoming) -> Verdict:
    """What to do with `incoming`, of whose key and kind the device holds `before`.

    What came after a reset of the key's versions is newer than all before it. Two states of one version are
    told apart as in the cloud: the tombstone is newer, then the greater id.
    """
    if before is None:
        return Verdict.APPLY
    if incoming.kind is Downlink.COMMAND:
        if incoming.order == before.order:
            return Verdict.DUPLICATE
        return Verdict.APPLY if incoming.order > before.order else Verdict.OLDER
    mine, offered = _rank(before), _rank(incoming)
    if offered == mine:
        return Verdict.DUPLICATE
    return Verdict.APPLY if offered > mine else Verdict.OLDER


def _rank(state: StateVersion | Incoming) -> tuple[int, int, bool, str, str, str]:
    return state.reset, state.version, state.is_deleted, state.id, state.source, state.sender
