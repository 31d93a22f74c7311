"""The entry of the Subscriptions API: participants manage their own routes over HTTP.

IAM has decided who may call which path.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError as NoRouteError
from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract
from eventplane.contract.subscription import MAX_FILTER_BYTES, MAX_OWN
from eventplane.filters import DIALECTS
from eventplane.function_settings import ContractSettings, SubscriptionsApiSettings
from eventplane.strict_json import StrictJsonError, decode_text, loads
from lambdas.api import errors
from lambdas.api.subscription_service import Conditions, Consents, Found, SubscriptionService
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init
from lambdas.common.tables import SubscriptionTable
from lambdas.http_sink.signing import SigningKeyError, SigningKeys, subscription_key
from lambdas.router.active_contract import Unseen
from lambdas.router.wiring import contract_in_force

COLLECTION: Final = "/participants/<participant>/subscriptions"
SUBSCRIPTION: Final = f"{COLLECTION}/<id>"

KEY: Final = f"{SUBSCRIPTION}/signing-key"

METHODS: Final = {
    COLLECTION: ("GET", "POST", "OPTIONS"),
    SUBSCRIPTION: ("GET", "PUT", "DELETE", "OPTIONS"),
    KEY: ("GET", "OPTIONS"),
}
"""What each path has; any other method is answered with 405."""

_ALL_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_JSON: Final = "application/json"
_RETRY: Final = {"Retry-After": "5"}

app = APIGatewayHttpResolver()


@app.get(COLLECTION)
def query(participant: str) -> Response[str]:
    """All subscriptions of the participant."""
    return _json(HTTPStatus.OK, [each.document for each in service().query(participant)])


@app.post(COLLECTION)
def create(participant: str) -> Response[str]:
    """A new one, under an id of ours."""
    found = service().create(participant, _body())
    _log("created", participant, found)
    return _entity(HTTPStatus.CREATED, found, {"Location": _location(participant, found)})


@app.get(SUBSCRIPTION)
def retrieve(participant: str, id: str) -> Response[str]:
    """One."""
    return _entity(HTTPStatus.OK, service().retrieve(participant, id))


@app.put(SUBSCRIPTION)
def update(participant: str, id: str) -> Response[str]:
    """Change one, or create it under this id."""
    found, is_new = service().update(participant, id, _body(), _conditions())
    _log("created" if is_new else "updated", participant, found)
    if is_new:
        return _entity(HTTPStatus.CREATED, found, {"Location": _location(participant, found)})
    return _entity(HTTPStatus.OK, found)


@app.delete(SUBSCRIPTION)
def delete(participant: str, id: str) -> Response[str]:
    """End one; the answer is what it was."""
    found = service().delete(participant, id, _conditions())
    _log("deleted", participant, found)
    return _json(HTTPStatus.OK, found.document)


@app.get(KEY)
def signing_key(participant: str, id: str) -> Response[str]:
    """What the sink checks requests with, newest first, in base64."""
    route = service().signed_route(participant, id)
    try:
        drawn = [subscription_key(each, route) for each in keys().get()]
    except SigningKeyError as error:
        logger.error("there is no key", error=str(error))
        raise errors.UnavailableError("there is no key to sign with; try again later") from error
    return _json(HTTPStatus.OK, {"keys": [base64.b64encode(each).decode() for each in drawn]})


def _add_other_methods(path: str) -> None:
    """Answer OPTIONS on `path` with the API's features, and the methods that it does not have with 405."""

    @app.route(path, method="OPTIONS")
    def features(**_: str) -> Response[str]:
        return _features(path)

    @app.route(path, method=[each for each in _ALL_METHODS if each not in METHODS[path]])
    def no_method(**_: str) -> Response[str]:
        return _no_method(path)


for _path in METHODS:
    _add_other_methods(_path)


@app.exception_handler(errors.ApiError)  # type: ignore[untyped-decorator]
def refused(error: errors.ApiError) -> Response[str]:
    """A request that was not done."""
    logger.info("refused", problem=error.word, detail=error.detail)
    return _problem(error, _RETRY if isinstance(error, errors.UnavailableError) else None)


@app.exception_handler([ClientError, BotoCoreError])  # type: ignore[untyped-decorator]
def unavailable(error: ClientError | BotoCoreError) -> Response[str]:
    """The table does not answer; a writer may find that it was written all the same."""
    logger.error("the table of subscriptions does not answer", error=str(error))
    return _problem(errors.UnavailableError("the table does not answer; try again"), _RETRY)


@app.not_found
def no_path(_error: NoRouteError) -> Response[str]:
    """No such path."""
    return _problem(errors.NotFoundError("there is nothing here; see docs/subscriptions-api.md"))


def _contract(settings: ContractSettings) -> Callable[[], Contract]:
    """What tells the contract in force, or raises `errors.UnavailableError` while that has not been seen.

    Raises what `load_contract` raises of the one with the code.
    """
    in_force = contract_in_force(settings, client("dynamodb"), _InForce)

    def contract() -> Contract:
        found = in_force.engine()
        if isinstance(found, Unseen):
            raise errors.UnavailableError("the contract in force is not known yet; try again")
        return found.contract

    return contract


@dataclass(frozen=True, slots=True)
class _InForce:
    contract: Contract


@cache
def keys() -> SigningKeys:
    """Return the keys that the keys of all subscriptions are derived from."""
    secret = SubscriptionsApiSettings.read(os.environ).webhook_secret
    return SigningKeys(client("secretsmanager"), secret, system_clock)


@at_init
def service() -> SubscriptionService:
    """Return the service that the environment describes. Raises `SettingsError`."""
    settings = SubscriptionsApiSettings.read(os.environ)
    return SubscriptionService(
        table=SubscriptionTable(client("dynamodb"), settings.subscriptions_table),
        inboxes=settings.inboxes,
        contract=_contract(settings),
        consent=Consents(settings.webhook_origin, system_clock, settings.reach).ask,
        reach=settings.reach,
        clock=system_clock,
    )


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Answer one request."""
    count(Metric.REQUESTS)
    answer: dict[str, Any] = app.resolve(event, context)  # type: ignore[arg-type]
    return answer


def _body() -> object:
    media_type = (app.current_event.headers.get("content-type") or "").partition(";")[0].strip().lower()
    if media_type != _JSON:
        raise errors.MediaTypeError(f"the body is {media_type or 'of no type'}; send {_JSON}")
    try:
        raw = app.current_event.decoded_body or ""
        return loads(decode_text(raw.encode("utf-8", "surrogatepass")))
    except (StrictJsonError, UnicodeDecodeError) as error:
        raise errors.InvalidError(f"the body is no JSON: {error}") from error


def _conditions() -> Conditions:
    headers = app.current_event.headers
    return Conditions(headers.get("if-match") or "", headers.get("if-none-match") or "")


def _location(participant: str, found: Found) -> str:
    return f"/participants/{participant}/subscriptions/{found.id}"


def _log(what: str, participant: str, found: Found) -> None:
    # Who is not an AWS principal does not come so far; the emulator does not always say who it is.
    iam = (app.current_event["requestContext"].get("authorizer") or {}).get("iam") or {}
    logger.info(what, participant=participant, subscription=found.id, caller=iam.get("userArn"))


def _features(path: str) -> Response[str]:
    features = {
        "protocols": list(service().protocols),
        "filters": list(DIALECTS),
        "max_subscriptions": MAX_OWN,
        "max_filter_bytes": MAX_FILTER_BYTES,
    }
    return _json(HTTPStatus.OK, features, {"Allow": ", ".join(METHODS[path])})


def _no_method(path: str) -> Response[str]:
    method = app.current_event.request_context.http.method
    error = errors.MethodError(f"there is no {method} here; use {', '.join(METHODS[path])}")
    return _problem(error, {"Allow": ", ".join(METHODS[path])})


def _problem(error: errors.ApiError, headers: dict[str, str] | None = None) -> Response[str]:
    return Response(int(error.status), errors.MEDIA_TYPE, json.dumps(error.document()), headers or {})


def _entity(status: HTTPStatus, found: Found, headers: dict[str, str] | None = None) -> Response[str]:
    return _json(status, found.document, {"ETag": found.tag, **(headers or {})})


def _json(status: HTTPStatus, document: object, headers: dict[str, str] | None = None) -> Response[str]:
    return Response(int(status), _JSON, json.dumps(document, ensure_ascii=False), headers or {})
