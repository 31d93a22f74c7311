"""The compiled form of a contract: canonical JSON with a content hash, how programs load it, and why not.

What is loaded was checked when it was compiled. Here only its form is: a damaged or foreign text is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from eventplane.contract import (
    REPLIES,
    AddressScope,
    Channel,
    Contract,
    DeliveryGuarantee,
    Downlink,
    EventType,
    Forward,
    Ordering,
    Participant,
    ParticipantKind,
    Place,
    Priority,
    Route,
    SchemaCheck,
    Transport,
    Webhook,
    WebhookMode,
    WhenFull,
)
from eventplane.errors import EventPlaneError
from eventplane.filters import Any as AnyOf
from eventplane.filters import from_document
from eventplane.limits import UNSETTLED

FORMAT: Final = 9
"""The newest version of the document's own format, compiled or written by people."""

OLDEST_FORMAT: Final = 2
"""The oldest version that is read: 0.3.0 compiled to 2 to 8."""

VERSION_LENGTH = 16
"""Hexadecimal digits of the content hash that name a contract: 64 bits."""

REPLY_RETENTION_S: Final = 600
"""How long a reply is kept for the asker, seconds: twice what a request waits by default."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: where it is (`routes.alarms.to`), what it is, and what to do.

    `excerpt` shows the place in a longer text, with a caret under it; '' where the path is enough.
    """

    path: str
    message: str
    remedy: str
    excerpt: str = ""

    def __str__(self) -> str:
        lines = (f"{self.path}: {self.message}; {self.remedy}", *self.excerpt.splitlines())
        return "\n      ".join(lines)


class ContractError(EventPlaneError):
    """A contract cannot be used. `origin` names the file, `problems` are all the faults found in it."""

    origin: str
    problems: Sequence[Problem]
    message = "{origin}: {count} problem(s)\n{lines}"

    @property
    def count(self) -> int:
        return len(self.problems)

    @property
    def lines(self) -> str:
        return "\n".join(f"  {each}" for each in self.problems)

    @property
    def line(self) -> str:
        """The first problem, in one line with the file and the remedy, and how many others there are."""
        first, *others = self.problems
        more = (
            f" (and {len(others)} more: eventplane contract check --contract {self.origin})" if others else ""
        )
        return f"{self.origin}: {first.path}: {first.message}; {first.remedy}{more}"


class ContractFormatError(ContractError):
    """A contract is of the format `found`, which is newer than `readable`, the newest this program knows."""

    def __init__(self, origin: str, found: int, readable: int) -> None:
        self.found = found
        self.readable = readable
        message = f"format {found} is newer than this program, which reads up to format {readable}"
        remedy = "update the program, or compile the contract again with the version of it that runs here"
        super().__init__(origin, [Problem("format", message, remedy)])


def canonical_bytes(document: object) -> bytes:
    """Return `document` as JSON that depends on its content only. Raises ValueError for lone surrogates."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def refuse_newer(found: object, origin: str) -> None:
    """Raise `ContractFormatError` if the format `found` in a document is newer than this program."""
    if isinstance(found, int) and found > FORMAT:
        raise ContractFormatError(origin, found, FORMAT)


def load_compiled(compiled: bytes | str, origin: str = "compiled contract") -> Contract:
    """Return the contract of a canonical form, with the version it was compiled with.

    The version is the hash of the text: settings of later formats have their defaults in the contract, and do
    not change the version of an old one. Raises `ContractError` when it is damaged,
    `ContractFormatError` when a newer program wrote it.
    """
    try:
        document = json.loads(compiled)
        canonical = canonical_bytes(document)
    except (ValueError, RecursionError) as error:
        raise ContractError(origin, [Problem("(document)", f"not JSON: {error}", _REMEDY)]) from error
    loading = _Loading()
    refuse_newer(document.get("format") if isinstance(document, dict) else None, origin)
    try:
        return loading.contract(document, canonical)
    except (EventPlaneError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ContractError(origin, [Problem(loading.path, f"it is damaged: {said}", _REMEDY)]) from error


def contract_of(
    name: str,
    participants: Mapping[str, Participant],
    event_types: Mapping[str, EventType],
    routes: tuple[Route, ...],
    canonical: bytes,
) -> Contract:
    """Return the contract of these parts, whose `canonical` form gives its version."""
    maps = MappingProxyType(participants), MappingProxyType(event_types)
    version = hashlib.sha256(canonical).hexdigest()[:VERSION_LENGTH]
    return Contract(name, version, canonical, *maps, routes)


def replies_channel(participant: str, kind: ParticipantKind) -> Channel:
    """Return the channel of replies to `participant`, which has no settings."""
    is_on_device = kind is ParticipantKind.DEVICE_SERVICE
    return Channel(
        participant,
        REPLIES,
        Transport.MQTT if is_on_device else Transport.SQS,
        DeliveryGuarantee.AT_LEAST_ONCE,
        Priority.NORMAL,
        Ordering.NONE,
        batching_delay_ms=0,
        retention_s=REPLY_RETENTION_S,
        max_receives=UNSETTLED,
        # Mosquitto acknowledges from memory: a reply that it lost is repeated while somebody may wait.
        receipts=is_on_device,
        expiry_s=REPLY_RETENTION_S if is_on_device else None,
    )


def place_of(box: str, kind: ParticipantKind) -> Place:
    """Return where routes to a `box` of a participant of `kind` are decided: at the router that writes it."""
    is_downlink = kind is ParticipantKind.DEVICE and box == "inbox"
    return Place.CLOUD if is_downlink or kind is ParticipantKind.CLOUD_SERVICE else Place.DEVICE


_REMEDY: Final = "compile the contract again"


def _exactly(kind: type[_Value]) -> Callable[[object], _Value]:
    def read(value: object) -> _Value:
        if value.__class__ is not kind:
            raise TypeError(f"{value!r:.100} is no {kind.__name__}")
        return value

    return read


_text, _whole, _flag = _exactly(str), _exactly(int), _exactly(bool)
_list: Callable[[object], list[Any]] = _exactly(list)
_mapping: Callable[[object], dict[str, Any]] = _exactly(dict)


_TRANSPORTS: Final = frozenset(map(str, Transport))


def _transport(value: str) -> Transport | str:
    return Transport(value) if value in _TRANSPORTS else _text(value)


def _texts(value: list[str]) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


_MEMBERS: Final[Mapping[str, Callable[[Any], object]]] = {
    **dict.fromkeys(("description", "to"), _text),
    **dict.fromkeys(("receipts", "retired"), _flag),
    **dict.fromkeys(("sends", "asks"), _texts),
    **dict.fromkeys(("inbox", "outbox", "webhook", "mappings"), _mapping),
    **dict.fromkeys(
        ("expiry_s", "batching_delay_ms", "retention_s", "max_receives", "give_up_after_s"), _whole
    ),
    **dict.fromkeys(("events_per_message", "receipts_percent", "timeout_s", "requests_per_minute"), _whole),
    **dict.fromkeys(("filter", "may_subscribe"), from_document),
    "kind": ParticipantKind,
    "transport": _transport,
    "delivery_guarantee": DeliveryGuarantee,
    "priority": Priority,
    "ordering": Ordering,
    "when_full": WhenFull,
    "downlink": Downlink,
    "forward": Forward,
    "mode": WebhookMode,
    "may_address": lambda value: AddressScope(value) if isinstance(value, str) else _texts(value),
    "schema_check": SchemaCheck,
    "schemas": _list,
    "interest": lambda value: AnyOf(tuple(map(from_document, _list(value)))),
}
"""What makes the value of each member; a name means the same wherever it is."""


def _values(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `members`. As in what people write, null is no value."""
    if unknown := sorted(members.keys() - _MEMBERS.keys()):
        raise ValueError(f"{', '.join(unknown)} is unknown")
    return {name: _MEMBERS[name](value) for name, value in members.items() if value is not None}


class _Loading:
    """Loads one document; `path` is what it is at."""

    path = "(document)"

    def contract(self, document: dict[str, Any], canonical: bytes) -> Contract:
        """Return the contract of a `document`. Raises many errors if it is none."""
        if unknown := document.keys() - {"format", "name", "participants", "event_types", "routes"}:
            raise ValueError(f"{', '.join(sorted(unknown))} is unknown")
        name, participants = _text(document["name"]), self._each("participants", document, _participant)
        event_types = self._each("event_types", document, _event_type)
        routes = self._each("routes", document, partial(_route, participants=participants))
        devices = [each for each in participants.values() if each.kind is ParticipantKind.DEVICE]
        if len(devices) != 1 or _whole(document["format"]) < OLDEST_FORMAT or not routes:
            raise ValueError(f"it needs a format of {OLDEST_FORMAT} or later, one device and a route")
        return contract_of(name, participants, event_types, tuple(routes.values()), canonical)

    def _each(
        self, section: str, document: dict[str, Any], load: Callable[[str, Any], _Value]
    ) -> dict[str, _Value]:
        found = {}
        # By name, like everything in the canonical form: the written order has no meaning.
        for name, members in sorted(_mapping(document[section]).items()):
            self.path = f"{section}.{name}"
            found[name] = load(name, members)
        self.path = "(document)"
        return found


def _participant(name: str, members: dict[str, Any]) -> Participant:
    values = _values(members)
    values |= {box: _channel(name, box, values[box]) for box in ("inbox", "outbox")}
    replies = replies_channel(name, values["kind"]) if values.get("asks") else None
    if mappings := values.get("mappings"):
        from eventplane.contract.mapping import load  # which few contracts need

        values["mappings"] = tuple(load(name, *each) for each in sorted(mappings.items()))
    return Participant(name, replies=replies, **values)


def _channel(participant: str, box: str, members: dict[str, Any]) -> Channel:
    values = _values(members)
    if hook := values.pop("webhook", None):
        hook = _values(hook)
        values |= {"give_up_after_s": hook.pop("give_up_after_s"), "webhook": Webhook(**hook)}
    return Channel(participant, box, **values)


def _event_type(name: str, members: dict[str, Any]) -> EventType:
    values = _values(members)
    return EventType(name, schemas={each["$id"]: each for each in values.pop("schemas", [])}, **values)


def _route(name: str, members: dict[str, Any], participants: Mapping[str, Participant]) -> Route:
    values = _values(members)
    address = values.pop("to")
    owner, _, box = address.partition(".")
    target = participants.get(owner)
    if target is None or box not in [each.box for each in target.channels]:
        raise ValueError(f"there is no channel {address!r}")
    return Route(name, destination=address, place=place_of(box, target.kind), **values)
