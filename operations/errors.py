"""The errors between an operator and the plane, each with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventplane.errors import EventPlaneError

ELSEWHERE: Final = (
    "name another environment with --env, or another account and region with --profile and --region "
    "(AWS_PROFILE, AWS_REGION)"
)


class CloudRefusedError(EventPlaneError):
    """AWS did not do what was asked. `code` is its word for it, or the name of the SDK's error."""

    code: str
    problem: str
    remedy: str
    message = "{problem}; {remedy}"


class NotDeployedHereError(EventPlaneError):
    """No queue of the `environment` is where the credentials lead."""

    environment: str
    account: str
    region: str
    message = (
        f"there is no environment {{environment!r}} in account {{account}}, region {{region}}; {ELSEWHERE}"
    )


class NoQueueError(EventPlaneError):
    """The `environment` has no queue for the inbox or outbox at `address`."""

    address: str
    environment: str
    message = (
        "{environment} has no queue of {address}; deploy the contract that has it, or name the deployed one "
        "by --contract"
    )


class NotAskedError(EventPlaneError):
    """The contract leaves devices sending everything, so that no interest is sent down."""

    message = (
        "devices send up everything by this contract; "
        "deploy one with `forward: wanted` on the device's outbox, or name the deployed one by --contract"
    )


class UnknownQueueError(EventPlaneError):
    """No dead-letter queue is called `name`; `known` are those there are."""

    name: str
    known: Sequence[str]
    message = "no dead-letter queue belongs to {name!r}; use one of: {names}"

    @property
    def names(self) -> str:
        return ", ".join(self.known)


class NoLetterInboxError(EventPlaneError):
    """The contract leads dead-letter events to no queue. `address` is where, if anywhere."""

    address: str | None
    message = (
        "the contract leads dead-letter events {where}; add a route for org.eventplane.deadletter.v1 "
        "to an inbox in the cloud, or name the deployed contract with --contract"
    )

    @property
    def where(self) -> str:
        return f"to {self.address}, which has no queue" if self.address else "nowhere in the cloud"


class NoReplayQueueError(EventPlaneError):
    """The `environment` has no queue for orders to replay."""

    environment: str
    message = "environment {environment!r} has no queue for replays; deploy it again"


class OrdersRefusedError(EventPlaneError):
    """SQS took the first `sent` orders and not all of the others; `code` is its word for it."""

    code: str
    sent: int
    message = (
        "SQS refused an order ({code}) after {sent} were sent; repeat the command: what is sent twice is "
        "marked as a replay, and readers know it by sender, `source` and `id`"
    )


class MoveFailedError(EventPlaneError):
    """SQS stopped moving the messages of `queue`. What it had not moved is where it was."""

    queue: str
    reason: str
    message = (
        "SQS stopped moving {queue}: {reason}; repeat it with --filter TRUE, which moves message by message"
    )


class MoveUnseenError(EventPlaneError):
    """SQS was told to move the messages of `queue`; its progress cannot be seen."""

    queue: str
    problem: str
    message = (
        "SQS is moving {queue}, and its progress cannot be read ({problem}); `dead-letters list` "
        "shows what still waits"
    )


class ArchiveMissingError(EventPlaneError):
    """There is no archive at `place`."""

    place: str
    message = "there is no archive at {place}; name a folder or s3://BUCKET with --archive"
