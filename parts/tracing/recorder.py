"""The spans of what the router did, made of its facts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

from eventplane.dead_letter import ROUTER_SOURCE
from eventplane.function_settings import SpanRecorderSettings
from eventplane.trace_context import context_of
from lambdas.common.aws import Timeouts
from lambdas.common.log import logger
from lambdas.common.system import Threads
from lambdas.router.planner import Step
from parts.tracing.export import SpanExport, invocation_links
from parts.tracing.spans import RoutingRecord, Span, router_spans


class OtlpRecorder:
    """Record, as `service`, the events whose traces ask for it, and a `share` of others."""

    def __init__(self, export: SpanExport, service: str, share: float) -> None:
        self._export = export
        self._service = service
        self._share = share

    def record(
        self, facts: Sequence[Step], *, began_ms: int, ended_ms: int, remaining_ms: Callable[[], int]
    ) -> None:
        """Record `facts`, the work of one invocation from `began_ms` to `ended_ms`, Unix milliseconds.

        Never raises: what is done is done, whether that succeeds or not.
        """
        try:
            self._export.send(list(self._spans(facts, began_ms, ended_ms)), remaining_ms)
        except Exception:  # noqa: BLE001 - a defect here must not bring back messages that are done
            logger.exception("the spans could not be recorded")

    def _spans(self, facts: Sequence[Step], began_ms: int, ended_ms: int) -> Iterator[Span]:
        links = invocation_links(os.environ)
        for steps in _by_event(facts):
            event = steps[0].original
            if event is None:
                # What is no event has no trace; its dead letter is one.
                continue
            context = context_of(event, self._share)
            if context.is_sampled:
                yield from router_spans(
                    context,
                    event,
                    [RoutingRecord(step.record, step.event or event) for step in steps],
                    service=self._service,
                    began_ms=began_ms,
                    ended_ms=ended_ms,
                    is_own=event.source == ROUTER_SOURCE,
                    links=links,
                )


def span_recorder(
    tracing: SpanRecorderSettings, patience: Timeouts, threads: Threads, monotonic: Callable[[], float]
) -> OtlpRecorder:
    """Return the recorder that `tracing` asks for, in a function whose calls have `patience`."""
    service = os.environ["POWERTOOLS_SERVICE_NAME"]
    export = SpanExport(urlsplit(tracing.otlp_endpoint), threads, monotonic, patience)
    return OtlpRecorder(export, service, tracing.trace_share)


def _by_event(facts: Sequence[Step]) -> Iterator[list[Step]]:
    """The facts of each event that came: of two copies in one batch apart."""
    found: dict[tuple[str, int], list[Step]] = {}
    for step in facts:
        found.setdefault((step.record.message_id, id(step.original)), []).append(step)
    yield from found.values()
