"""The content of a certificate: steps and ends of an event, the objects that prove them, the verdict."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from eventplane.account import OPEN
from eventplane.archive_layout import inventory_name, report_name, verdict_name
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.ledger import CONTRACTS
from eventplane.sending import without_stamp
from eventplane.values import MAX_TIME_MS, is_timestamp, timestamp_ms, timestamp_of_ms, whole_number
from operations.certificate import sha256
from operations.stations import Station
from operations.trace import Trace

_CLOCKS: Final = {
    "said": "the event's source",
    "stored": "the device",
    "sent": "IoT Core",
    "routed": "the router",
    "rang": "IoT Core, when the device's report came",
    "taken": "the reader",
}
"""Whose clock tells the time of a step."""

_UNREADABLE: Final = (
    *(EnvelopeError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError, EOFError),
    zlib.error,
)

Read = Callable[[str], bytes | None]
"""Returns what lies beneath the audit's folder, None for a name that does not exist."""


class NotCertifiedError(EventPlaneError):
    """No certificate can be written of an event."""

    problem: str
    remedy: str
    message = "no certificate: {problem}; {remedy}"


def document_of(
    trace: Trace, archive: Read, audit: Read, at_ms: int, damaged: Collection[str], *, incomplete: bool
) -> dict[str, Any]:
    """Return the members of the certificate of an event, for `operations.certificate.sign`.

    The objects `damaged` could not be read to their end. Raises `NotCertifiedError`, also where an end is not
    known, unless that is accepted (`incomplete`).
    """
    event = trace.event
    if event is None:
        raise NotCertifiedError("the tap does not have the event", "see `eventplane trace`")
    unknown = [*trace.missing, *trace.unknown_ends]
    unknown += [f"{each.inbox}: {each}" for each in trace.accounts if each.fate in OPEN]
    if unknown and not incomplete:
        raise NotCertifiedError(
            f"an end is not known: {'; '.join(unknown)}", "wait, or accept it by --incomplete"
        )
    steps = [*_said(event), *trace.stations]
    names = {each.file for each in steps if each.file} | {f"{CONTRACTS}/{trace.contract_version}.json"}
    found = {name: body for name in sorted(names) if (body := archive(name)) is not None}
    verdict, skew_ms, more = _verdict(found, audit, trace, event.sender.device)
    more += [f"what else {name} had: it could not be read to its end" for name in sorted(damaged)]
    words = {each.step for each in steps}
    more += [f"when it was {word}: no record says so" for word in ("said", "stored") if word not in words]
    return {
        "issued_at_ms": at_ms,
        "event": {
            "source": event.source,
            "id": event.id,
            "type": event.type,
            "sender": trace.sender,
            "trace_id": trace.trace_id,
            "digest": sha256(without_stamp(event).json.encode()),
        },
        "contract": trace.contract_version,
        "steps": [
            {
                "step": each.step or "beside the way",
                "at_ms": each.at_ms,
                "clock": _CLOCKS.get(each.step, ""),
                "where": each.where,
                "what": str(each.what),
                "facts": dict(each.facts),
                "evidence": each.file,
            }
            for each in steps
        ],
        "accounts": [each.document() for each in trace.accounts],
        "is_complete": not unknown,
        "unknown": [*unknown, *more],
        "clocks": [
            {
                "clock": event.sender.device or trace.sender,
                "ahead_ms": skew_ms,
                "by": verdict and verdict["report"],
            }
        ],
        "evidence": {name: sha256(body) for name, body in found.items()},
        "verdict": verdict,
    }


def _said(event: Envelope) -> Iterator[Station]:
    time = event.attributes.get("time")
    if isinstance(time, str) and is_timestamp(time):
        yield Station(timestamp_ms(time), "source", "said", {}, step="said")


def _verdict(
    found: dict[str, bytes], audit: Read, trace: Trace, device: str
) -> tuple[dict[str, Any] | None, int | None, list[str]]:
    """Return the verdict on the event's day or on all, how far `device`'s clock is ahead, what is unknown.

    Raises `NotCertifiedError` where evidence contradicts the verdict's inventory.
    """
    sent = next((each.at_ms for each in trace.stations if each.step == "sent"), 0)
    for window in (day := timestamp_of_ms(sent)[:10], "all"):
        if (body := audit(verdict_name(window))) is None:
            continue
        try:
            event = parse_event(body)
            data = event.data()
            chain, number = data["chain"], data["revision"]["number"]
            report = audit(report_name(window, number)) or b""
            packed = audit(inventory_name(window, chain["inventory"])) or b""
            inventory = gzip.decompress(packed)
            listed = {name: str(each) for name, each in json.loads(inventory)["objects"].items()}
            is_whole = [_digest(report), _digest(inventory)] == [chain["report"], chain["inventory"]]
            skews = {row["client_id"]: row.get("skew_ms") for row in json.loads(report)["devices"]}
            skew = skews.get(device)
            if skew is not None:
                skew = whole_number(skew, MAX_TIME_MS, -MAX_TIME_MS)
            cited = {
                "verdict": str(data["verdict"]),
                "window": window,
                "revision": number,
                "event": event.id,
                "time": str(event.attributes["time"]),
                "digest": sha256(body.strip()),
                **{each: chain[each] for each in ("report", "inventory", "before", "begins")},
            }
        except _UNREADABLE as error:
            raise NotCertifiedError(
                f"the verdict on {window} cannot be read: {error!r}", "audit it again"
            ) from error
        if not is_whole:
            raise NotCertifiedError(
                f"report or inventory of {window} do not fit the verdict", "audit it again"
            )
        unlisted = [name for name, each in found.items() if not _is_listed(name, each, listed)]
        why = "altered before it was signed: the verdict does not list it"
        more = [f"whether {name} was {why}" for name in unlisted]
        return cited, skew, more + ([] if skew is not None else ["how far the device's clock was ahead"])
    why = f"no audit of {day}, or of all days, has judged them"
    return None, None, [f"whether the records were altered before they were signed: {why}"]


def _is_listed(name: str, body: bytes, listed: dict[str, str]) -> bool:
    """Return whether an inventory lists this content. Raises `NotCertifiedError` for another one."""
    kind, _, digest = listed.get(name, "").partition(":")
    if kind == "sha256" and digest != _digest(body):
        raise NotCertifiedError(
            f"{name} is not what the audit read", "run the audit again: it reports an alteration"
        )
    # An ETag is the MD5 of the object, unless it came in parts or a key of the account encrypts it.
    return kind == "sha256" or digest == hashlib.md5(body, usedforsecurity=False).hexdigest()


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
