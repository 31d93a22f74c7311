"""Requests to AWS that are performed and whose answers are lost, as when the connection breaks.

botocore repeats such a request by the client's own settings, and the repeat meets what the first one did.
"""

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Final

import boto3.s3.inject
import botocore.session
import pytest
from boto3.s3.transfer import TransferConfig
from botocore import xform_name
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.endpoint import Endpoint
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.model import OperationModel
from botocore.retries.quota import RetryQuota
from botocore.stub import Stubber

from eventplane.envelope import parse_event
from eventplane.errors import EventPlaneError
from eventplane.ingest import parse_frame
from eventplane.ledger import parse_ledger_text
from eventplane.sqs_binding import split
from eventplane_client.aws import aws_client
from lambdas.common import aws
from operations.cloud import Cloud
from tests.fakes import client as fakes
from tests.lost_answers.sites import ROOT, CallSite, call_sites

Key = tuple[CallSite, int]
"""A request: its call site, and its number there from 0."""

_SITES: Final = defaultdict[tuple[str, str], list[CallSite]](list)
for _each in call_sites():
    _SITES[_each.file, _each.function].append(_each)


def site_of(operation: str) -> CallSite | None:
    """Return the call site of the current request of `operation`; None for a test's own request."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(f"{ROOT}/"):
            function = ".".join(each for each in code.co_qualname.split(".") if not each.startswith("<"))
            found = [
                each
                for each in _SITES.get((code.co_filename[len(f"{ROOT}/") :], function), ())
                if each.operation in (operation, "copy")
            ]
            if found:
                here = (each for each in found if each.first_line <= frame.f_lineno <= each.last_line)
                return next(here, found[0])
        frame = frame.f_back
    return None


class LostAnswers:
    """Loses the answers of the requests `lost`.

    `asked` counts the requests of each call site, `late_s` is how long botocore waited for the lost answer
    and before its repeat.
    """

    def __init__(self, *lost: Key) -> None:
        self.asked = Counter[CallSite]()
        self.late_s = 0.0
        self.fakes: dict[int, Any] = {}
        self._lost = set(lost)
        self._has_lost = False
        self._lock = threading.Lock()
        self._hidden = threading.local()

    def loses(self, operation: str) -> bool:
        """Count a request that was performed; return whether its answer is lost."""
        if (site := site_of(operation)) is None:
            return False
        with self._lock:
            self.asked[site] += 1
            key = site, self.asked[site] - 1
            if key not in self._lost:
                return False
            self._lost.remove(key)
            self._has_lost = True
        return True

    @property
    def is_done(self) -> bool:
        """Whether the answers of all requests `lost` were lost."""
        return not self._lost

    @contextmanager
    def active(self) -> Iterator[None]:
        """Apply to all clients, and to the fakes of `tests.fakes` through clients of botocore."""
        real = Endpoint._get_response

        def get_response(endpoint: Any, request: Any, model: OperationModel, context: Any) -> Any:
            answer = context.get("stubbed") or real(endpoint, request, model, context)
            if context["retries"]["attempt"] > 1 or not self.loses(xform_name(model.name)):
                return answer
            timeout = endpoint.http_session._timeout
            # A reader receives again and again, until the queue shows what the lost receive gave.
            pause(max(getattr(timeout, "read_timeout", timeout), getattr(self._hidden, "for_s", 0)))
            return None, ReadTimeoutError(endpoint_url=request.url)

        stubbed = Stubber._get_response_handler

        def stub(stubber: Any, *, context: Any, **more: Any) -> None:
            context["stubbed"] = stubbed(stubber, context=context, **more), None

        def pause(seconds: float) -> None:
            self.late_s += seconds
            clocks = (each.clock for each in self.fakes.values() if hasattr(each, "clock"))
            for clock in {id(each): each for each in clocks}.values():
                clock.advance(seconds)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Endpoint, "_get_response", get_response)
            patch.setattr(Stubber, "_get_response_handler", stub)
            # One client of a service serves all tests, and what it may repeat is for one process.
            patch.setattr(RetryQuota, "acquire", lambda *_: True)
            patch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=pause))
            # The stack of a transfer's thread does not have the call that the request belongs to.
            patch.setattr(boto3.s3.inject, "TransferConfig", partial(TransferConfig, use_threads=False))
            patch.setattr(fakes, "perform", self._perform)
            yield

    def _perform(self, fake: Any, operation: str, request: Any, method: Callable[..., Any]) -> Any:
        """Send a request to a fake through a client of botocore with the product's settings."""
        self.fakes[id(fake)] = fake
        if (site := site_of(operation)) is None:
            return _locked(fake, method, request)
        self._hidden.for_s = _hidden_s(fake, request) if site.is_readers_receive else 0
        client, here = _client(fake.service, site.package)
        here.ask = lambda: _locked(fake, method, deepcopy(request))
        if operation == "publish":  # devices drop a copy
            here.ask = cache(here.ask)
        try:
            return getattr(client, operation)(**request)
        except ClientError as error:
            # The product catches the fake's exceptions.
            here.refusal.response["ResponseMetadata"] = error.response["ResponseMetadata"]
            raise here.refusal from None
        finally:
            if self._has_lost and operation.startswith("send_message"):
                _filter(fake, request)


def _locked(fake: Any, method: Callable[..., Any], request: Any) -> Any:
    with fake._lock:
        return method(**request)


def _hidden_s(sqs: Any, request: dict[str, Any]) -> int:
    """Return after how long the queue shows what a lost receive had, to the repeat of an attempt at once."""
    default = sqs.queue(request["QueueUrl"]).attributes.get("VisibilityTimeout", 30)
    return 0 if "ReceiveRequestAttemptId" in request else int(request.get("VisibilityTimeout", default))


def _filter(sqs: Any, request: dict[str, Any]) -> None:
    """Drop the copy of an event, a frame or a ledger record, as filters and the audit do."""
    queue, seen = sqs.queue(request["QueueUrl"]), set[str]()
    sent = {each["MessageBody"] for each in request.get("Entries", [request])}
    for message in [each for each in queue.messages if each.body in sent and _is_filtered(each.body)]:
        if message.body in seen:
            queue.messages.remove(message)
        seen.add(message.body)


def _is_filtered(body: str) -> bool:
    for read in (lambda text: list(map(parse_event, split(text))), parse_ledger_text, parse_frame):
        with suppress(EventPlaneError, ValueError):
            read(body)
            return True
    return False


@cache
def _client(service: str, package: str) -> tuple[Any, threading.local]:
    """Return a client like those that `package` makes, and a thread-local whose `ask` answers for it."""
    client = botocore.session.Session().create_client(
        service,
        "us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=_config(package),
    )
    here = threading.local()

    def respond(request: Any, *_: Any) -> Any:
        try:
            status, answer = 200, here.ask()
        except ClientError as error:
            here.refusal = error
            status, answer = 400, error.response
        response = AWSResponse(request.url, status, {}, raw=None)
        response._content = b""
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": {}}
        return (response, {**answer, "ResponseMetadata": metadata}), None

    client._endpoint._do_get_response = respond
    return client, here


@cache
def _config(package: str) -> Config | None:
    """Return how clients of `package` wait and repeat; `eventplane_aws` uses those of the functions."""
    made: list[Config] = []

    def create_client(*_: Any, config: Config | None = None, **__: Any) -> None:
        made.append(config)

    session = SimpleNamespace(create_client=create_client, client=create_client)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lambdas.common.aws._session", lambda: session)
        patch.setattr("boto3.client", create_client)
        match package:
            case "lambdas" | "eventplane_aws":
                aws.client("sqs")
            case "eventplane_client":
                aws_client("sqs")
            case "operations":
                Cloud(session).client("sqs")
            case _:
                return None
    return made[0]
