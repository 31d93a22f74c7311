"""A device's metrics, as an OpenTelemetry collector gets them."""

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import DeviceSettingsError
from edge.health_server import HealthResponse, HealthServer
from edge.metrics import METRICS, render
from parts.telemetry.device import send, target_of
from parts.telemetry.otlp import metrics_request
from tests.otlp import decode_metrics, otlp_receiver

GAUGE = next(each for each in METRICS if each.kind == "gauge")
COUNTER = next(each for each in METRICS if each.kind == "counter")
LABELS = st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(), max_size=3)
VALUES = st.integers(-(10**18) + 1, 10**18 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SAMPLES = st.lists(st.tuples(LABELS, VALUES), max_size=4)


def read(page: str) -> dict[str, Any]:
    """The metrics of a page by name, as OpenTelemetry's own definitions read the request."""
    request = decode_metrics(metrics_request(page, "home-1", "1.0", 7))
    (resource,) = request.resource_metrics
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert named["service.instance.id"] == "home-1"
    return {each.name: each for scope in resource.scope_metrics for each in scope.metrics}


@given(SAMPLES, SAMPLES)
def test_every_sample_arrives_with_its_labels(gauges: Any, counts: Any) -> None:
    found = read(render([(GAUGE, gauges), (COUNTER, counts)]))
    for metric, samples in ((GAUGE, gauges), (COUNTER, counts)):
        if not samples:
            assert metric.name not in found
            continue
        told = found[metric.name]
        data = told.gauge if metric is GAUGE else told.sum
        points = [
            ({each.key: each.value.string_value for each in point.attributes},
             point.as_int if point.HasField("as_int") else point.as_double)
            for point in data.data_points
        ]  # fmt: skip
        assert points == samples
        assert told.description == metric.help
        assert {point.time_unix_nano for point in data.data_points} == {7}
    if counts:
        assert (found[COUNTER.name].sum.is_monotonic, found[COUNTER.name].sum.aggregation_temporality) == (
            True,
            2,
        )


def test_what_is_no_number_is_left_out() -> None:
    page = render([(GAUGE, [({}, float("nan")), ({"a": "b"}, float("inf")), ({}, 1)])])
    assert len(read(page)[GAUGE.name].gauge.data_points) == 1


@pytest.fixture
def health() -> Iterator[tuple[str, int]]:
    """The forwarder's health endpoint, with one metric."""
    page = render([(COUNTER, [({}, 3)])])
    with closing(HealthServer("127.0.0.1", 0, {"/metrics": lambda: HealthResponse(200, page)})) as server:
        yield "127.0.0.1", server.port


def test_a_collector_gets_the_metrics(health: tuple[str, int]) -> None:
    with otlp_receiver() as receiver:
        target = target_of(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": f"{receiver.url}/", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b"}
        )
        assert send(target, health, "home-1", lambda: 1.0)
        assert receiver.metrics == {COUNTER.name}
        assert receiver.headers["api-key"] == "a b"


def test_a_failure_is_logged_and_no_more(health: tuple[str, int], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with otlp_receiver() as receiver:
        target = target_of({"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
        receiver.status = 503
        assert not send(target, health, "home-1", lambda: 1.0)
        assert not send(target, ("127.0.0.1", 1), "home-1", lambda: 1.0)
    assert not send(target, health, "home-1", lambda: 1.0)
    assert ["503" in each for each in caplog.messages] == [True, False, False]
    assert all(each.startswith("metrics are not sent: ") for each in caplog.messages)


def test_the_defaults_are_those_of_opentelemetry() -> None:
    url, headers, interval_s = target_of({"OTEL_EXPORTER_OTLP_ENDPOINT": ""})
    assert (url.geturl(), headers, interval_s) == ("http://127.0.0.1:4318", {}, 60)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:99999"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[collector"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector/a b"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector/\u00fc"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret%E2%82%AC"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "=secret"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%0d%0ac"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "999"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon"),
    ],
)
def test_a_malformed_variable_is_named(variable: str, value: str) -> None:
    with pytest.raises(DeviceSettingsError) as caught:
        target_of({variable: value})
    (problem,) = caught.value.problems
    assert (problem.setting, "secret" in str(caught.value)) == (variable, False)
