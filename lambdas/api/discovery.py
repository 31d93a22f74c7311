"""The Discovery API: the registry of the contract in force, over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

from eventplane.contract import Contract
from eventplane.function_settings import ContractSettings
from eventplane.registry.build import build_registry
from eventplane.registry.model import Registry
from eventplane.registry.view import (
    MethodNotAllowedError,
    RegistryError,
    TooLargeError,
    UnavailableError,
    look_up,
)
from lambdas.api.http import Request, Response, api_function, if_none_match_names, json_text, tag_of
from lambdas.common.aws import tables
from lambdas.common.queue_function import at_init
from lambdas.router.active_contract import Unseen
from lambdas.router.wiring import contract_in_force

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


class DiscoveryService:
    """Answers by what `in_force` says at each request; until that has been seen, with 503."""

    def __init__(self, in_force: Callable[[], InForceRegistry | Unseen[InForceRegistry]]) -> None:
        self._in_force = in_force

    def answer(self, request: Request) -> Response:
        """The response, also to a request that is refused."""
        path = unquote(request.path)  # `$details` comes as it is or escaped, as the caller's library likes
        try:
            return self._found(request, path)
        except RegistryError as error:
            headers = {"Content-Type": PROBLEM}
            if isinstance(error, MethodNotAllowedError):
                headers["Allow"] = ", ".join(METHODS)
            if isinstance(error, UnavailableError):
                headers["Retry-After"] = str(RETRY_AFTER_S)
            return Response(error.status, headers, json_text(error.document(request.base + path)))

    def _found(self, request: Request, path: str) -> Response:
        if request.method not in METHODS:
            raise MethodNotAllowedError(path, request.method)
        in_force = self._in_force()
        if isinstance(in_force, Unseen):
            raise UnavailableError(path)
        found = look_up(in_force.registry, path, request.query, request.base)
        body = json_text(found.body)
        octets = body.encode("utf-8", "surrogatepass")
        if len(octets) > MAX_BODY_BYTES:
            raise TooLargeError(path)
        # By the content: another version of this program may say the same contract in other words.
        tag = tag_of(octets)
        # Whoever keeps an answer asks whether it still holds: a contract may be published at any time.
        validators = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if if_none_match_names(request.headers.get("if-none-match", ""), tag):
            return Response(HTTPStatus.NOT_MODIFIED, validators)
        headers = {"Content-Type": found.content_type, **found.headers, **validators}
        return Response(HTTPStatus.OK, headers, "" if request.method == "HEAD" else body)


@at_init
def service() -> DiscoveryService:
    """Return the service that the environment describes.

    Raises `SettingsError`, and what `bundled_contract` raises.
    """
    settings = ContractSettings.read(os.environ)
    return DiscoveryService(contract_in_force(settings, tables(), InForceRegistry).engine)


handle = api_function(service)
