"""Gets a device its own certificate, and a new one in time: AWS IoT fleet provisioning by claim.

`python -m edge provision --settings FILE` runs beside the forwarder and ends when there is nothing left to
do. The forwarder reads its certificate for each connection, so it needs no notice. A build may leave this
part out (`--without provisioning`). Here are its errors; none is final, the next attempt may succeed.
"""

from __future__ import annotations

from pathlib import Path

from edge.errors import EdgeError


class ProvisioningError(EdgeError):
    """Base: the device keeps its certificate and tries again later."""


class OfflineError(ProvisioningError):
    """No connection as `client_id`, or it ended too early, for `reason`."""

    client_id: str
    reason: str
    message = "no connection as {client_id!r}: {reason}"


class NoAnswerError(ProvisioningError):
    """The `step` (`create`, `register`) was not answered within `timeout_s` seconds."""

    step: str
    timeout_s: float
    message = "{step}: no answer within {timeout_s} s; check that the claim's policy allows it"


class RejectedError(ProvisioningError):
    """The cloud refused the `step` with `status`, `code` and a `text`."""

    step: str
    status: int
    code: str
    text: str
    message = "{step} was rejected: {status} {code}: {text}; check the template, its role and its hook"


class AnswerError(ProvisioningError):
    """The answer to the `step` does not follow the API."""

    step: str
    problem: str
    message = "{step}: the answer cannot be used: {problem}; check that this is AWS IoT"


class WrongThingError(ProvisioningError):
    """The cloud registered thing `registered`, but the settings call this device `thing`."""

    thing: str
    registered: str
    message = (
        "registered as {registered!r}, but the settings say {thing!r}; correct the template's ThingName "
        "or the setting 'thing'"
    )


class NotAcceptedError(ProvisioningError):
    """The new certificate is registered but does not connect yet; the old one remains in use."""

    reason: str
    message = "no connection with the new certificate yet: {reason}; the present one remains"


class KeyMakingError(ProvisioningError):
    """This device cannot generate a private key."""

    problem: str
    message = "cannot generate a private key: {problem}; install openssl, or set provisioning.keys to 'cloud'"


class IdentityFileError(ProvisioningError):
    """The file with key and certificate cannot be written; its content is unchanged."""

    path: Path
    problem: str
    message = "{path}: {problem}; make its directory writable for this user, with room for 10 KB"
