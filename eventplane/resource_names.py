"""The names of the plane's resources in AWS: the convention of stacks and tools.

Every name starts with the project and the environment, so that whoever looks after it finds all of it.
"""

from __future__ import annotations

from typing import Final

from eventplane.contract import Channel, Transport
from eventplane.errors import EventPlaneError

PROJECT: Final = "eventplane"
"""What all names of resources start with."""

OWNER: Final = f"/{PROJECT}/environment"
"""The parameter of Systems Manager that names the environment of an account's region. It has one: things,
certificates, client ids and topics of AWS IoT belong to the account's region, and name no environment."""

RETIRED_OUTPUT: Final = "RetiredParticipants"
"""The output that names the participants to which no deployed router writes any more, with commas."""

RECEIPTS_OUTPUT: Final = "InboxesWithReceipts"
"""The output that names the inboxes whose readers have a queue for their receipts, with commas."""

INGEST: Final = "ingest"
"""The queue from the IoT rule to the router."""

URGENT_INGEST: Final = "ingest-urgent"
"""The queue from the urgent IoT rule to a router of its own, so that nothing is ever before an alarm."""

LEDGER_QUEUE: Final = "ledger"
"""The queue from whoever decides to the ledger writer."""

DELIVERY_AUDIT: Final = "delivery-audit"
"""The job that audits a day that is over."""

AUDIT_TODAY: Final = "audit-today"
"""The job that audits the day so far, where an environment has it."""

COMPACTION, ERASURE = "compaction", "erasure"
"""The jobs that may change the archive, and their roles."""

ANY: Final = "*"
"""Stands for what the names of an environment's queues end in. In the settings of a router it is also the
source of one that reads several outboxes, and the inbox whose URL is the pattern of all others."""

FIFO_SUFFIX: Final = ".fifo"
"""What SQS wants at the end of a FIFO queue's name."""

REPLIES_SUFFIX: Final = "-replies"
"""What the names of queues for replies end with."""

RECEIPTS_SUFFIX: Final = "-receipts"
"""What the names of queues for readers' receipts end with, behind the participant's."""

_DEAD_LETTERS: Final = "-dlq"


class OtherPlaneError(EventPlaneError):
    """The account's region has the plane of the environment `owner`, and so none of `environment`."""

    owner: str
    environment: str
    message = (
        "nothing was done: all devices of this account and region are those of the plane {owner!r}; choose "
        "another account or region for {environment!r} (AWS_PROFILE, AWS_REGION), or name {owner!r}"
    )


def resource_name(environment: str, suffix: str) -> str:
    """Return the name of a resource in an environment."""
    return f"{PROJECT}-{environment}-{suffix}"


def queue_name(environment: str, name: str, *, is_fifo: bool = False) -> str:
    """Return the full name of the queue `name` in an environment."""
    return resource_name(environment, name) + (FIFO_SUFFIX if is_fifo else "")


def dead_letter_queue(name: str) -> str:
    """The dead-letter queue behind the queue called `name`, with or without environment and FIFO's suffix."""
    stem = name.removesuffix(FIFO_SUFFIX)
    return stem + _DEAD_LETTERS + name[len(stem) :]


def source_queue(name: str) -> str | None:
    """The inverse of `dead_letter_queue`; None for a queue that is none."""
    stem = name.removesuffix(FIFO_SUFFIX)
    source = stem.removesuffix(_DEAD_LETTERS)
    return None if source == stem else source + name[len(stem) :]


def channel_queue(channel: Channel) -> str:
    """Return the name of the queue that carries a cloud service's `channel`, before `queue_name`."""
    return channel.address.replace(".", "-")


def has_queue(channel: Channel) -> bool:
    """Return whether an SQS queue carries a cloud service's `channel`, or feeds its router.

    An inbox over a protocol that a package adds has none.
    """
    return channel.box != "inbox" or not channel.is_added_protocol


def channel_url(pattern: str, channel: Channel) -> str:
    """Return the URL of the queue that carries `channel`; `pattern` has `ANY` for what its name ends in."""
    return pattern.replace(ANY, channel_queue(channel)) + FIFO_SUFFIX * is_fifo(channel)


def queue_url(pattern: str, name: str) -> str:
    """Return the URL of the queue of that full name; `pattern` is its URL, or has `ANY` as of several."""
    return f"{pattern.rpartition('/')[0]}/{name}" if ANY in pattern else pattern


def is_fifo(channel: Channel) -> bool:
    """Return whether a FIFO queue carries `channel`."""
    return channel.transport is Transport.SQS_FIFO


def attestation_key(environment: str) -> str:
    """The alias of the key by which the jobs that may change the archive attest their receipts."""
    return f"alias/{resource_name(environment, 'attestation')}"


def certificate_key(environment: str) -> str:
    """The alias of the key by which operators sign certificates of events."""
    return f"alias/{resource_name(environment, 'certificate')}"


def archive_bucket(environment: str, account: str, region: str) -> str:
    """The archive's bucket. Bucket names are shared with the whole world, so its owner stands in it."""
    return resource_name(environment, f"archive-{account}-{region}")


def reads_bucket(environment: str, account: str, region: str) -> str:
    """The bucket in which CloudTrail records who read the archive."""
    return resource_name(environment, f"reads-{account}-{region}")


def work_bucket(environment: str, account: str, region: str) -> str:
    """The bucket of what jobs write while they run."""
    return resource_name(environment, f"work-{account}-{region}")
