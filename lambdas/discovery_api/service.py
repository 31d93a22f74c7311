"""Answers to requests for the registry, as HTTP has them: validators, errors, what is too much at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Final

from eventplane.contract import Contract
from eventplane.registry import (
    MethodNotAllowedError,
    Registry,
    RegistryError,
    TooLargeError,
    UnavailableError,
    build_registry,
    look_up,
)
from lambdas.common.entity_tags import if_none_match_names, tag_of
from lambdas.router.in_force import Unseen

METHODS: Final = ("GET", "HEAD")

RETRY_AFTER_S: Final = 2
"""When to ask again while the contract in force is not known, seconds. Ours: the next look is due by then."""

MAX_BODY_BYTES: Final = 5_900_000
"""Largest body: Lambda answers with 6 MB at most, headers included (Lambda quotas, synchronous payload)."""

PROBLEM: Final = "application/problem+json"


@dataclass(frozen=True)
class InForceRegistry:
    """The `contract` in force, and its registry, which is made when somebody asks."""

    contract: Contract

    @cached_property
    def registry(self) -> Registry:
        """What the contract says."""
        return build_registry(self.contract)


@dataclass(frozen=True, slots=True)
class Request:
    """`base` is the API's own URL without a slash at its end, `path` begins with one; header names are in
    lower case."""

    method: str
    base: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: str = field(default="", repr=False)


class DiscoveryService:
    """Answers by what `in_force` says at each request; until that has been seen, with 503."""

    def __init__(self, in_force: Callable[[], InForceRegistry | Unseen[InForceRegistry]]) -> None:
        self._in_force = in_force

    def answer(self, request: Request) -> Response:
        """The response, also to a request that is refused."""
        try:
            return self._found(request)
        except RegistryError as error:
            headers = {"Content-Type": PROBLEM}
            if isinstance(error, MethodNotAllowedError):
                headers["Allow"] = ", ".join(METHODS)
            if isinstance(error, UnavailableError):
                headers["Retry-After"] = str(RETRY_AFTER_S)
            return Response(error.status, headers, _json(error.document(request.base + request.path)))

    def _found(self, request: Request) -> Response:
        if request.method not in METHODS:
            raise MethodNotAllowedError(request.path, request.method)
        in_force = self._in_force()
        if isinstance(in_force, Unseen):
            raise UnavailableError(request.path)
        found = look_up(in_force.registry, request.path, request.query, request.base)
        body = _json(found.body)
        octets = body.encode("utf-8", "surrogatepass")
        if len(octets) > MAX_BODY_BYTES:
            raise TooLargeError(request.path)
        # By the content: another version of this program may say the same contract in other words.
        tag = tag_of(octets)
        # Whoever keeps an answer asks whether it still holds: a contract may be published at any time.
        validators = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if if_none_match_names(request.headers.get("if-none-match", ""), tag):
            return Response(HTTPStatus.NOT_MODIFIED, validators)
        headers = {"Content-Type": found.content_type, **found.headers, **validators}
        return Response(HTTPStatus.OK, headers, "" if request.method == "HEAD" else body)


def _json(value: object) -> str:
    # No escapes, and so no larger than it has to be.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
