"""The entry of the Discovery API: the registry of the contract in force, over HTTP.

IAM has decided who may read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from eventplane.contract import Contract
from eventplane.function_settings import ContractSettings
from eventplane.registry import (
    MethodNotAllowedError,
    Registry,
    RegistryError,
    TooLargeError,
    UnavailableError,
    build_registry,
    look_up,
)
from lambdas.api.entity_tags import if_none_match_names, tag_of
from lambdas.common.aws import client
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context
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


@at_init
def service() -> DiscoveryService:
    """Return the service that the environment describes.

    Raises `SettingsError`, and what `load_contract` raises of the contract that came with the code.
    """
    settings = ContractSettings.read(os.environ)
    return DiscoveryService(contract_in_force(settings, client("dynamodb"), InForceRegistry).engine)


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> dict[str, Any]:  # noqa: ARG001 - the logger's
    """Answer one request, in API Gateway's payload format 2.0."""
    count(Metric.REQUESTS)
    request = read_request(APIGatewayProxyEventV2(event))
    response = service().answer(request)
    logger.info("answered", method=request.method, path=request.path, status=response.status)
    return {
        "statusCode": int(response.status),
        "headers": dict(response.headers),
        "body": response.body,
        "isBase64Encoded": False,
    }


def read_request(event: APIGatewayProxyEventV2) -> Request:
    """Return the request in `event`; its URL is the one that the caller has signed."""
    headers = {name.lower(): value for name, value in event.headers.items()}
    scheme = headers.get("x-forwarded-proto", "https")
    return Request(
        method=event.request_context.http.method,
        base=f"{scheme}://{headers.get('host') or event.request_context.domain_name}",
        # `$details` comes as it is or escaped, as the caller's library likes.
        path=unquote(event.raw_path),
        query=event.query_string_parameters,
        headers=headers,
    )
