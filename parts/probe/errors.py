"""What a smoke test can find wrong, each with where to look."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class SmokeError(EventPlaneError):
    """Base: a step did not show what it should."""


class StackStatusError(SmokeError):
    """The `stack` is not in a state that a finished deployment leaves; `status` is CloudFormation's word."""

    stack: str
    status: str
    message = "stack {stack} is {status}; wait for its deployment, or deploy it again"


class OutputMissingError(SmokeError):
    """No stack of the environment has the output `name`."""

    name: str
    message = "no stack has the output {name}; deploy all stacks of this environment again"


class PeopleNotInformedError(SmokeError):
    """The `environment` keeps its data, so people read what a smoke test sends there."""

    environment: str
    message = (
        "{environment} keeps its data, so people read its inboxes: the test raises an alarm of a home "
        "called smoke-..., and one CloudWatch alarm of each alarm topic. Inform carers, relatives and "
        "who is on call, then add --people-are-informed (make smoke PEOPLE_ARE_INFORMED=1)"
    )


class WrongOutcomeError(SmokeError):
    """The plane did with `what` something else than it should."""

    what: str
    problem: str
    remedy: str
    message = "{what}: {problem}; {remedy}"


class ProvisioningFailedError(SmokeError):
    """The device's provisioning ended with `status`, or not in time (None); `log` has its last lines."""

    status: int | None
    log: str
    message = (
        "the device's provisioning {ended}: {lines}; see the log of the function provisioning-hook, and "
        "docs/how-to/fleet.md for each refusal"
    )

    @property
    def ended(self) -> str:
        return "did not end in time" if self.status is None else f"ended with status {self.status}"

    @property
    def lines(self) -> str:
        return self.log or "it logged nothing"


class NothingToExerciseError(SmokeError):
    """The environment lacks `what` the step exercises."""

    what: str
    message = "there is {what}; deploy all stacks of this environment again"
