"""The named errors of provisioning. None is final: the next attempt may find things repaired."""

from __future__ import annotations

from pathlib import Path

from edge.errors import EdgeError


class ProvisioningError(EdgeError):
    """Base: the device keeps what it has, and tries again later."""


class UnreachableError(ProvisioningError):
    """No connection as `client_id`, or it ended too early; `reason` is the connection's own."""

    def __init__(self, client_id: str, reason: str) -> None:
        super().__init__(f"no connection as {client_id!r}: {reason}")
        self.client_id = client_id
        self.reason = reason


class NoAnswerError(ProvisioningError):
    """Nothing came back to the `step` (`create`, `register`) within `timeout_s` seconds."""

    def __init__(self, step: str, timeout_s: float) -> None:
        super().__init__(f"{step}: no answer within {timeout_s} s; see that the claim's policy allows it")
        self.step = step
        self.timeout_s = timeout_s


class RejectedError(ProvisioningError):
    """The cloud refused the `step`; `status`, `code` and `message` are its words."""

    def __init__(self, step: str, status: int, code: str, message: str) -> None:
        super().__init__(
            f"{step} was rejected: {status} {code}: {message}; see the template, its role and its hook"
        )
        self.step = step
        self.status = status
        self.code = code


class AnswerError(ProvisioningError):
    """The answer to the `step` is not what the API promises."""

    def __init__(self, step: str, problem: str) -> None:
        super().__init__(f"{step}: the answer cannot be used: {problem}; see whether this is AWS IoT")
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
    """The new certificate is registered, but no connection with it stands yet; the old one stays in use."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the new certificate does not connect yet: {reason}; the present one stays in use")
        self.reason = reason


class KeyMakingError(ProvisioningError):
    """This device cannot make a private key."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"no private key can be made: {problem}; install openssl, or set provisioning.keys to 'cloud'"
        )
        self.problem = problem


class IdentityFileError(ProvisioningError):
    """The file with key and certificate cannot be written; what it held before is untouched."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}; make its directory writable for this user, with room for 10 KB")
        self.path = path
        self.problem = problem
