"""The command `telemetry`: sends the metrics of the health endpoint to an OpenTelemetry collector.

Its settings are OpenTelemetry's own variables. Metrics are cumulative, so what one request could not bring
the next one does: nothing is kept.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from edge.errors import DeviceSettingsError, SettingProblem
from edge.parts import build_version
from edge.settings import Settings
from edge.system import SYSTEM
from edge.systemd import start_logging, stop_event
from eventplane.values import whole_number
from parts.telemetry.otlp import metrics_request

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"

PATH: Final = "/v1/metrics"
"""Where a collector takes metrics (OTLP 1.x)."""

PATIENCE_S: Final = 10.0
"""How long a request may take, seconds: OpenTelemetry's default."""

MAX_PAGE_BYTES: Final = 1024 * 1024
"""Most bytes of the page of metrics. Ours: that of the shipped contract has some 20 KB."""

_HEADER: Final = re.compile(r"([\w!#$%&'*+.^`|~-]+)\s*=\s*(.*)", re.ASCII)

_log = logging.getLogger(__name__)


class Collector(NamedTuple):
    """The collector's base URL, the headers of requests to it, and the seconds between two requests."""

    url: SplitResult
    headers: Mapping[str, str]
    interval_s: float


def target_of(environment: Mapping[str, str]) -> Collector:
    """Return what OpenTelemetry's variables in `environment` say. Raises `DeviceSettingsError`."""
    problems: list[SettingProblem] = []

    def read(name: str, default: str, parse: Callable[[str], Any], remedy: str) -> Any:
        try:
            return parse(environment.get(name) or default)
        except ValueError:  # its value may be a secret
            problems.append(SettingProblem(name, "it does not fit", remedy))

    url = read(ENDPOINT, "http://127.0.0.1:4318", _url, "write http://HOST:PORT or https://HOST")
    headers = read(HEADERS, "", _headers, "write NAME=VALUE,NAME=VALUE")
    milliseconds = read(
        INTERVAL,
        "60000",
        lambda text: whole_number(text, 86_400_000, 1_000),
        "give 1000 to 86400000 milliseconds",
    )
    if problems:
        raise DeviceSettingsError(problems)
    return Collector(url, headers, milliseconds / 1_000)


def _url(text: str) -> SplitResult:
    url = urlsplit(text)
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0 or not is_plain:
        raise ValueError
    return url


def _headers(text: str) -> dict[str, str]:
    found = {}
    for each in filter(None, map(str.strip, text.split(","))):
        pair = _HEADER.fullmatch(each)
        # What HTTP refuses later would be in the log, and it may be a secret.
        if pair is None or not (value := unquote(pair[2])).isprintable() or not value.isascii():
            raise ValueError
        found[pair[1]] = value
    return found


def export(settings: Settings) -> None:
    """Send the metrics of the forwarder with these `settings` until SIGTERM or SIGINT.

    Raises `DeviceSettingsError` where it has no health endpoint, or a variable is malformed.
    """
    health = settings.health
    if not health.port:
        remedy = "set a port: the metrics are read there"
        raise DeviceSettingsError(
            [SettingProblem("health.port", "it is 0, so that there are no metrics", remedy)]
        )
    target = target_of(os.environ)
    start_logging(settings.log_level, dict(os.environ))
    stopped = stop_event()
    was_sent = True
    while not stopped.is_set():
        is_sent = send(target, (health.host, health.port), settings.thing, lambda: SYSTEM.now().timestamp())
        if is_sent and not was_sent:
            _log.info("metrics are sent again")
        was_sent = is_sent
        stopped.wait(target.interval_s)


def send(target: Collector, health: tuple[str, int], thing: str, now_s: Callable[[], float]) -> bool:
    """Read the metrics of the health endpoint and send them once; return whether the collector took them."""
    try:
        page = _exchange(http.client.HTTPConnection(*health, timeout=PATIENCE_S), "GET", "/metrics")
        request = metrics_request(page.decode(), thing, build_version(), int(now_s() * 1e9))
        kind = http.client.HTTPSConnection if target.url.scheme == "https" else http.client.HTTPConnection
        headers = {**target.headers, "Content-Type": "application/json", "Content-Encoding": "gzip"}
        body = zlib.compress(json.dumps(request).encode(), 1, wbits=31)  # gzip's format
        connection = kind(target.url.hostname or "", target.url.port, timeout=PATIENCE_S)
        _exchange(connection, "POST", target.url.path.rstrip("/") + PATH, body, headers)
    except (OSError, http.client.HTTPException, ValueError) as error:
        _log.warning("metrics are not sent: %r", error)
        return False
    return True


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return the answer to one request. Raises `OSError`, `HTTPException`."""
    try:
        connection.request(method, path, body, dict(headers or {}))
        with connection.getresponse() as answer:
            if answer.status // 100 != 2:
                raise ConnectionError(f"{connection.host}:{connection.port} answered {answer.status}")
            return answer.read(MAX_PAGE_BYTES)
    finally:
        connection.close()
