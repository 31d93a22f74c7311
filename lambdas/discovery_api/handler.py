"""The Discovery API's entry: HTTP in, HTTP out; who may read has been decided by IAM."""

from __future__ import annotations

import os
from functools import cache
from typing import Any
from urllib.parse import unquote

from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from lambdas.common.aws import client
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context
from lambdas.discovery_api.service import DiscoveryService, InForceRegistry, Request
from lambdas.router.contract_settings import read_contract_settings
from lambdas.router.wiring import contract_in_force


@cache
def service() -> DiscoveryService:
    """The service as the environment describes it.

    Raises `SettingsError`, and what `load_contract` raises of the contract that came with the code.
    """
    settings = read_contract_settings(os.environ)
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
    """The request in `event`; its URL is the one that the caller has signed."""
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
