"""What can go wrong between an operator and the plane, each with what to do about it."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from eventplane.errors import EventPlaneError

_NO_ENTRY = frozenset({"403", "AccessDenied", "AccessDeniedException", "AllAccessDisabled"})
_STALE = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "SignatureDoesNotMatch"})
_NOT_THERE = frozenset(
    {
        "ResourceNotFoundException",
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
        "NoSuchBucket",
    }
)
_ELSEWHERE = (
    "name another environment with --env, or choose account and region as for the AWS command line "
    "(AWS_PROFILE, AWS_REGION)"
)


class CloudRefusedError(EventPlaneError):
    """AWS did not do what was asked. `code` is its word for it, or the name of the SDK's error."""

    def __init__(self, code: str, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.code = code


class NotDeployedHereError(EventPlaneError):
    """No queue of the `environment` is where the credentials lead."""

    def __init__(self, environment: str, account: str, region: str) -> None:
        super().__init__(
            f"there is no environment {environment!r} in account {account}, region {region}; {_ELSEWHERE}"
        )
        self.environment = environment


class NoOutboxError(EventPlaneError):
    """The environment has no queue for the outbox at `address`."""

    def __init__(self, address: str, environment: str) -> None:
        super().__init__(f"{environment} has no queue of {address}; name the deployed contract by --contract")
        self.address = address


class NotAskedError(EventPlaneError):
    """The contract leaves devices sending everything, so nothing tells them what the cloud wants."""

    def __init__(self) -> None:
        super().__init__(
            "devices send up everything by this contract; "
            "deploy one with `forward: wanted` on the device's outbox, or name the deployed one by --contract"
        )


class UnknownQueueError(EventPlaneError):
    """No dead-letter queue is called `name`; `known` are those there are."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no dead-letter queue belongs to {name!r}; use one of: {', '.join(known)}")
        self.name = name
        self.known = known


class NoLetterInboxError(EventPlaneError):
    """The contract leads dead-letter events to no queue. `address` is where, if anywhere."""

    def __init__(self, address: str | None) -> None:
        where = f"to {address}, which has no queue" if address else "nowhere in the cloud"
        super().__init__(
            f"the contract leads dead-letter events {where}; name the deployed contract with --contract"
        )
        self.address = address


class ChoiceError(EventPlaneError):
    """It is not said, or said twice, which messages or days are meant."""


class NoReplayQueueError(EventPlaneError):
    """The `environment` has no queue for orders to replay."""

    def __init__(self, environment: str) -> None:
        super().__init__(f"environment {environment!r} has no queue for replays; deploy it again")
        self.environment = environment


class OrdersRefusedError(EventPlaneError):
    """SQS took the first `sent` orders and not all of the others; `code` is its word for it."""

    def __init__(self, code: str, sent: int) -> None:
        super().__init__(
            f"SQS refused an order ({code}) after {sent} were sent; repeat the command: what is sent twice "
            "is marked as a replay, and readers know it by sender, `source` and `id`"
        )
        self.code = code
        self.sent = sent


class MoveFailedError(EventPlaneError):
    """SQS stopped moving the messages of `queue`. What it had not moved is where it was."""

    def __init__(self, queue: str, reason: str) -> None:
        super().__init__(
            f"SQS stopped moving {queue}: {reason}; repeat it with --filter TRUE, "
            "which moves message by message"
        )
        self.queue = queue
        self.reason = reason


class MoveUnseenError(EventPlaneError):
    """SQS was told to move the messages of `queue`; how far it is cannot be seen."""

    def __init__(self, queue: str, problem: str) -> None:
        super().__init__(
            f"SQS moves {queue} by itself, and how far it is cannot be seen ({problem}); "
            "`dead-letters list` tells what still waits"
        )
        self.queue = queue


class ArchiveMissingError(EventPlaneError):
    """There is no archive at `place`."""

    def __init__(self, place: str) -> None:
        super().__init__(f"there is no archive at {place}; name a folder or s3://BUCKET with --archive")
        self.place = place


def explained(error: ClientError | BotoCoreError) -> CloudRefusedError:
    """The `error` of the AWS SDK with a remedy."""
    if isinstance(error, NoCredentialsError):
        remedy = "log in as for the AWS command line (aws sso login, AWS_PROFILE or AWS_ACCESS_KEY_ID)"
        return CloudRefusedError("NoCredentials", "there are no credentials for AWS", remedy)
    if isinstance(error, NoRegionError):
        return CloudRefusedError("NoRegion", "no region is chosen", "set AWS_REGION")
    if isinstance(error, BotoCoreError):
        remedy = "check the network and the settings of the AWS command line (AWS_PROFILE, AWS_ENDPOINT_URL)"
        return CloudRefusedError(type(error).__name__, str(error), remedy)
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    if code in _NO_ENTRY:
        remedy = "ask for a role that may do that; docs/runbook.md lists what the commands need"
    elif code in _STALE:
        remedy = "log in again, or choose other credentials (AWS_PROFILE)"
    elif code in _NOT_THERE:
        remedy = f"if no such thing was deployed here, {_ELSEWHERE}"
    else:
        remedy = "what was done before stays done, and the command can be repeated"
    return CloudRefusedError(code, str(error), remedy)
