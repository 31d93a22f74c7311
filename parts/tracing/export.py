"""Spans to an OpenTelemetry collector, by OTLP over HTTP: what cannot be told in time is not told.

Without OpenTelemetry's SDK: ADR 19 says why.
"""

from __future__ import annotations

import gzip
import http.client
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import SplitResult

from lambdas.common.aws import PATIENT, Timeouts
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.system import Call, Threads
from parts.tracing.spans import Span, otlp_json

VARIABLE: Final = "_X_AMZN_TRACE_ID"
"""Where Lambda's runtime puts the tracing header of the invocation under way (AWS Lambda guide)."""

_ROOT = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
_PARENT = re.compile(r"[0-9a-f]{16}")


def invocation_links(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(trace id, span id) of the invocation under way; nothing where X-Ray does not draw it."""
    header = environment.get(VARIABLE, "")
    fields = dict(part.partition("=")[::2] for part in header.split(";"))
    root, parent = _ROOT.fullmatch(fields.get("Root", "")), _PARENT.fullmatch(fields.get("Parent", ""))
    if fields.get("Sampled") != "1" or root is None or parent is None:
        return ()
    return ((root[1] + root[2], parent[0]),)


NAMESPACE: Final = "eventplane"
"""The `service.namespace` of all spans that are not the participants' own."""

PATH: Final = "/v1/traces"
"""Where a collector takes traces (OTLP 1.x)."""

PATIENCE_S: Final = 1.0
"""Longest that an invocation waits for the collector, seconds, the look-up of its name included."""

REST_S: Final = 30.0
"""How long a collector that failed is left alone, seconds: it shall not cost each invocation its patience."""

EXPORT_MS: Final = int(1_000 * PATIENCE_S)
"""What an export takes of an invocation at most, milliseconds."""

MAX_SPANS: Final = 2_000
"""Most spans of one request. Ours: 1 MB of JSON, where receivers take 4 MB and more."""


class SpanExport:
    """Posts to the collector at `address`, OTLP's base URL, in functions whose calls have `patience`.

    No export begins with less than `reserve_ms` left, milliseconds: the answer to the queue comes after it.
    """

    def __init__(
        self,
        address: SplitResult,
        threads: Threads,
        now: Callable[[], float],
        patience: Timeouts = PATIENT,
    ) -> None:
        self.reserve_ms = EXPORT_MS + 2 * patience.worst_call_ms
        self._address = address
        self._path = f"{address.path.rstrip('/')}{PATH}"
        self._now = now
        self._rests_until = 0.0
        self._threads = threads
        self._thread = threads.pool(1)
        self._post: Call[None] | None = None

    def send(self, spans: Sequence[Span], remaining_ms: Callable[[], int]) -> None:
        """Send `spans`; what is not sent is counted. Never raises, and takes `PATIENCE_S` at most."""
        if not spans:
            return
        sent = 0
        if self._may_send(remaining_ms):
            told = spans[:MAX_SPANS]
            if self._try(told):
                sent = len(told)
            else:
                self._rests_until = self._now() + REST_S
        count(Count.SPANS, sent)
        if sent < len(spans):
            count(Count.SPANS_LOST, len(spans) - sent)

    def _may_send(self, remaining_ms: Callable[[], int]) -> bool:
        is_busy = self._post is not None and not self._post.done()
        return not is_busy and self._now() >= self._rests_until and remaining_ms() >= self.reserve_ms

    def _try(self, spans: Sequence[Span]) -> bool:
        """In a thread, as nothing else ends a wait for the resolver, or for a peer that drips, in time."""
        why = f"no answer within {PATIENCE_S:g} s"
        self._post = self._thread.submit(lambda: self._exchange(spans))
        if self._threads.ended([self._post], PATIENCE_S):
            if (error := self._post.exception()) is None:
                return True
            why = repr(error)
        logger.warning("spans could not be exported", endpoint=self._address.netloc, error=why)
        return False

    def _exchange(self, spans: Sequence[Span]) -> None:
        """One request. A connection is not kept: the next invocation may be minutes of frozen time away."""
        is_tls = self._address.scheme == "https"
        kind = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
        connection = kind(self._address.hostname or "", self._address.port, timeout=PATIENCE_S)
        try:
            headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            # At the least effort: most of it are names.
            body = gzip.compress(otlp_json(spans, NAMESPACE).encode(), 1)
            connection.request("POST", self._path, body, headers)
            # Closed here: an answer that ends with its connection keeps the socket open.
            with connection.getresponse() as answer:
                if answer.status // 100 != 2:
                    raise ConnectionError(f"the collector answered {answer.status}")
        finally:
            connection.close()
