"""The errors of the API: problem details (RFC 9457), one class for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, ClassVar

from eventplane.contract import Problem
from eventplane.errors import EventPlaneError


class ApiError(EventPlaneError):
    """A request that was not done. `status` is HTTP's, `word` the stable name of the kind."""

    status: ClassVar[HTTPStatus]
    word: ClassVar[str]
    detail: str
    problems: Sequence[Problem] = ()
    message = "{detail}"

    def document(self) -> dict[str, Any]:
        """The body of the answer; `problems` say of each fault where it stands and what to do."""
        return {
            "type": f"urn:eventplane:problem:{self.word}",
            "title": self.word.replace("_", " "),
            "status": int(self.status),
            "detail": self.detail,
            "problems": [asdict(each) for each in self.problems],
        }


class InvalidError(ApiError):
    """The proposed subscription is wrong, in a way that `problems` names (the draft's *invalid*)."""

    status = HTTPStatus.BAD_REQUEST
    word = "invalid"


class MethodError(ApiError):
    """The path has other `methods`."""

    status = HTTPStatus.METHOD_NOT_ALLOWED
    word = "method"

    def __init__(self, method: str, methods: Sequence[str]) -> None:
        super().__init__(f"there is no {method} here; use {', '.join(methods)}")
        self.methods = tuple(methods)


class MediaTypeError(ApiError):
    """The body is not said to be JSON."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    word = "media_type"


class NotFoundError(ApiError):
    """There is no such participant, subscription or path (the draft's *notfound*)."""

    status = HTTPStatus.NOT_FOUND
    word = "not_found"


class TakenError(ApiError):
    """Others keep writing the same subscription (the draft's *conflict*)."""

    status = HTTPStatus.CONFLICT
    word = "conflict"


class LimitError(ApiError):
    """The participant has as many subscriptions as it may have."""

    status = HTTPStatus.CONFLICT
    word = "quota"


class PreconditionError(ApiError):
    """The subscription is not, or no longer, what If-Match or If-None-Match says."""

    status = HTTPStatus.PRECONDITION_FAILED
    word = "precondition"


class NoTablesError(ApiError):
    """The table does not answer."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    word = "unavailable"
