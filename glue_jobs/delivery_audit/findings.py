"""The evidence: one row for each thing worth knowing, and the hops that findings name. No Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Hop(StrEnum):
    """A stretch of the way, at the end of which somebody answers for the event. Findings name one."""

    DEVICE_INBOX = "device_inbox"
    """From the device's store to a service beside it; seen by what its manifests state."""
    DEVICE_CLOUD = "device_cloud"
    """From the device's store to acceptance by IoT Core, which is where the tap sees it."""
    IOT_RULE = "iot_rule"
    """From IoT Core's acknowledgement, by the device's word, to the rule's queues, where the tap begins."""
    ROUTER = "router"
    """From acceptance, at IoT Core or a cloud service's outbox, to the inbox."""
    INBOX_CONSUMER = "inbox_consumer"
    """From the inbox to its consumer; seen where the consumer is a webhook."""
    ARCHIVE = "archive"
    """The records themselves: what is missing, damaged or contradicts itself there accuses nobody."""


class Leg(StrEnum):
    """From where to where a latency is taken."""

    DEVICE_TO_CLOUD = "device_to_cloud"
    """From the producer's `recordedtime` to acceptance by IoT Core."""
    CLOUD_TO_INBOX = "cloud_to_inbox"
    """From acceptance, at IoT Core or a cloud service's outbox, to the destination's inbox."""
    DEVICE_TO_INBOX = "device_to_inbox"
    """All the way."""
    INBOX_TO_CONSUMER = "inbox_to_consumer"
    """From the inbox to the endpoint's answer, or to the end of trying."""


class Kind(StrEnum):
    """The kind of a finding; `findings.toml` says when each is reported."""

    LOST = "lost"
    MISROUTED = "misrouted"
    UNROUTED_DELIVERED = "unrouted_delivered"
    REORDERED = "reordered"
    FORGED = "forged"
    NOT_ALLOWED = "not_allowed"
    STALE_CONTRACT = "stale_contract"
    UNCONFIRMED = "unconfirmed"
    CAUSALITY = "causality"
    TYPE_MISMATCH = "type_mismatch"
    CONTENT_MISMATCH = "content_mismatch"
    SENDER_MISMATCH = "sender_mismatch"
    REUSED_ID = "reused_id"
    MANIFEST_MISMATCH = "manifest_mismatch"
    FOREIGN_EPOCH = "foreign_epoch"
    UNREADABLE_OBJECT = "unreadable_object"
    MISPLACED_OBJECT = "misplaced_object"
    DUPLICATE_OBJECT = "duplicate_object"
    UNATTESTED_OBJECT = "unattested_object"
    MISSING_RECORDS = "missing_records"
    ALTERED_OBJECT = "altered_object"
    NOT_UNDERSTOOD = "not_understood"
    CONTRADICTION = "contradiction"
    MISSING_MANIFEST = "missing_manifest"
    TWO_SENDERS = "two_senders"
    PUT_BACK = "put_back"
    DUPLICATE = "duplicate"
    EXPIRED = "expired"
    DROPPED = "dropped"
    DEAD_LETTERED = "dead_lettered"
    EPOCH_CHANGE = "epoch_change"
    CLOCK_SKEW = "clock_skew"
    LATE = "late"


BROKEN_KINDS: Final = (
    Kind.LOST,
    Kind.MISROUTED,
    Kind.UNROUTED_DELIVERED,
    Kind.REORDERED,
    Kind.FORGED,
    Kind.NOT_ALLOWED,
    Kind.STALE_CONTRACT,
    Kind.UNCONFIRMED,
    Kind.MISSING_MANIFEST,
    Kind.TYPE_MISMATCH,
    Kind.CONTENT_MISMATCH,
    Kind.SENDER_MISMATCH,
    Kind.REUSED_ID,
    Kind.MANIFEST_MISMATCH,
    Kind.FOREIGN_EPOCH,
    Kind.ALTERED_OBJECT,
)
"""What breaks a promise of the plane, or contradicts other evidence."""

INCOMPLETE_KINDS: Final = (
    Kind.UNREADABLE_OBJECT,
    Kind.UNATTESTED_OBJECT,
    Kind.MISSING_RECORDS,
    Kind.NOT_UNDERSTOOD,
    Kind.CONTRADICTION,
    Kind.CAUSALITY,
)
"""What leaves the proof incomplete, and accuses nobody. All other kinds are allowed, and worth knowing."""

BROKEN, INCOMPLETE, ALLOWED = "broken", "incomplete", "allowed"
"""What a finding makes of the verdict, the worst first; an allowed one changes none."""

_WEIGHTS: Final = dict.fromkeys(BROKEN_KINDS, BROKEN) | dict.fromkeys(INCOMPLETE_KINDS, INCOMPLETE)
_ORDER: Final = {BROKEN: 0, INCOMPLETE: 1, ALLOWED: 2}


def weight_of(kind: str) -> str:
    """Return what a finding of `kind` makes of the verdict: `broken`, `incomplete` or `allowed`."""
    return _WEIGHTS.get(Kind(kind), ALLOWED)


class Finding(NamedTuple):
    """One finding; None is what does not apply.

    `archive_file` is where the evidence lies, beneath the archive; `at_ms` when the event, or what tells of
    it, was accepted, Unix milliseconds.
    """

    date: str | None
    kind: str
    hop: str
    device: str | None = None
    epoch: str | None = None
    sequence: int | None = None
    source: str | None = None
    id: str | None = None
    type: str | None = None
    route: str | None = None
    destination: str | None = None
    contract_version: str | None = None
    archive_file: str | None = None
    at_ms: int | None = None
    detail: str | None = None


def worst_first(finding: Finding) -> tuple[object, ...]:
    """Return the key that sorts findings: broken promises, then missing evidence, then the rest."""
    return _ORDER[weight_of(finding.kind)], *((each is not None, each) for each in finding[1:])
