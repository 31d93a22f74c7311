"""What a smoke test can find wrong, each with where to look."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class SmokeError(EventPlaneError):
    """Base: a step did not show what it should."""


class StackStatusError(SmokeError):
    """The `stack` is not in a state that a finished deployment leaves; `status` is CloudFormation's word."""

    def __init__(self, stack: str, status: str) -> None:
        super().__init__(f"stack {stack} is {status}; wait for its deployment, or deploy it again")
        self.stack = stack
        self.status = status


class OutputMissingError(SmokeError):
    """No stack of the environment has the output `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no stack has the output {name}; deploy all stacks of this environment again")
        self.name = name


class PeopleNotInformedError(SmokeError):
    """The `environment` keeps its data, so people read what a smoke test sends there."""

    def __init__(self, environment: str) -> None:
        super().__init__(
            f"{environment} keeps its data, so people read its inboxes: the test raises an alarm of a home "
            "called smoke-..., and one CloudWatch alarm of each alarm topic. Inform carers, relatives and "
            "who is on call, then add --people-are-informed (make smoke PEOPLE_ARE_INFORMED=1)"
        )
        self.environment = environment


class NotSeenError(SmokeError):
    """`what` was not seen within `timeout_s` seconds."""

    def __init__(self, what: str, timeout_s: float, remedy: str) -> None:
        super().__init__(f"{what} was not seen within {timeout_s:.0f} s; {remedy}")
        self.what = what
        self.timeout_s = timeout_s


class WrongOutcomeError(SmokeError):
    """The plane did with `what` something else than it should."""

    def __init__(self, what: str, problem: str, remedy: str) -> None:
        super().__init__(f"{what}: {problem}; {remedy}")
        self.what = what


class ProvisioningFailedError(SmokeError):
    """The device's provisioning ended with `status`, or not in time (None); `log` has its last lines."""

    def __init__(self, status: int | None, log: str) -> None:
        ended = "did not end in time" if status is None else f"ended with status {status}"
        super().__init__(
            f"edge.provisioning {ended}: {log or 'it logged nothing'}; see the log of the function "
            "provisioning-hook, and docs/fleet.md for each refusal"
        )
        self.status = status


class DeviceConnectionError(SmokeError):
    """The device has no connection to IoT Core, or not any more."""

    def __init__(self, client_id: str, problem: str) -> None:
        super().__init__(
            f"{client_id}: {problem}; see the device policy, and that port 8883 of the device endpoint is "
            "reachable from here (--device-endpoint, --device-ca)"
        )
        self.client_id = client_id


class AuditRunError(SmokeError):
    """The audit's run `name` ended as `state`."""

    def __init__(self, name: str, state: str, problem: str, remedy: str) -> None:
        super().__init__(f"the audit's run {name} ended as {state}: {problem}; {remedy}")
        self.name = name
        self.state = state


class NothingToExerciseError(SmokeError):
    """The environment lacks `what` the step exercises."""

    def __init__(self, what: str) -> None:
        super().__init__(f"there is {what}; deploy all stacks of this environment again")
        self.what = what
