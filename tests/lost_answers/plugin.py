"""Runs tests marked with `lost_answers` once, and once more for each of their requests, with its answer lost.

A test is its own oracle: with an answer lost it has to end as it does without, and leave the same in AWS.
"""

import gzip
import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Final

import boto3.s3.inject
import botocore.session
import pytest
from _pytest.runner import runtestprotocol
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
from eventplane.records import REVISION
from eventplane.sqs_binding import split
from eventplane_aws.tables import WRITER
from eventplane_client.aws import aws_client
from lambdas.common import aws
from operations.cloud import Cloud
from tests.fakes import client as fakes
from tests.fakes.client import ScriptedClient
from tests.lost_answers.sites import ROOT, CallSite, call_sites

_DRAWN: Final = re.compile(
    r"""[0-9a-f]{8}[0-9a-f-]*|\d{5,}|\d{4}-\d\d-\d\d[T ][\d:.]+Z?|/[0-9a-f]{2}\b"""
    r"""|\bb'(\\.|[^'])*'|\bb"(\\.|[^"])*\""""
)
"""Ids, numbers, times, a digest's first byte in a key, bytes."""


def state_of(fakes: Iterable[Any]) -> list[str]:
    """Return the content of `fakes`: a text for each message, item, object and certificate."""
    own = (each for each in fakes if each.service in _READERS and not isinstance(each, ScriptedClient))
    return sorted(_DRAWN.sub("#", text) for each in own for text in _READERS[each.service](each))


def _messages(sqs: Any) -> set[str]:
    """Return the messages of all queues, each once: a standard queue delivers one at least once."""
    return {
        f"{queue.name}: {text}"
        for queue in sqs.queues.values()
        for each in queue.messages
        for text in _texts(each.body)
    }


def _texts(body: str) -> list[str]:
    for read in (lambda: parse_ledger_text(body).lines, lambda: split(body)):
        with suppress(EventPlaneError):
            return list(read())
    return [body]


def _items(dynamodb: Any) -> Iterator[str]:
    for table in dynamodb.list_tables()["TableNames"]:
        for item in dynamodb.items(table):
            kept = sorted(each for each in item.items() if each[0] not in (REVISION, WRITER))
            yield f"{table}: {kept}"


def _objects(s3: Any) -> Iterator[str]:
    for bucket, objects in s3.buckets.items():
        for key, each in objects.items():
            body = gzip.decompress(each.body) if key.endswith(".gz") else each.body
            yield f"{bucket}: {key}: {body.decode(errors='replace')}"


def _certificates(iot: Any) -> Iterator[str]:
    yield from (f"thing {thing}: {len(ids)}" for thing, ids in iot.attached.items())
    # One that is inactive, and that no thing and no policy has, is of no use to anybody.
    held = str([*iot.attached.values(), *iot.policies.values()])
    yield from (
        f"certificate: {each}" for id, each in iot.statuses.items() if each != "INACTIVE" or id in held
    )
    yield from (f"policy {name}: {len(ids)}" for name, ids in iot.policies.items())


_READERS: Final = {"sqs": _messages, "dynamodb": _items, "s3": _objects, "iot": _certificates}


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


@dataclass
class Tries:
    """Results of a call site: requests `tried`, those that ended the `same` way, longest delay `late_s`."""

    tried: int = 0
    same: int = 0
    late_s: float = 0.0


class LostAnswersPlugin:
    """`tries` are by call site."""

    def __init__(self) -> None:
        self.tries = defaultdict[CallSite, Tries](Tries)
        self._lost: tuple[Key, ...] = ()
        self._seen = LostAnswers()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self._seen = LostAnswers(*self._lost)
        with self._seen.active():
            return (yield)

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        is_passed, left = self._run(item, nextitem)
        if is_passed:
            self._try(item, nextitem, self._seen.asked, left)
        return True

    def _try(
        self, item: Any, nextitem: Any, asked: Mapping[CallSite, int], expected: Any, *lost: Key
    ) -> None:
        """Lose each answer of `asked`, besides those `lost`; then of requests that only the loss causes."""
        for key in [(site, number) for site, requests in asked.items() for number in range(requests)]:
            if item.session.shouldfail:
                return
            is_passed, _ = self._run(item, nextitem, *lost, key, expected=expected)
            tries, seen = self.tries[key[0]], self._seen
            tries.tried += 1
            tries.same += is_passed
            if not lost:  # with two lost answers the delay is not this call site's alone
                tries.late_s = max(tries.late_s, seen.late_s)
                new = {site: requests for site, requests in seen.asked.items() if site not in asked}
                self._try(item, nextitem, new, expected, key)

    def _run(self, item: Any, nextitem: Any, *lost: Key, expected: Any = None) -> tuple[bool, Any]:
        """Run `item` as it would be run alone; return whether it passed, and what it left."""
        self._lost = lost
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        left = state_of(self._seen.fakes.values())
        for report in reports:
            if report.when == "call" and report.passed and lost:
                if not self._seen.is_done:
                    report.outcome, report.longrepr = "failed", "the request was not made again"
                elif left != expected:
                    report.outcome, report.longrepr = "failed", f"left {_difference(expected, left)}"
            report.nodeid += "".join(f" [answer {number} lost: {site}]" for site, number in lost)
            item.ihook.pytest_runtest_logreport(report=report)
        return all(each.passed for each in reports), left


def _difference(expected: Any, left: Any) -> str:
    more, less = Counter(left) - Counter(expected), Counter(expected) - Counter(left)
    return "\n".join([*(f"+ {each}" for each in more), *(f"- {each}" for each in less)])
