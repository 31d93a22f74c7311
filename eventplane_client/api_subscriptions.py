"""Subscriptions of a cloud service by the plane's API, for programs without rights on the table."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from urllib.parse import quote

from eventplane.contract import Problem
from eventplane.contract.canonical import canonical_bytes
from eventplane_client.aws import unavailable
from eventplane_client.errors import (
    AlreadySubscribedError,
    NotSubscribedError,
    SubscriptionError,
    UnavailableError,
)
from eventplane_client.signed_http import HttpAnswer, SignedHttp
from eventplane_client.subscription import checked_filter, in_force_from
from eventplane_client.system import SYSTEM, System

_GRANTED: Final = "effectivefilter"
"""What answers say of the contract's `may_subscribe`; it is no part of the subscription."""


class ApiSubscriptions:
    """The subscriptions of `participant` over `http`, into the inbox whose queue has the ARN `inbox`."""

    def __init__(self, http: SignedHttp, participant: str, inbox: str, system: System = SYSTEM) -> None:
        self._http = http
        self._participant = participant
        self._inbox = inbox
        self._system = system

    def subscribe(self, name: str, filter: object) -> datetime:
        checked_filter(name, filter)
        wanted = {"filters": [filter], "protocol": "SQS", "sink": self._inbox}
        answer = self._request("PUT", name, wanted, if_none_match="*")
        if answer.status == 412:
            known = self._request("GET", name).document
            if isinstance(known, dict):
                known.pop(_GRANTED, None)
            if canonical_bytes(known) != canonical_bytes({"id": name, **wanted}):
                raise AlreadySubscribedError(self._participant, name)
            return in_force_from(self._system.now())
        found = answer.document
        # What API Gateway refuses by itself has no problems.
        if answer.status in (400, 409) and isinstance(found, dict) and "problems" in found:
            problems = [Problem(each["path"], each["message"], each["remedy"]) for each in found["problems"]]
            raise SubscriptionError(name, problems or [Problem("name", found["title"], found["detail"])])
        self._check(answer)
        return in_force_from(self._system.now())

    def unsubscribe(self, name: str) -> None:
        answer = self._request("DELETE", name)
        if answer.status == 404:
            raise NotSubscribedError(self._participant, name)
        self._check(answer)

    def _request(self, method: str, name: str, document: object = None, **headers: str) -> HttpAnswer:
        path = f"/participants/{self._participant}/subscriptions/{quote(name, safe='')}"
        with unavailable(self._participant):
            return self._http.request(method, path, document, **headers)

    def _check(self, answer: HttpAnswer) -> None:
        if answer.status >= 300:
            found = answer.document if isinstance(answer.document, dict) else {}
            said = found.get("detail") or found.get("message") or "no reason was given"
            raise UnavailableError(self._participant, f"the API answers {answer.status}: {said}")
