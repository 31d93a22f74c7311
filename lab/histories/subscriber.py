"""A participant's administrator, who subscribes by the API: one request after the other, over a bad line."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, cast

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from eventplane_client.api_subscriptions import ApiSubscriptions
from eventplane_client.errors import AlreadySubscribedError, NotSubscribedError, UnavailableError
from eventplane_client.signed_http import HttpAnswer, SignedHttp
from eventplane_client.system import System
from lab.histories.cloud import CloudModel, inbox_arn
from lab.histories.engine import Fiber
from lab.histories.story import StoryStep
from lab.histories.threads import Program
from lab.histories.wiring import API, Wiring
from lambdas.common.http_api import Request

AGAIN_S: Final = 5.0
TIMEOUT_S: Final = 30.0
ANSWERS_S: Final = 0.02

POSTED: Final = "org.eventplane.alarm.posted-"
"""How the types begin that a subscription made by POST is for; no event has one."""


@dataclass
class RouteChange:
    """The subscription `name` gets a type's `prefix`, or ends (None): when asked for, and when done."""

    name: str
    prefix: str | None
    asked_s: float
    done_s: float | None = None


class ApiLine(SignedHttp):
    """Stands in for `SignedHttp`: the API's function in the simulated cloud, whose answers can be lost."""

    def __init__(self, cloud: CloudModel, program: str) -> None:
        self._cloud = cloud
        self._program = program

    def request(self, method: str, path: str, document: object = None, **headers: str) -> HttpAnswer:
        cloud, engine, weather = self._cloud, self._cloud.engine, self._cloud.weather
        engine.sleep(ANSWERS_S + 0.02 * weather.share())
        if weather.meets(weather.refused, self._program):
            raise ConnectTimeoutError(endpoint_url=f"https://{API}")
        is_lost = weather.meets(weather.lost, self._program)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request(
            method,
            f"https://{API}",
            path,
            headers={"content-type": "application/json", **sent},
            body=json.dumps(document).encode(),
        )
        call = engine.spawn(API, lambda: Wiring(cloud).subscriptions_api(API).answer(request))
        caller = cast("Fiber", engine.task)
        call.when_over(lambda: caller.wake_at(engine.now_s))
        caller.wait_for(lambda: call.is_over and not is_lost, TIMEOUT_S)
        if is_lost or not call.is_over:
            engine.note(self._program, f"the answer to {method} is lost", is_fault=True)
            raise ReadTimeoutError(endpoint_url=f"https://{API}")
        if call.failure is not None:
            return HttpAnswer(502, {}, None)
        return HttpAnswer(call.result.status, call.result.headers, json.loads(call.result.body))


class Administrator:
    """Subscribes for `participant` to an endpoint, or with the client library to its inbox."""

    def __init__(self, cloud: CloudModel, participant: str) -> None:
        self.name = f"{participant}-administrator"
        self.participant = participant
        self.changes: list[RouteChange] = []
        self.posted: dict[str, bool] = {}
        self._cloud = cloud
        self._http = ApiLine(cloud, self.name)
        self._todo: deque[StoryStep] = deque()
        self.is_busy = False

    def do(self, decision: StoryStep) -> None:
        """Do as decided, after what was decided before."""
        self._todo.append(decision)
        if not self.is_busy:
            self.is_busy = True
            self._cloud.engine.spawn(self.name, self._run)

    def _run(self) -> None:
        system = Program(self._cloud.engine, self.name).system(self._cloud.weather.draw)
        while self._todo:
            decision = self._todo.popleft()
            name, _, wanted = decision.text.partition(" ")
            url, _, prefix = wanted.partition(" ")
            if decision.what == "post":
                self._post(url)
                continue
            change = RouteChange(name, prefix or None, self._cloud.engine.now_s)
            self.changes.append(change)
            while not self._is_done(change, url, system):
                self._cloud.engine.sleep(AGAIN_S)
            self._cloud.engine.note(self.name, f"{decision.what} {decision.text}")
        self.is_busy = False

    def _is_done(self, change: RouteChange, url: str, system: System) -> bool:
        client = ApiSubscriptions(self._http, self.participant, inbox_arn(self.participant), system)
        try:
            if change.prefix is None:
                client.unsubscribe(change.name)
            elif url == "inbox":
                client.subscribe(change.name, _filter(change.prefix))
            else:
                path = f"/participants/{self.participant}/subscriptions/{change.name}"
                answer = self._http.request("PUT", path, _to_endpoint(url, change.prefix))
                if answer.status >= 300:
                    return False
        except (UnavailableError, ConnectTimeoutError, ReadTimeoutError):
            return False
        except AlreadySubscribedError:
            self.changes.remove(change)
        except NotSubscribedError:
            pass
        change.done_s = self._cloud.engine.now_s
        return True

    def _post(self, url: str) -> None:
        """Create a subscription whose id the API chooses; that may happen once for each request."""
        prefix = f"{POSTED}{len(self.posted)}"
        path = f"/participants/{self.participant}/subscriptions"
        self.posted[prefix] = False
        try:
            answer = self._http.request("POST", path, _to_endpoint(url, prefix))
            self.posted[prefix] = answer.status == 201
        except (ConnectTimeoutError, ReadTimeoutError):
            pass


def _filter(prefix: str) -> dict[str, Any]:
    return {"prefix": {"type": prefix}}


def _to_endpoint(url: str, prefix: str) -> dict[str, Any]:
    return {"filters": [_filter(prefix)], "protocol": "HTTP", "sink": url}
