"""HTTP as API Gateway passes it to a function (payload format 2.0), and the entry of every API.

IAM has decided who may call which path.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from lambdas.common.log import logger
from lambdas.common.metrics import Count, count, metrics
from lambdas.common.queue import Context

PROBLEM: Final = "application/problem+json"
"""The media type of an error (RFC 9457)."""


@dataclass(frozen=True, slots=True)
class Request:
    """`base` is the API's own URL, as the caller signed it, without a slash at its end.

    `path` begins with one and is as it came, with or without escapes. Header names are in lower case.
    `caller` is the ARN of the AWS principal, where API Gateway names it.
    """

    method: str
    base: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    caller: str | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: str = field(default="", repr=False)


class Api(Protocol):
    """Answers requests."""

    def answer(self, request: Request) -> Response:
        """The response, also to a request that is refused."""


def api_function(wired: Callable[[], Api]) -> Callable[[dict[str, Any], Context], dict[str, Any]]:
    """Return the handler that has each request answered by what `wired` returns."""

    @logger.inject_lambda_context
    @metrics.log_metrics
    def handle(event: dict[str, Any], context: Context) -> dict[str, Any]:  # noqa: ARG001 - the logger's
        count(Count.REQUESTS)
        request = read_request(event)
        response = wired().answer(request)
        logger.info("answered", method=request.method, path=request.path, status=int(response.status))
        return {
            "statusCode": int(response.status),
            "headers": dict(response.headers),
            "body": response.body,
            "isBase64Encoded": False,
        }

    return handle


def read_request(event: dict[str, Any]) -> Request:
    """Return the request in `event`."""
    headers = {name.lower(): value for name, value in event.get("headers", {}).items()}
    context, body = event["requestContext"], event.get("body") or ""
    host = headers.get("host") or context.get("domainName", "")
    return Request(
        method=context["http"]["method"],
        base=f"{headers.get('x-forwarded-proto', 'https')}://{host}",
        path=event["rawPath"],
        query=event.get("queryStringParameters") or {},
        headers=headers,
        body=base64.b64decode(body)
        if event.get("isBase64Encoded")
        else body.encode("utf-8", "surrogatepass"),
        # The emulator does not always say who it is.
        caller=((context.get("authorizer") or {}).get("iam") or {}).get("userArn"),
    )


def json_text(value: object) -> str:
    """Write JSON without escapes, and so no larger than it has to be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tag_of(content: bytes) -> str:
    """Return the strong entity tag (RFC 9110, 8.8.3) of just this `content`."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def if_match_names(condition: str, tag: str | None) -> bool:
    """Return whether If-Match names an entity of the strong `tag`; None: of none (RFC 9110, 13.1.1)."""
    return _names(_listed(condition), tag)


def if_none_match_names(condition: str, tag: str | None) -> bool:
    """Return whether If-None-Match names it, as weak or not (RFC 9110, 13.1.2)."""
    return _names([each.removeprefix("W/") for each in _listed(condition)], tag)


def _listed(condition: str) -> list[str]:
    return [each.strip() for each in condition.split(",")]


def _names(tags: list[str], tag: str | None) -> bool:
    return tag is not None and ("*" in tags or tag in tags)
