"""The Discovery API: the registry of the contract in force, over HTTP, as one document."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from eventplane.contract import Contract
from eventplane.errors import EventPlaneError
from eventplane.function_settings import ContractSettings
from lambdas.common.aws import tables
from lambdas.common.contracts import bundled_contract
from lambdas.common.http_api import (
    PROBLEM,
    Request,
    Response,
    api_function,
    if_none_match_names,
    json_text,
    tag_of,
)
from lambdas.common.queue_function import at_init
from lambdas.router.active_contract import Unseen
from lambdas.router.wiring import contract_in_force
from parts.discovery_api.build import build_registry

PATHS: Final = ("/", "/export")
"""Where the document is; xRegistry names the second."""

METHODS: Final = ("GET", "HEAD")

RETRY_AFTER_S: Final = 2
"""When to ask again while the contract in force is not known, seconds. Ours: the next look is due by then."""

MAX_BODY_BYTES: Final = 5_900_000
"""Largest body: Lambda answers with 6 MB at most, headers included (Lambda quotas, synchronous payload)."""

_SPECIFICATION: Final = "https://github.com/xregistry/spec/blob/main/core"


class RegistryError(EventPlaneError):
    """A request that cannot be answered, named as xRegistry names it.

    `status` is its HTTP status, `type` the URI of the error in xRegistry's specification, `headers` what the
    answer has beside the problem, `subject` the requested path.
    """

    status: ClassVar[HTTPStatus]
    type: ClassVar[str]
    headers: ClassVar[dict[str, str]] = {}
    subject: str

    def document(self, instance: str) -> dict[str, Any]:
        """Return the body of the answer to the request for the URL `instance` (RFC 9457)."""
        return {
            "type": f"{_SPECIFICATION}/{self.type}",
            "title": str(self),
            "status": self.status,
            "instance": instance,
            "subject": self.subject,
        }


class ApiNotFoundError(RegistryError):
    """The path leads to nothing: the registry is one document."""

    status = HTTPStatus.NOT_FOUND
    type = "http.md#api_not_found"
    message = "The specified path ({subject}) is not supported; get /export, which has every entity."


class MethodNotAllowedError(RegistryError):
    """The registry shows the contract; it cannot be written."""

    status = HTTPStatus.METHOD_NOT_ALLOWED
    type = "spec.md#method_not_allowed"
    headers: ClassVar[dict[str, str]] = {"Allow": ", ".join(METHODS)}
    method: str
    message = "The method ({method}) is not supported for {subject}; change the contract and publish it."


class NotReadyError(RegistryError):
    """The contract in force is not known yet, because the tables that it is read from do not answer."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    type = "spec.md#server_error"
    headers: ClassVar[dict[str, str]] = {"Retry-After": str(RETRY_AFTER_S)}
    message = "The contract in force is not known yet; ask again in a moment."


class OversizeError(RegistryError):
    """The document does not fit into one answer."""

    status = HTTPStatus.NOT_ACCEPTABLE
    type = "spec.md#too_large"
    message = "The document is too large for one response; export it from the contract's file instead."


@dataclass(frozen=True)
class InForceRegistry:
    """The `contract` in force, and its registry, which is written when somebody asks."""

    contract: Contract

    @cached_property
    def text(self) -> str:
        """The registry as JSON."""
        return json_text(build_registry(self.contract))


class DiscoveryService:
    """Answers by what `in_force` says at each request; until that has been seen, with 503."""

    def __init__(self, in_force: Callable[[], InForceRegistry | Unseen[InForceRegistry]]) -> None:
        self._in_force = in_force

    def answer(self, request: Request) -> Response:
        """The response, also to a request that is refused."""
        path = unquote(request.path)
        try:
            return self._found(request, path)
        except RegistryError as error:
            headers = {"Content-Type": PROBLEM, **error.headers}
            return Response(error.status, headers, json_text(error.document(request.base + path)))

    def _found(self, request: Request, path: str) -> Response:
        if request.method not in METHODS:
            raise MethodNotAllowedError(path, request.method)
        if path not in PATHS:
            raise ApiNotFoundError(path)
        in_force = self._in_force()
        if isinstance(in_force, Unseen):
            raise NotReadyError(path)
        body = in_force.text
        octets = body.encode("utf-8", "surrogatepass")
        if len(octets) > MAX_BODY_BYTES:
            raise OversizeError(path)
        # By the content: another version of this program may say the same contract in other words.
        tag = tag_of(octets)
        # Whoever keeps an answer asks whether it still holds: a contract may be published at any time.
        validators = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if if_none_match_names(request.headers.get("if-none-match", ""), tag):
            return Response(HTTPStatus.NOT_MODIFIED, validators)
        headers = {"Content-Type": "application/json; charset=utf-8", **validators}
        return Response(HTTPStatus.OK, headers, "" if request.method == "HEAD" else body)


@at_init
def service() -> DiscoveryService:
    """Return the service that the environment describes.

    Raises `SettingsError`, and what `bundled_contract` raises.
    """
    settings = ContractSettings.read(os.environ)
    return DiscoveryService(contract_in_force(bundled_contract(), settings, tables(), InForceRegistry).engine)


handle = api_function(service)
