"""What a request for the registry can be refused for, named as xRegistry names it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from eventplane.errors import EventPlaneError

_SPECIFICATION: Final = "https://github.com/xregistry/spec/blob/main/core"


class RegistryError(EventPlaneError):
    """A request that cannot be answered.

    `status` is its HTTP status, `type` the URI of the error in xRegistry's specification, `subject` the path
    that was asked for.
    """

    status: ClassVar[int]
    type: ClassVar[str]

    def __init__(self, subject: str, title: str) -> None:
        super().__init__(title)
        self.subject = subject

    def document(self, instance: str) -> dict[str, Any]:
        """The body of the answer to the request for the URL `instance` (RFC 9457)."""
        return {
            "type": self.type,
            "title": str(self),
            "status": self.status,
            "instance": instance,
            "subject": self.subject,
        }


class ApiNotFoundError(RegistryError):
    """No entity of the model could have this path."""

    status = 404
    type = f"{_SPECIFICATION}/http.md#api_not_found"

    def __init__(self, subject: str) -> None:
        super().__init__(
            subject, f"The specified path ({subject}) is not supported; see /model for those that are."
        )


class NotFoundError(RegistryError):
    """The contract in force has no such entity."""

    status = 404
    type = f"{_SPECIFICATION}/spec.md#not_found"

    def __init__(self, subject: str) -> None:
        super().__init__(
            subject,
            f"The targeted entity ({subject}) cannot be found; list the collection that it would be in.",
        )


class MethodNotAllowedError(RegistryError):
    """The registry is what the contract says; it cannot be written."""

    status = 405
    type = f"{_SPECIFICATION}/spec.md#method_not_allowed"

    def __init__(self, subject: str, method: str) -> None:
        super().__init__(
            subject,
            f"The method ({method}) is not supported for {subject}; change the contract and publish it.",
        )
        self.method = method


class BadFlagError(RegistryError):
    """The query parameter `flag` has a value that means nothing."""

    status = 400
    type = f"{_SPECIFICATION}/spec.md#bad_request"

    def __init__(self, subject: str, flag: str, remedy: str) -> None:
        super().__init__(subject, f"The value of {flag} is not usable; {remedy}.")
        self.flag = flag


class UnavailableError(RegistryError):
    """The contract in force is not known yet, because the tables that it is read from do not answer."""

    status = 503
    type = f"{_SPECIFICATION}/spec.md#server_error"

    def __init__(self, subject: str) -> None:
        super().__init__(subject, "The contract in force is not known yet; ask again in a moment.")


class TooLargeError(RegistryError):
    """What was asked for does not fit into one answer."""

    status = 406
    type = f"{_SPECIFICATION}/spec.md#too_large"

    def __init__(self, subject: str) -> None:
        super().__init__(
            subject,
            f"The answer for {subject} is too large for one response; read the collections, page by page.",
        )
