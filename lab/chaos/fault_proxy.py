"""A proxy in front of a cloud that makes single services of AWS fail as they fail in AWS."""

import json
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import md5
from typing import Final

from lab.proxy import CallProxy, ProxyAnswer, ProxyCall

LATE_S: Final = 3.0
"""How late an answer comes: later than a function waits for one (`lambdas/common/aws.py`)."""

_STALL_S: Final = 60.0
"""How long a stalled call is held at most: longer than the timeout of any client."""

_LONGEST_S: Final = 120.0
"""How long an outage waits at most for a call that meets it, on a busy machine."""

_SEND: Final = "AmazonSQS.SendMessageBatch"

_LEDGER: Final = b"-ledger"
"""In the URL of the ledger's queue, which still records swallowed events as delivered."""


class Outage(StrEnum):
    """The failure of a service."""

    UNAVAILABLE = "unavailable"
    """It answers 503 at once and does nothing."""
    THROTTLED = "throttled"
    """It refuses the call by its own error for too many calls."""
    STALLED = "stalled"
    """It takes the call, does nothing, and never answers."""
    LATE = "late"
    """It does what it is asked to do, and answers after `LATE_S`."""
    UNANSWERED = "unanswered"
    """It does what it is asked to do, and the connection ends before the answer."""
    ANSWER_LOST = "answer-lost"
    """As `UNANSWERED`, but the client's repeat of the call is answered."""
    SWALLOWED = "swallowed"
    """It confirms messages that it has not stored. No service does that: it shows that a run can fail."""


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """The calls of `service`, by its signing name; with `resource` only those that name it."""

    service: str
    resource: str = ""

    def has(self, call: ProxyCall) -> bool:
        """Return whether `call` goes there."""
        if call.service != self.service:
            return False
        return self.resource in call.path or self.resource.encode() in call.body


@dataclass(frozen=True, slots=True)
class _Outage:
    target: ProxyTarget
    failure: Outage
    met: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class FaultProxy(CallProxy):
    """Passes calls on to `upstream`, except those of a service that fails."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self._outages: dict[ProxyTarget, _Outage] = {}

    def begin(self, target: ProxyTarget, failure: Outage) -> None:
        """Let the calls to `target` fail from now on."""
        self._outages = {**self._outages, target: _Outage(target, failure)}

    def end(self, target: ProxyTarget, *, unmet: bool = False) -> None:
        """Let the calls to `target` pass again; those that stall end without an answer.

        Unless it may end `unmet`, the outage goes on until a call has met it, for `_LONGEST_S` at most.
        """
        if not unmet:
            self._outages[target].met.wait(_LONGEST_S)
        outages = dict(self._outages)
        outages.pop(target).over.set()
        self._outages = outages

    def answer(self, call: ProxyCall) -> ProxyAnswer | None:
        """Answer by the outage of the called service, if there is one."""
        outage = next((each for each in self._outages.values() if each.target.has(call)), None)
        if outage is None or (outage.failure is Outage.SWALLOWED and not _sends_events(call)):
            return self.forward(call)
        outage.met.set()
        match outage.failure:
            case Outage.UNAVAILABLE:
                return _refusal(call, *_UNAVAILABLE[call.service])
            case Outage.THROTTLED:
                return _refusal(call, *_THROTTLED[call.service])
            case Outage.STALLED:
                outage.over.wait(_STALL_S)
                return None
            case Outage.LATE:
                answer = self.forward(call)
                outage.over.wait(LATE_S)
                return answer
            case Outage.UNANSWERED:
                self.forward(call)
                return None
            case Outage.ANSWER_LOST:
                answer = self.forward(call)
                return None if "attempt=1" in call.headers.get("amz-sdk-request", "") else answer
            case Outage.SWALLOWED:
                return _stored(call.body)


def _sends_events(call: ProxyCall) -> bool:
    return call.action == _SEND and _LEDGER not in call.body


# Codes and statuses of the API references and of botocore's service models.
_UNAVAILABLE: Final = {
    "s3": (503, "ServiceUnavailable"),
    "dynamodb": (503, "ServiceUnavailable"),
    "sqs": (503, "ServiceUnavailable"),
    "iotdata": (503, "ServiceUnavailableException"),
}
_THROTTLED: Final = {
    "s3": (503, "SlowDown"),
    "dynamodb": (400, "ThrottlingException"),
    "sqs": (400, "RequestThrottled"),
    "iotdata": (429, "ThrottlingException"),
}
_NAMESPACES: Final = {"dynamodb": "com.amazonaws.dynamodb.v20120810#", "sqs": "com.amazonaws.sqs#"}


def _refusal(call: ProxyCall, status: int, code: str) -> ProxyAnswer:
    """Return an error in the protocol of the called service."""
    message = "Please reduce your request rate." if status in (400, 429) else "Please try again."
    if call.service == "s3":
        text = f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>0</RequestId></Error>"
        xml = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
        return ProxyAnswer(
            status, [("Content-Type", "application/xml")], b"" if call.method == "HEAD" else xml
        )
    headers = [("Content-Type", "application/x-amz-json-1.0"), ("x-amzn-ErrorType", code)]
    document = {"__type": _NAMESPACES.get(call.service, "") + code, "message": message}
    return ProxyAnswer(status, headers, json.dumps(document).encode())


def _stored(request: bytes) -> ProxyAnswer:
    entries = [
        {
            "Id": each["Id"],
            "MessageId": each["Id"],
            "MD5OfMessageBody": md5(each["MessageBody"].encode(), usedforsecurity=False).hexdigest(),
        }
        for each in json.loads(request)["Entries"]
    ]
    document = {"Successful": entries, "Failed": []}
    return ProxyAnswer(200, [("Content-Type", "application/x-amz-json-1.0")], json.dumps(document).encode())
