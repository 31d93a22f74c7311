"""Gets a device its own certificate, and a new one in time: AWS IoT fleet provisioning by claim.

`python -m edge provision --settings FILE` runs beside the forwarder and ends when there is nothing left to
do. The forwarder reads its certificate for each connection, so it needs no notice. A build may leave this
part out (`edge.parts`). Here are its errors; none is final, the next attempt may succeed.
"""

from __future__ import annotations

from pathlib import Path

from edge.errors import EdgeError


class ProvisioningError(EdgeError):
    """Base: the device keeps its certificate and tries again later."""


class UnreachableError(ProvisioningError):
    """No connection as `client_id`, or it ended too early, for `reason`."""

    def __init__(self, client_id: str, reason: str) -> None:
        super().__init__(f"no connection as {client_id!r}: {reason}")
        self.client_id = client_id
        self.reason = reason


class NoAnswerError(ProvisioningError):
    """The `step` (`create`, `register`) was not answered within `timeout_s` seconds."""

    def __init__(self, step: str, timeout_s: float) -> None:
        super().__init__(f"{step}: no answer within {timeout_s} s; check that the claim's policy allows it")
        self.step = step
        self.timeout_s = timeout_s


class RejectedError(ProvisioningError):
    """The cloud refused the `step` with `status`, `code` and a message."""

    def __init__(self, step: str, status: int, code: str, message: str) -> None:
        super().__init__(
            f"{step} was rejected: {status} {code}: {message}; check the template, its role and its hook"
        )
        self.step = step
        self.status = status
        self.code = code


class AnswerError(ProvisioningError):
    """The answer to the `step` does not follow the API."""

    def __init__(self, step: str, problem: str) -> None:
        super().__init__(f"{step}: the answer cannot be used: {problem}; check that this is AWS IoT")
        self.step = step
        self.problem = problem


class WrongThingError(ProvisioningError):
    """The cloud registered thing `registered`, but the settings call this device `thing`."""

    def __init__(self, thing: str, registered: str) -> None:
        super().__init__(
            f"registered as {registered!r}, but the settings say {thing!r}; correct the template's ThingName "
            "or the setting 'thing'"
        )
        self.thing = thing
        self.registered = registered


class NotAcceptedError(ProvisioningError):
    """The new certificate is registered but does not connect yet; the old one remains in use."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no connection with the new certificate yet: {reason}; the present one remains")
        self.reason = reason


class KeyMakingError(ProvisioningError):
    """This device cannot generate a private key."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"cannot generate a private key: {problem}; install openssl, or set provisioning.keys to 'cloud'"
        )
        self.problem = problem


class IdentityFileError(ProvisioningError):
    """The file with key and certificate cannot be written; its content is unchanged."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}; make its directory writable for this user, with room for 10 KB")
        self.path = path
        self.problem = problem
