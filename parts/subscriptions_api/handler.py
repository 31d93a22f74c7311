"""The Subscriptions API: participants manage their own routes over HTTP."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract
from eventplane.contract.subscription import MAX_FILTER_BYTES, MAX_OWN
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.errors import EnvelopeError
from eventplane.filters import DIALECTS
from eventplane.strict_json import decode_text, loads
from lambdas.common.aws import OnDemand, tables
from lambdas.common.contracts import bundled_contract
from lambdas.common.http_api import PROBLEM, Request, Response, api_function, json_text
from lambdas.common.log import log_foreign, logger
from lambdas.common.queue_function import at_init
from lambdas.common.system import random_bytes, system_clock
from lambdas.router.active_contract import Unseen
from lambdas.router.wiring import contract_in_force
from parts.subscriptions_api import errors
from parts.subscriptions_api.document import protocols
from parts.subscriptions_api.service import Conditions, Consents, Entity, SubscriptionService
from parts.subscriptions_api.settings import SubscriptionsApiSettings
from parts.webhooks.endpoint import HttpSink
from parts.webhooks.signing import Keys, SigningKeyError, SigningKeys, subscription_key

COLLECTION: Final = "/participants/<participant>/subscriptions"
SUBSCRIPTION: Final = f"{COLLECTION}/<id>"

KEY: Final = f"{SUBSCRIPTION}/signing-key"

METHODS: Final = {
    COLLECTION: ("GET", "POST", "OPTIONS"),
    SUBSCRIPTION: ("GET", "PUT", "DELETE", "OPTIONS"),
    KEY: ("GET", "OPTIONS"),
}
"""What each path has; any other method is answered with 405."""

_PATH: Final = re.compile(r"/participants/([^/]+)/subscriptions(?:/([^/]+)(/signing-key)?)?")
_JSON: Final = "application/json"
_RETRY: Final = {"Retry-After": "5"}


class SubscriptionsApi:
    """Answers requests by `service`; the keys of all subscriptions are derived from `keys`."""

    def __init__(self, service: SubscriptionService, keys: Keys) -> None:
        self._service = service
        self._keys = keys

    def answer(self, request: Request) -> Response:
        """The response, also to a request that is refused."""
        try:
            return self._answer(request)
        except errors.ApiError as error:
            logger.info("refused", problem=error.word, detail=error.detail)
            return _problem(error)
        except (ClientError, BotoCoreError) as error:
            # A writer may find that it was written all the same.
            logger.error("the table of subscriptions does not answer", error=str(error))
            return _problem(errors.NoTablesError("the table does not answer; try again"))

    def _answer(self, request: Request) -> Response:
        found = _PATH.fullmatch(request.path)
        if found is None:
            raise errors.NotFoundError("there is nothing here; see parts/subscriptions_api/reference.md")
        participant, id, key = found.groups()
        methods = METHODS[KEY if key else SUBSCRIPTION if id else COLLECTION]
        if request.method not in methods:
            raise errors.MethodError(request.method, methods)
        match request.method:
            case "OPTIONS":
                return self._features(methods)
            case "GET" if key:
                return self._signing_key(participant, id)
            case "GET" if id:
                return _entity(HTTPStatus.OK, self._service.retrieve(participant, id))
            case "GET":
                return _json(HTTPStatus.OK, [each.document for each in self._service.query(participant)])
            case "POST":
                created = self._service.create(participant, _proposed(request))
                return _changed(request, participant, created, is_new=True)
            case "PUT":
                conditions = _conditions(request)
                put, is_new = self._service.update(participant, id, _proposed(request), conditions)
                return _changed(request, participant, put, is_new=is_new)
            case _:
                deleted = self._service.delete(participant, id, _conditions(request))
                _log("deleted", request, participant, deleted)
                return _json(HTTPStatus.OK, deleted.document)

    def _features(self, methods: tuple[str, ...]) -> Response:
        features = {
            "protocols": list(protocols(self._service.reach)),
            "filters": list(DIALECTS),
            "max_subscriptions": MAX_OWN,
            "max_filter_bytes": MAX_FILTER_BYTES,
        }
        return _json(HTTPStatus.OK, features, {"Allow": ", ".join(methods)})

    def _signing_key(self, participant: str, id: str) -> Response:
        """What the sink checks requests with, newest first, in base64."""
        route = self._service.signed_route(participant, id)
        try:
            derived = [subscription_key(each, route) for each in self._keys()]
        except SigningKeyError as error:
            logger.error("there is no key", error=str(error))
            raise errors.NoTablesError("there is no key to sign with; try again later") from error
        return _json(HTTPStatus.OK, {"keys": [base64.b64encode(each).decode() for each in derived]})


@dataclass(frozen=True, slots=True)
class _InForce:
    contract: Contract


@at_init
def service() -> SubscriptionsApi:
    """Return the API that the environment describes.

    Raises `SettingsError`, and what `bundled_contract` raises.
    """
    settings = SubscriptionsApiSettings.read(os.environ)
    store = tables()
    in_force = contract_in_force(bundled_contract(), settings, store, _InForce)

    def contract() -> Contract:
        found = in_force.engine()
        if isinstance(found, Unseen):
            raise errors.NoTablesError("the contract in force is not known yet; try again")
        return found.contract

    def connect(url: str, timeout_s: float) -> HttpSink:
        return HttpSink(url, timeout_s=timeout_s, clock=system_clock, reach=settings.reach)

    subscriptions = SubscriptionService(
        table=SubscriptionTable(store, settings.subscriptions_table, log_foreign),
        inboxes=settings.inboxes,
        contract=contract,
        consent=Consents(settings.webhook_origin, connect).ask,
        reach=settings.reach,
        clock=system_clock,
        random_bytes=random_bytes,
    )
    keys = SigningKeys(OnDemand("secretsmanager"), settings.webhook_secret, system_clock)
    return SubscriptionsApi(subscriptions, keys.get)


handle = api_function(service)


def _proposed(request: Request) -> object:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != _JSON:
        raise errors.MediaTypeError(f"the body is {media_type or 'of no type'}; send {_JSON}")
    try:
        return loads(decode_text(request.body))
    except (EnvelopeError, UnicodeDecodeError) as error:
        raise errors.InvalidError(f"the body is no JSON: {error}") from error


def _conditions(request: Request) -> Conditions:
    return Conditions(request.headers.get("if-match", ""), request.headers.get("if-none-match", ""))


def _changed(request: Request, participant: str, found: Entity, *, is_new: bool) -> Response:
    _log("created" if is_new else "updated", request, participant, found)
    if not is_new:
        return _entity(HTTPStatus.OK, found)
    location = f"/participants/{participant}/subscriptions/{found.id}"
    return _entity(HTTPStatus.CREATED, found, {"Location": location})


def _log(what: str, request: Request, participant: str, found: Entity) -> None:
    logger.info(what, participant=participant, subscription=found.id, caller=request.caller)


def _problem(error: errors.ApiError) -> Response:
    headers = {"Content-Type": PROBLEM}
    if isinstance(error, errors.NoTablesError):
        headers |= _RETRY
    if isinstance(error, errors.MethodError):
        headers["Allow"] = ", ".join(error.methods)
    return Response(error.status, headers, json_text(error.document()))


def _entity(status: HTTPStatus, found: Entity, headers: Mapping[str, str] | None = None) -> Response:
    return _json(status, found.document, {"ETag": found.tag, **(headers or {})})


def _json(status: HTTPStatus, document: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, {"Content-Type": _JSON, **(headers or {})}, json_text(document))
